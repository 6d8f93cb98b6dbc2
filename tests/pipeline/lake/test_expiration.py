"""What is older than has to be kept goes, and stays counted."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.expiration import expireDays
    from fleximq.pipeline.lake.repair import repair
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, Failing, commit, crashes, offsetsIn, rows

    #: The end of the first day of the rows, in seconds since 1970.
    END = 1_700_006_400
_DAY = 86_400


class AgingTests(SynchronousTestCase):
    """``table`` has rows 1 to 6 of two topics on one day, 7 to 9 of the next."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute() / "messages")
        BatchCommit(self.table).prepare()
        commit(self.table, 0, rows(range(1, 5), "a.b"), rows([5, 6], "c"), rows(range(7, 10), "a.b", TIME + DAY))

    def age(
        self, *rules: tuple[str | None, float], now: float = END + 10 * _DAY, files: LakeFiles = FILES
    ) -> list[str]:
        """Return the partitions that go."""
        return [each.partition for each in expireDays(self.table, rules, now, files)]

    def test_dayExpiresWhenAllOfItIsOldEnough(self) -> None:
        self.assertEqual(self.age((None, 5 * _DAY), now=END + 5 * _DAY - 1), [])
        gone = self.age((None, 5 * _DAY), now=END + 5 * _DAY)
        self.assertEqual(gone, ["topic=a.b/date=2023-11-14", "topic=c/date=2023-11-14"])
        self.assertEqual(offsetsIn(self.table), [7, 8, 9])
        self.assertEqual(sorted(name for name in os.listdir(self.table) if name[0] != "_"), ["topic=a.b"])

    def test_lastDayOfReadersDoesNotExpireEarly(self) -> None:
        commit(self.table, 1, rows([10], "a.b", 253_402_300_799_000_000))
        self.age((None, _DAY))
        self.assertEqual(offsetsIn(self.table), [10])

    def test_ledgerCountsExpiredRowsAndAgreesWithTheFiles(self) -> None:
        self.age((None, 9.5 * _DAY))
        self.assertEqual(lake.ranges(self.table), {JOURNAL: lake.Covered(1, 10, 3, (), 6)})
        self.assertEqual(lake.audit(self.table), [])
        commit(self.table, 1, rows([10, 11], "a.b"))
        self.assertEqual(lake.ranges(self.table), {JOURNAL: lake.Covered(1, 12, 5, (), 6)})
        self.assertEqual(offsetsIn(self.table), [7, 8, 9, 10, 11])
        self.age((None, 9.5 * _DAY))
        self.assertEqual(lake.ranges(self.table), {JOURNAL: lake.Covered(1, 12, 3, (), 8)})

    def test_firstMatchingPatternCounts(self) -> None:
        """The first pattern that matches counts, then what is said for all others; else a topic is kept."""
        self.assertEqual(self.age(("x.*", 1)), [])
        self.assertEqual(self.age(("a.*", 100 * _DAY), ("#", 100 * _DAY), (None, 1)), [])
        self.assertEqual(self.age(("a.*", 100 * _DAY), (None, 1)), ["topic=c/date=2023-11-14"])
        self.assertEqual(len(self.age(("#", 1))), 2)
        self.assertEqual(offsetsIn(self.table), [])
        self.assertEqual(lake.audit(self.table), [])

    def test_crashAtAnyStepCountsNothingTwice(self) -> None:
        for step in crashes(lambda files: self.age((None, 9.5 * _DAY), files=files), 8):
            for fault in lake.audit(self.table):
                self.assertIn("is recorded, but not complete: fleximq-pipeline repair", fault, step)
            repair(self.table)
            self.assertEqual(lake.audit(self.table), [], step)
            covered = lake.ranges(self.table)[JOURNAL]
            self.assertEqual(covered.rows + covered.expired, 9, step)
            self.setUp()
        self.assertEqual(offsetsIn(self.table), [7, 8, 9])

    def test_foldersAreSyncedBeforeTheLedgerCountsTheDays(self) -> None:
        files = Failing(1000)
        self.age((None, 9.5 * _DAY), files=files)
        own = f"{self.table}/_fleximq"
        before = files.done[: files.done.index(f"rename {own}/ledger.new {own}/ledger")]
        for folder in (f"{self.table}/topic=a.b", f"{self.table}/topic=c", f"{own}/expired"):
            self.assertIn(f"sync {folder}", before)

    def test_folderThatIsNoDayIsRefused(self) -> None:
        folder = Path(self.table, "topic=c/other")
        folder.mkdir()
        (folder / "x").touch()
        self.assertRaisesRegex(LakeRefused, "has a folder of another origin: topic=c/other", self.age, (None, 1))
