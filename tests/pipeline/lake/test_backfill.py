"""A table that was added later gets earlier messages, each exactly once."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.test_ingest_driver import FeedCase
from tests.pipeline.written import Written

if not skip:
    import msgspec

    from fleximq.pipeline.errors import LakeRefused, PipelineError
    from fleximq.pipeline.files.journal_files import JournalFiles
    from fleximq.pipeline.files.selection import Topics
    from fleximq.pipeline.lake.backfill import Source, backfill, journalSource, sealedSource, tableSource
    from fleximq.pipeline.lake.batch_commit import exclusive
    from fleximq.pipeline.lake.completeness import audit
    from fleximq.pipeline.lake.ingest_driver import TableIngest
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.sealed_segments import sealSegments
    from fleximq.pipeline.lake.table.ledger import Gap, readLedger
    from fleximq.pipeline.lake.table.lock import backfillLock
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.reader.source_options import SourceOptions
    from tests.pipeline.lake.tables import JOURNAL, crashes

    LATE = TableSpec("late", decode="messagepack")


class BackfillCase(FeedCase):
    """The table ``late`` begins at an offset."""

    def seen(self, name: str = "late") -> list[Any]:
        """Return offset, topic and ``a`` of each row, in the order of offsets."""
        found = []
        table = f"{self.lake}/{name}"
        for path, topic in liveFiles(table):
            for rows in rowGroups(table, path, topic):
                found += [(row["offset"], row["topic"], row.get("a")) for row in rows.to_pylist()]
        return sorted(found)

    def begin(self, journal: str, offset: int, spec: Any = None, tableFormat: str = "parquet") -> None:
        """Let the table begin there."""
        with TableIngest(self.lake, [spec or LATE], {"format": tableFormat}, False) as feeding:
            feeding.beginAt({journal: offset})

    def fill(self, *sources: Any, spec: Any = None, lossAllowed: bool = False, files: LakeFiles = FILES) -> int:
        """Fill it; return the number of rows."""
        return sum(done.rows for done in backfill(self.lake, spec or LATE, sources, lossAllowed, files=files))


class FromTableTests(BackfillCase):
    """From another table of the lake."""

    def make(self, tableFormat: str = "parquet") -> None:
        """Make a table with six rows, of which two are dead letters, and let ``late`` begin at offset 5."""
        early = TableSpec("early", decode="messagepack", schema="a INT")
        self.ingest([early], {"a": 1}, {"a": 1.5}, {"a": 2}, tableFormat=tableFormat)
        self.ingest([early], {"a": 3}, {"a": 2.5}, {"a": 4}, number=1, first=4, tableFormat=tableFormat)
        self.begin(JOURNAL, 5, tableFormat=tableFormat)
        self.ingest([LATE], {"a": 5, "b": "x"}, number=2, first=5, tableFormat=tableFormat)

    #: The rows of ``late``.
    wanted = [(1, "t", 1.0), (2, "t", 1.5), (3, "t", 2.0), (4, "t", 3.0), (5, "t", 5.0)]

    def test_earlierRowsAreThereOnceInEachFormat(self) -> None:
        """In each format all earlier rows are there once, as the table decodes them, and later batches follow."""
        self.patch(sys.modules[backfill.__module__], "PIECE_ROWS", 2)
        for tableFormat in ("parquet", "delta", "iceberg"):
            shutil.rmtree(self.lake, ignore_errors=True)
            self.make(tableFormat)
            source = tableSource(self.lake, "early", LATE)
            self.assertEqual([self.fill(source), self.fill(source)], [4, 0])
            self.assertEqual(self.seen(), self.wanted)
            covered = readLedger(f"{self.lake}/late").journals[JOURNAL]
            self.assertEqual((covered.first, covered.next, covered.rows, covered.dead), (1, 6, 5, 0))
            self.ingest([LATE], {"a": 6}, number=3, first=6, tableFormat=tableFormat)
            self.assertEqual(self.seen(), [*self.wanted, (6, "t", 6.0)])

    def test_sourceTableThatLacksTopicsIsRefused(self) -> None:
        self.ingest([TableSpec("some", ("a", "t"))], 1)
        for topics in ((), ("b",), ("a", "b")):
            error = self.assertRaises(LakeRefused, tableSource, self.lake, "some", TableSpec("late", topics))
            self.assertIn("has only the topics a, t, and late has others as well", str(error))
        tableSource(self.lake, "some", TableSpec("late", ("a",)))
        self.ingest([TableSpec("all", ("#",))], 1)
        tableSource(self.lake, "all", TableSpec("late", ("b",)))
        self.assertRaises(LakeRefused, tableSource, self.lake, "all", TableSpec("late", ("b", "$b")))

    def test_tableOfAnOlderVersionHasNoTopicsAndSaysSo(self) -> None:
        self.ingest([TableSpec("some")], 1)
        os.unlink(f"{self.lake}/some/_fleximq/table")
        self.assertRaisesRegex(LakeRefused, "start its ingest once, then it does", tableSource, self.lake, "some", LATE)

    def test_ingestMayCommitAndAddColumnsBetweenPieces(self) -> None:
        self.patch(sys.modules[backfill.__module__], "PIECE_ROWS", 2)
        self.make()
        run = backfill(self.lake, LATE, [tableSource(self.lake, "early", LATE)], False)
        next(run)
        self.ingest([LATE], {"a": 6, "c": 1}, number=3, first=6)
        list(run)
        self.assertEqual(self.seen(), [*self.wanted, (6, "t", 6.0)])
        self.assertEqual(audit(f"{self.lake}/late"), [])

    def test_sealedHistoryThatIsNotThereIsRefused(self) -> None:
        for folder in (f"{self.lake}-sealed", "s3://bucket/sealed"):
            self.assertRaisesRegex(PipelineError, f"in {folder} cannot be read: no such file", sealedSource, folder)

    def test_tableInUseOrWithoutABeginIsRefused(self) -> None:
        self.make()
        with backfillLock(f"{self.lake}/late"):
            error = self.assertRaises(LakeRefused, self.fill)
        self.assertIn("another run fills it", str(error))
        new = TableSpec("new")
        self.feeding(new)
        self.assertRaisesRegex(LakeRefused, "has no batch yet, so it is unknown where it begins", self.fill, spec=new)

    def crash(self, tableFormat: str) -> None:
        """End a run at each step, and look whether the next one completes it."""
        self.patch(sys.modules[backfill.__module__], "PIECE_ROWS", 2)
        shutil.rmtree(self.lake, ignore_errors=True)
        self.make(tableFormat)
        saved = f"{self.lake}-{tableFormat}"
        shutil.copytree(self.lake, saved)

        def fill(files: LakeFiles) -> None:
            shutil.rmtree(self.lake)
            shutil.copytree(saved, self.lake)
            self.fill(tableSource(self.lake, "early", LATE), files=files)

        for steps in crashes(fill, 10):
            with exclusive(f"{self.lake}/late"):
                found = self.seen()
                self.assertEqual(found, self.wanted[-len(found) :], f"after {steps} steps")
                self.assertEqual(readLedger(f"{self.lake}/late").journals[JOURNAL].rows, len(found))
            self.fill(tableSource(self.lake, "early", LATE))
            self.assertEqual(self.seen(), self.wanted, f"after {steps} steps")

    def test_crashAtAnyChangeLosesAndRepeatsNothing(self) -> None:
        self.crash("parquet")

    @nightly
    def test_crashAtAnyChangeOfATableWithALogLosesAndRepeatsNothing(self) -> None:
        self.crash("delta")
        self.crash("iceberg")


class FromJournalTests(BackfillCase):
    """From a journal and its sealed segments."""

    def setUp(self) -> None:
        super().setUp()
        folder = Path(self.mktemp()).absolute()
        self.written = Written(str(folder), segmentBytes=400)
        self.addCleanup(self.written.close)
        # Each frame is a segment.
        for number in range(1, 41, 4):
            values = [msgspec.msgpack.encode({"a": each}) for each in range(number, number + 4)]
            self.written.kept("t" if number % 8 == 1 else "u", *values)
        self.sealed = f"{folder}-sealed"
        self.wanted = [(each, "t" if each % 8 in (1, 2, 3, 4) else "u", float(each)) for each in range(1, 41)]

    def journal(self, *topics: str) -> "Source":
        """Return the journal as a source of small pieces."""
        options = SourceOptions((self.written.folder,), Topics(levels=topics), partitionBytes=600)
        return journalSource(options)

    def seal(self, *places: int) -> "Source":
        """Seal some segments, and return them as a source."""
        journal = JournalFiles(self.written.folder)
        folder = f"{self.sealed}/{journal.id}"
        os.makedirs(folder)
        segments = [each for part in journal.slices(1, 41, Topics(), 40) for each in part.pieces]
        for place in places:
            (whole,) = journal.slices(segments[place].first, segments[place].next)
            sealSegments([whole], folder, False)
        return sealedSource(self.sealed)

    def test_piecesLeadDownToTheFirstRecord(self) -> None:
        self.begin(self.written.id, 31)
        pieces = list(backfill(self.lake, LATE, [self.journal()], False))
        self.assertGreater(len(pieces), 2)
        self.assertEqual(self.seen(), self.wanted[:30])
        self.assertEqual(readLedger(f"{self.lake}/late").journals[self.written.id].first, 1)
        self.assertEqual(audit(f"{self.lake}/late"), [])

    def test_tableGetsItsOwnTopics(self) -> None:
        spec = TableSpec("late", ("u",), "messagepack")
        self.begin(self.written.id, 31, spec)
        self.fill(self.journal("u"), spec=spec)
        self.assertEqual(self.seen(), [row for row in self.wanted[:30] if row[1] == "u"])
        self.assertEqual(readLedger(f"{self.lake}/late").journals[self.written.id].first, 1)

    def test_topicsThatTheIngestLacksAreLeftOut(self) -> None:
        source = self.seal(0, 1, 2)
        self.begin(self.written.id, 13)
        list(backfill(self.lake, LATE, [source], False, Topics(levels=("u",))))
        self.assertEqual(self.seen(), self.wanted[4:8])

    def test_removedSegmentsAreReadFromTheSealedHistory(self) -> None:
        source = self.seal(0, 1, 2)
        self.written.close()
        for path in sorted(Path(self.written.folder).glob("*.fxj"))[:3]:
            path.unlink()
        self.begin(self.written.id, 31)
        self.fill(self.journal(), source)
        self.assertEqual(self.seen(), self.wanted[:30])

    def test_recordsInNoSourceAreRefusedOrAGap(self) -> None:
        source = self.seal(0, 2)
        (first, second) = sorted(Path(self.sealed, self.written.id).iterdir())
        begin, end = int(first.stem.split("-")[1]), int(second.stem.split("-")[0])
        self.begin(self.written.id, int(second.stem.split("-")[1]))
        error = self.assertRaises(LakeRefused, self.fill, source)
        self.assertIn(f"offsets {begin} to {end - 1} are in no source; --allow-data-loss makes a gap", str(error))
        self.assertEqual([row[0] for row in self.seen()][0], end)
        self.fill(source, lossAllowed=True)
        gap = Gap(begin, end, "they are in no source of the backfill", True)
        self.assertEqual(readLedger(f"{self.lake}/late").journals[self.written.id].gaps, (gap,))
        self.assertEqual([row[0] for row in self.seen()][0], 1)
