"""A table whose format refuses a batch is left behind by the others of its ingest, and gets later what it missed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleximq.values.message import Content
from tests.pipeline.lake.iceberg_case import skip
from tests.pipeline.lake.test_ingest_driver import FeedCase
from tests.pipeline.written import Written

if not skip:
    import msgspec

    from fleximq.pipeline.errors import CommitRefused, LakeRefused
    from fleximq.pipeline.files.schema import ALL_COLUMNS
    from fleximq.pipeline.files.selection import Selection
    from fleximq.pipeline.lake import audit
    from fleximq.pipeline.lake.batch_commit import readBehind
    from fleximq.pipeline.lake.catch_up import CatchUp
    from fleximq.pipeline.lake.iceberg import catalogOf
    from fleximq.pipeline.lake.iceberg.iceberg_log import IcebergLog
    from fleximq.pipeline.lake.ingest_driver import TableIngest
    from fleximq.pipeline.lake.ingest_task import stage
    from fleximq.pipeline.lake.repair import repair
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.lake.task_reports import TaskReports
    from fleximq.pipeline.reader.journals import Journals, records
    from fleximq.pipeline.reader.source_options import SourceOptions


class CatchUpTests(FeedCase):
    """Two tables of a journal with maps; Iceberg refuses the batches of those in ``refused``."""

    def setUp(self) -> None:
        super().setUp()
        self.written = Written(str(Path(self.mktemp()).absolute()), segmentBytes=2000)
        self.journal = self.written.id
        self.specs = [TableSpec("one", decode="messagepack"), TableSpec("two", decode="messagepack")]
        self.next = 1
        self.refused: set[str] = set()
        real = IcebergLog.commit

        def commits(log: Any, *arguments: Any) -> None:
            if os.path.basename(log._table) in self.refused:
                raise LakeRefused("it is refused")
            real(log, *arguments)

        self.patch(IcebergLog, "commit", commits)

    def entered(self, lossAllowed: bool = False) -> "TableIngest":
        """Return the tables of an ingest."""
        fail = str(not lossAllowed).lower()
        self.options = SourceOptions.of({"path": self.written.folder, "failOnDataLoss": fail})
        feeding = TableIngest(
            self.lake, self.specs, {"format": "iceberg"}, lossAllowed, missed=CatchUp(self.options).add
        )
        feeding.__enter__()
        return feeding

    def fill(self, number: int, **more: Any) -> None:
        """Publish so many maps."""
        for _ in range(number):
            payload = msgspec.msgpack.encode({"n": self.written.next, **more})
            self.written.kept("t", payload, content=Content.MESSAGEPACK)

    def commit(self, feeding: "TableIngest", number: int) -> int:
        """Commit all records since the last batch; return the rows."""
        self.start, self.next = self.next, self.written.next
        return self.repeated(feeding, number)

    def repeated(self, feeding: "TableIngest", number: int) -> int:
        """Commit the last batch again."""
        while feeding.evolve(told := TaskReports.of(self._lines(number))):
            pass
        return feeding.publish(number, told)

    def _lines(self, number: int) -> Iterator[str]:
        yield json.dumps({"start": {self.journal: self.start}, "end": {self.journal: self.next}, "gaps": {}})
        journals = Journals(self.options)
        found = journals.find()[self.journal]
        for part in journals.partitions(found, self.start, self.next, self.options, Selection()):
            batches = records(part, ALL_COLUMNS, Selection(), True, [])
            yield from stage(self.lake, self.specs, self.journal, number, batches, [])

    def offsets(self, name: str) -> list[int]:
        """Return the offsets of a table's rows as Iceberg has them."""
        found = catalogOf(self.lake, None).load_table(("lake", name)).scan().to_arrow()
        offsets: list[int] = sorted(found.column("offset").to_pylist())
        return offsets

    def whole(self) -> None:
        """See that both tables have every row once."""
        for spec in self.specs:
            self.assertEqual(self.offsets(spec.name), list(range(1, self.next)), spec.name)
            self.assertEqual(audit(f"{self.lake}/{spec.name}"), [])
            self.assertEqual(os.listdir(f"{self.lake}/{spec.name}/_fleximq/staged"), [])
            self.assertEqual(readBehind(f"{self.lake}/{spec.name}"), "")

    def test_refusedTableGetsItsMissedRowsWithALaterBatch(self) -> None:
        feeding = self.entered()
        for number in range(5):
            self.refused = {"two"} if number in (1, 2, 3) else set()
            # New columns are found meanwhile.
            self.fill(3, **{f"x{number}": True})
            rows = self.commit(feeding, number)
            self.assertEqual(rows, {0: 6, 4: 12}.get(number, 3))
            self.assertEqual(self.offsets("one"), list(range(1, self.next)))
            self.assertEqual(feeding.behind.keys(), self.refused)
            if self.refused:
                self.assertIn("it is refused; fleximq-pipeline repair --lake", readBehind(f"{self.lake}/two"))
                self.assertEqual(feeding.reached({self.journal: self.next}), {self.journal: 4})
        self.assertEqual(feeding.reached({self.journal: self.next}), {self.journal: self.next})
        self.whole()
        feeding.__exit__()

    def test_ingestEndsIfEveryTableIsRefused(self) -> None:
        feeding = self.entered()
        self.refused = {"one", "two"}
        self.fill(3)
        self.assertRaises(CommitRefused, self.commit, feeding, 0)
        feeding.__exit__()
        self.assertRaises(CommitRefused, self.entered)
        self.refused = set()
        feeding = self.entered()
        self.assertEqual(self.repeated(feeding, 0), 0)
        self.whole()
        feeding.__exit__()

    def test_restartedIngestGoesOnAndCatchesUpAfterARepair(self) -> None:
        """An ingest that is started meanwhile goes on with the others; after the repair, one needs no new batch."""
        feeding = self.entered()
        self.fill(3)
        self.commit(feeding, 0)
        self.refused = {"two"}
        self.fill(3)
        self.commit(feeding, 1)
        feeding.__exit__()
        feeding = self.entered()
        self.assertEqual(feeding.catchUp(2, {self.journal: self.next}), 0)
        self.assertEqual(feeding.behind.keys(), {"two"})
        self.fill(3)
        self.commit(feeding, 2)
        feeding.__exit__()
        self.refused = set()
        self.assertEqual(repair(f"{self.lake}/two"), ["a batch is complete"])
        feeding = self.entered()
        self.assertEqual(feeding.catchUp(3, {self.journal: self.next}), 3)
        self.assertEqual(feeding.behind, {})
        self.whole()
        self.assertEqual(self.repeated(feeding, 2), 0)
        self.whole()
        feeding.__exit__()

    def test_omittedTableGetsItsMissedRows(self) -> None:
        self.fill(3)
        feeding = self.entered()
        self.commit(feeding, 0)
        feeding.__exit__()
        both, self.specs = self.specs, self.specs[:1]
        feeding = self.entered()
        self.fill(3)
        self.commit(feeding, 1)
        feeding.__exit__()
        self.specs = both
        feeding = self.entered()
        self.fill(3)
        self.assertEqual(self.commit(feeding, 2), 9)
        self.whole()
        feeding.__exit__()

    def test_crashAfterCatchingUpRepeatsNothing(self) -> None:
        feeding = self.entered()
        for number in range(2):
            self.fill(3)
            self.refused = {"two"} if number else set()
            self.commit(feeding, number)
        self.refused = set()
        self.fill(3)
        self.start, self.next = self.next, self.written.next
        feeding.catchUp(2, {self.journal: self.start})
        feeding.__exit__()
        feeding = self.entered()
        self.assertEqual(self.repeated(feeding, 2), 6)
        self.whole()
        feeding.__exit__()

    def test_missedRecordsThatAreGoneHoldTheTableBackOrAreAGap(self) -> None:
        feeding = self.entered()
        self.fill(1)
        self.commit(feeding, 0)
        self.specs, both = self.specs[:1], self.specs
        feeding.__exit__()
        feeding = self.entered()
        self.fill(200)
        self.commit(feeding, 1)
        feeding.__exit__()
        first = sorted(name for name in os.listdir(self.written.folder) if name.endswith(".fxj"))[0]
        os.unlink(f"{self.written.folder}/{first}")
        self.specs = both
        feeding = self.entered()
        self.fill(3)
        self.assertEqual(self.commit(feeding, 2), 3)
        self.assertIn("has missed messages, which cannot be added: journal", feeding.behind["two"])
        feeding.__exit__()
        feeding = self.entered(lossAllowed=True)
        self.fill(3)
        self.commit(feeding, 3)
        self.assertEqual(feeding.behind, {})
        covered = readLedger(f"{self.lake}/two").journals[self.journal]
        (gap,) = covered.gaps
        self.assertEqual((gap.first, gap.lost, covered.next), (2, True, self.next))
        self.assertEqual(self.offsets("two"), [1, *range(gap.next, self.next)])
        feeding.__exit__()
