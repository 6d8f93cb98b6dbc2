"""Batches become visible once, whatever ends the process."""

import errno
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.lake.storage.lake_files import FILES
from fleximq.pipeline.lake.storage.own_folder import OWN
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.batch_commit import RECORD, STAGED, BatchCommit, finish
    from fleximq.pipeline.lake.completeness import audit
    from fleximq.pipeline.lake.storage.lake_files import FILES
    from fleximq.pipeline.lake.storage.own_folder import OWN
    from fleximq.pipeline.lake.table.file_names import writeOwn
    from fleximq.pipeline.lake.table.ledger import LEDGER, Covered, Gap, readLedger
    from fleximq.pipeline.lake.table.lock import changeLock
    from fleximq.pipeline.lake.table.table_log import BatchRange
    from fleximq.pipeline.lake.table_change import INTENT, REMOVAL, TableChange, commitChange
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, Failing, offsetsIn, rows, stage, staged


class PublishingCase(SynchronousTestCase):
    """``table`` is one that was prepared."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute() / "lake" / "messages")
        self.publishing = BatchCommit(self.table)
        self.publishing.prepare()

    def batch(self, number: int, start: int, end: int) -> Any:
        """Return a batch of the one journal."""
        return BatchRange(number, {JOURNAL: start}, {JOURNAL: end})

    def stage(self, start: int, end: int, batch: int = 0) -> Any:
        """Stage the records of a batch: two topics, two days."""
        middle = (start + end) // 2
        return stage(
            self.table,
            rows(range(start, middle), "a"),
            rows(range(middle, end - 1), "b/c"),
            rows([end - 1], "b/c", TIME + DAY),
            batch=batch,
        )

    def publish(self, number: int, start: int, end: int, publishing: Any = None, **more: Any) -> bool:
        """Stage and publish a batch."""
        found = self.stage(start, end, number)
        return (publishing or self.publishing).publish(self.batch(number, start, end), found, {}, **more)


class ForeignTests(PublishingCase):
    """Names that lead out of the table."""

    def setUp(self) -> None:
        super().setUp()
        self.around = Path(self.table).parents[1]

    def files(self) -> list[str]:
        """Return all files around the table, without its own ones."""
        found = (str(each.relative_to(self.around)) for each in self.around.rglob("*") if each.is_file())
        return sorted(each for each in found if "_fleximq" not in each)

    def test_journalIdThatIsAPathIsRefusedAndNoFileIsMade(self) -> None:
        for journalId in ("../../../OUT", "/OUT", "a/b"):
            files = [each._replace(journal=journalId) for each in self.stage(1, 11)]
            self.assertRaises(
                LakeRefused, self.publishing.publish, BatchRange(0, {journalId: 1}, {journalId: 11}), files, {}
            )
            change = TableChange(STAGED, [each._replace(journal=journalId) for each in self.stage(1, 11)])
            self.assertRaises(LakeRefused, commitChange, self.table, change, FILES)
        self.assertEqual(self.files(), [])

    def test_recordsOfIntentTouchNoFileOfAnotherFolder(self) -> None:
        precious = self.around / "precious"
        precious.write_text("")
        (name, *_) = (each.path for each in self.stage(1, 11))
        moved = [name, "../../OUT", "a", "2023-11-14", JOURNAL, 1, 2, 1, 1]
        batch: dict[str, Any] = {"batch": 0, "start": {}, "end": {}, "rows": {}, "gaps": {}, "files": [moved]}
        changed = {"number": 1, **TableChange("staged", [], ["../../precious"])._asdict()}
        removed = {"partitions": ["../../precious"], "expired": {}, "days": []}
        for intent, content in (RECORD, batch), (INTENT, changed), (REMOVAL, removed):
            writeOwn(self.table, intent, content)
            self.assertIn("is damaged", str(self.assertRaises(LakeRefused, finish, self.table)))
            self.assertEqual(self.files(), ["precious"])
            Path(self.table, OWN, intent).unlink()


class PublishTests(PublishingCase):
    """Without failures."""

    def test_filesAreInPlaceAndNothingStaysStaged(self) -> None:
        self.assertTrue(self.publish(0, 1, 11))
        day = f"{JOURNAL}-0000000000-0000"
        found = sorted(str(each.relative_to(self.table)) for each in Path(self.table).rglob("*.parquet"))
        self.assertEqual(
            found,
            [
                f"topic=a/date=2023-11-14/{day}0.parquet",
                f"topic=b%2Fc/date=2023-11-14/{day}1.parquet",
                f"topic=b%2Fc/date=2023-11-15/{day}2.parquet",
            ],
        )
        self.assertEqual(offsetsIn(self.table), list(range(1, 11)))
        self.assertEqual(staged(self.table), [])
        self.assertEqual(audit(self.table), [])

    def test_batchesFollowEachOtherEvenWithoutRows(self) -> None:
        self.publish(0, 1, 11)
        self.publishing.publish(self.batch(1, 11, 20), [], {JOURNAL: [Gap(12, 14, "bytes are damaged", True)]})
        self.publish(2, 20, 30)
        self.assertEqual(offsetsIn(self.table), [*range(1, 11), *range(20, 30)])
        covered = Covered(1, 30, 20, (Gap(12, 14, "bytes are damaged", True),))
        self.assertEqual(readLedger(self.table).journals, {JOURNAL: covered})

    def test_repeatedBatchAddsNothing(self) -> None:
        self.publish(0, 1, 11)
        before = readLedger(self.table)
        self.assertFalse(self.publish(0, 1, 11))
        self.assertEqual(offsetsIn(self.table), list(range(1, 11)))
        self.assertEqual(readLedger(self.table), before)
        self.assertEqual(staged(self.table), [])

    def test_repeatedBatchWithOtherOffsetsOrAnEarlierOneIsRefused(self) -> None:
        self.publish(0, 1, 11)
        self.publish(1, 11, 21)
        for number, start, end in ((1, 11, 22), (1, 12, 21), (0, 1, 11)):
            error = self.assertRaises(LakeRefused, self.publish, number, start, end)
            self.assertEqual(
                str(error),
                f"the table {self.table} has batch 1 up to offset 21 of journal {JOURNAL} and cannot take batch "
                f"{number} from offset {start} of journal {JOURNAL} to offset {end} of journal {JOURNAL}: the "
                "checkpoint is not that of this table",
            )
        self.assertEqual(offsetsIn(self.table), list(range(1, 21)))

    def test_holeBeforeABatchIsRefusedOrAGap(self) -> None:
        self.publish(0, 1, 11)
        for start in (10, 12):
            error = self.assertRaises(LakeRefused, self.publish, 1, start, 20)
            self.assertIn(f"up to before offset 11 and cannot go on at {start}: the checkpoint is not", str(error))
        self.assertRaises(LakeRefused, self.publish, 1, 10, 20, lossAllowed=True)
        self.assertTrue(self.publish(1, 12, 20, lossAllowed=True))
        gap = Gap(11, 12, "they were never ingested", True)
        self.assertEqual(readLedger(self.table).journals[JOURNAL].gaps, (gap,))

    def test_laterJournalBeginsWhereItBegins(self) -> None:
        self.publish(0, 1, 11)
        batch = BatchRange(1, {JOURNAL: 11, "other": 5}, {JOURNAL: 11, "other": 8})
        self.publishing.publish(batch, [], {})
        self.assertEqual(readLedger(self.table).journals["other"], Covered(5, 8))

    def test_leftoversOfFailedTasksAreRemoved(self) -> None:
        self.stage(1, 11)
        self.publish(0, 1, 11)
        self.assertEqual(staged(self.table), [])
        self.stage(11, 20)
        BatchCommit(self.table).prepare()
        self.assertEqual(staged(self.table), [])
        self.assertEqual(offsetsIn(self.table), list(range(1, 11)))

    def test_tableWithFilesAndNoLedgerIsRefused(self) -> None:
        self.publish(0, 1, 11)
        Path(self.table, "_fleximq", "ledger").unlink()
        error = self.assertRaises(LakeRefused, BatchCommit(self.table).prepare)
        self.assertIn(
            "is damaged: it has files, but _fleximq/ledger, the record of their contents, is gone", str(error)
        )

    def test_foldersWithoutALedgerAreAnUnfinishedFirstBatch(self) -> None:
        Path(self.table, "topic=a", "date=2026-01-01").mkdir(parents=True)
        self.assertEqual(BatchCommit(self.table).prepare().batch, -1)

    def test_foldersAreSyncedBeforeTheRecordAndBeforeTheLedger(self) -> None:
        files = Failing(1000)
        self.publish(0, 1, 11, BatchCommit(self.table, files))
        own = f"{self.table}/_fleximq"
        record, ledger = (files.done.index(f"rename {own}/{name}.new {own}/{name}") for name in (RECORD, LEDGER))
        prepared, moved = files.done[:record], files.done[record:ledger]
        self.assertIn(f"sync {own}/staged", prepared)
        made = [each.removeprefix("make ") for each in prepared if each.startswith("make ")]
        for folder in made:
            self.assertIn(f"sync {os.path.dirname(folder)}", prepared[prepared.index(f"make {folder}") :])
        places = {os.path.dirname(each.split(" ")[2]) for each in moved if each.endswith(".parquet")}
        self.assertEqual((len(made), len(places)), (5, 3))
        for folder in places:
            self.assertIn(f"sync {folder}", moved)


class FailureTests(PublishingCase):
    """It ends at each step."""

    def test_crashAtAnyStepLeavesEachRowOnce(self) -> None:
        steps = 0
        while True:
            table = f"{self.table}-{steps}"
            BatchCommit(table).prepare()
            self.table = table
            self.publish(0, 1, 11, BatchCommit(table))
            files = Failing(steps)
            ended = False
            try:
                self.publish(1, 11, 31, BatchCommit(table, files))
            except LakeRefused:
                ended = True
            self._readerSeesOnce(table)
            # What stays staged is what a process that is gone leaves behind.
            later = BatchCommit(table)
            ledger = later.prepare()
            self.assertIn(offsetsIn(table), (list(range(1, 11)), list(range(1, 31))))
            self.assertEqual(ledger.batch == 1, offsetsIn(table) == list(range(1, 31)))
            self.assertNotEqual(self.publish(1, 11, 31, later), ledger.batch == 1)
            self.publish(2, 31, 40, later)
            self.assertEqual(offsetsIn(table), list(range(1, 40)))
            self.assertEqual(audit(table), [])
            self.assertEqual(staged(table), [])
            if not ended:
                break
            steps += 1
        # Folders, record, renames, ledger: if there are fewer steps, this test looks at nothing.
        self.assertGreater(steps, 15)

    def _readerSeesOnce(self, table: str) -> None:
        found = offsetsIn(table)
        self.assertEqual(len(found), len(set(found)))

    def test_crashDuringARecoveryLeavesEachRowOnce(self) -> None:
        for first in range(12, 26):
            for second in range(12):
                table = self.table = f"{self.table.split('+')[0]}+{first}-{second}"
                BatchCommit(table).prepare()
                for after in (first, second):
                    publishing = BatchCommit(table, Failing(after))
                    try:
                        publishing.prepare()
                        self.publish(0, 1, 11, publishing)
                    except LakeRefused:
                        continue
                later = BatchCommit(table)
                later.prepare()
                self.publish(0, 1, 11, later)
                self.assertEqual(offsetsIn(table), list(range(1, 11)), (first, second))
                self.assertEqual(audit(table), [])

    def test_fullDiskIsOneSentenceAndNothingIsVisibleBeforeTheRecord(self) -> None:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        seen = set()
        for steps in range(40):
            table = self.table = f"{self.table.split('+')[0]}+{steps}"
            BatchCommit(table).prepare()
            files = Failing(steps, full)
            try:
                self.publish(0, 1, 11, BatchCommit(table, files))
            except LakeRefused as error:
                self.assertEqual(str(error), f"the table {table} cannot be written: no space left on device")
            intended = any(step.endswith("_fleximq/record") for step in files.done)
            if not intended:
                self.assertEqual(offsetsIn(table), [])
            seen.add(intended)
        self.assertEqual(seen, {False, True})

    def test_fileTakenAwayLaterIsNeitherRestoredNorMissed(self) -> None:
        self.publish(0, 1, 11)
        with changeLock(self.table):
            finish(self.table)
            for path in Path(self.table).rglob("topic=a/*/*.parquet"):
                path.unlink()
        self.assertFalse(self.publish(0, 1, 11))
        self.assertEqual(offsetsIn(self.table), list(range(6, 11)))

    def test_stagedFileThatIsGoneIsDamage(self) -> None:
        found = self.stage(1, 11)
        os.unlink(f"{self.table}/_fleximq/staged/{found[0].path}")
        error = self.assertRaises(LakeRefused, self.publishing.publish, self.batch(0, 1, 11), found, {})
        self.assertIn("is damaged: its file topic=", str(error))

    def test_damagedRecordIsRefused(self) -> None:
        for content in ("{", "{}", "[]", "null", '{"batch": 3}'):
            Path(self.table, "_fleximq", "record").write_text(content)
            self.assertRaisesRegex(LakeRefused, "_fleximq/record is damaged", self.publishing.prepare)
