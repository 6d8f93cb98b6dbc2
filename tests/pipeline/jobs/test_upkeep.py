"""``compact`` while Spark reads, and ``expire``: what a lake need not keep any longer."""

import os
from pathlib import Path
from threading import Event, Thread
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.iceberg_case import skip as noIceberg

if not skip:
    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused, OptionRefused
    from fleximq.pipeline.jobs.upkeep import AUDIT, COMPACT, EXPIRE, RENAME, REPAIR, Keep, keep
    from fleximq.pipeline.lake import audit
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, commit, makeTable, rows
    from tests.pipeline.session import sharedSession

#: Formats of tables.
FORMATS = ("parquet",) if noIceberg else ("parquet", "iceberg")
#: So many files at first, and so many rounds of new ones and of compacting.
FILES, ROUNDS = 40, 8


class LakeCase(SynchronousTestCase):
    """``lake`` has one table, to which ``publish`` adds rows."""

    def setUp(self) -> None:
        self.begin("parquet")

    def begin(self, tableFormat: str) -> None:
        """Begin with an empty table of a format."""
        self.lake = str(Path(self.mktemp()).absolute())
        self.table = f"{self.lake}/messages"
        makeTable(self.table, tableFormat, "topic")
        self.batches = 0

    def publish(self, number: int = 1) -> None:
        """Publish so many batches of ten rows of two topics."""
        for _ in range(number):
            start = self.batches * 10 + 1
            batches = rows(range(start, start + 5), "a"), rows(range(start + 5, start + 10), "b", TIME + DAY)
            commit(self.table, self.batches, *batches)
            self.batches += 1

    def run_(self, *arguments: str) -> Any:
        """Run the job and return its run."""
        return runJob(COMPACT, "--lake", self.lake, *arguments)


class SeveralTablesTests(LakeCase):
    """A table that is refused does not keep others from their turn."""

    def test_eachJobGoesOnAfterARefusedTable(self) -> None:
        self.publish(5)
        broken = Path(self.lake, "a", "_fleximq")
        broken.mkdir(parents=True)
        (broken / "ledger").write_text("{")
        (broken / "format").write_text("{")
        jobs = {"audit": AUDIT, "compact": COMPACT, "repair": REPAIR, "expire": EXPIRE, "rename": RENAME}
        for name, job in jobs.items():
            run = FakeRun()
            given = ["--lake", self.lake, *(["--keep", "9999d"] if name == "expire" else [])]
            error = self.assertRaises(LakeRefused, runJob, job, *given, run=run)
            self.assertTrue(any("messages" in each for each in [*run.said, run.printed]), name)
            isAudit = name == "audit"
            sentence = "1 of 2 tables are not as they should be" if isAudit else "a/_fleximq/format cannot be read"
            self.assertIn(sentence, str(error))
            self.assertEqual("a/_fleximq/ledger is damaged" in run.printed, isAudit)


class JobTests(LakeCase):
    """What the command does."""

    def test_jobSaysWhatBecameOfATableAndLeavesRecentChangesAlone(self) -> None:
        for tableFormat in FORMATS:
            self.begin(tableFormat)
            self.publish(5)
            self.assertEqual(self.run_().said, [f"{self.table}: 0 files became 0 in 0 partitions"])
            self.assertEqual(self.run_("--many", "5").said, [f"{self.table}: 10 files became 2 in 2 partitions"])
            self.publish(2)
            self.assertEqual(self.run_("--many", "2").said, [f"{self.table}: 6 files became 2 in 2 partitions"])
            self.assertEqual(audit(self.table), [])

    def test_oldPartitionsAreCompacted(self) -> None:
        self.publish(3)
        for path in Path(self.table).rglob("*.parquet"):
            os.utime(path, (0, 0))
        self.assertEqual(self.run_().said, [f"{self.table}: 6 files became 2 in 2 partitions"])

    def test_missingLakeAndMissingTableAreRefused(self) -> None:
        self.assertRaises(OptionRefused, runJob, COMPACT)
        self.assertRaisesRegex(LakeRefused, "there is no table 'other'", self.run_, "--table", "other")

    def test_manyIsAtLeastOne(self) -> None:
        for number in ("0", "-1", "x"):
            words = "must be a whole number of at least 1"
            self.assertRaisesRegex(SystemExit, words, runJob, COMPACT, "--many", number)


class ReadersTests(LakeCase):
    """Spark counts again and again while files are joined and new ones come."""

    def setUp(self) -> None:
        super().setUp()
        self.spark = sharedSession()

    def count(self) -> tuple[int, int] | None:
        """Return how many rows and how many different ones there are; None if Spark says that a file was gone."""
        try:
            table = self.spark.read.parquet(self.table)
            (row,) = table.selectExpr("count(*) AS n", "count(DISTINCT journal, offset) AS different").collect()
            return row.n, row.different
        except Exception as error:
            self.assertRegex(str(error), "FAILED_READ_FILE")
            return None

    @nightly
    def test_everyCountWhileCompactingIsExactOrAFailedRead(self) -> None:
        stop = Event()
        self.publish(FILES)

        def work() -> None:
            try:
                for _ in range(ROUNDS):
                    list(compact(self.table, CompactionGoal(1 << 20, -1e9, 2)))
                    stop.wait(0.3)
                    self.publish(2)
                    stop.wait(0.3)
            finally:
                stop.set()

        counts: list[tuple[int, int] | None] = []
        thread = Thread(target=work)
        thread.start()
        while not stop.is_set() or not any(counts):
            least = self.batches
            counts.append(self.count())
            if counts[-1] is not None:
                rows, different = counts[-1]
                self.assertEqual(rows, different)
                self.assertGreaterEqual(rows, least * 10)
                self.assertLessEqual(rows, (self.batches + 1) * 10)
        thread.join(300)
        self.assertTrue(any(counts))
        self.assertEqual(self.count(), (self.batches * 10, self.batches * 10))
        self.assertEqual(audit(self.table), [])


class ExpireTests(LakeCase):
    """What the command does; the rows are of 2023."""

    def expire(self, *arguments: str) -> Any:
        """Run the job and return what it said."""
        return runJob(EXPIRE, "--lake", self.lake, *arguments).said

    def test_topicsAreKeptByTheirRulesAndAPatternWithoutATopicIsTold(self) -> None:
        for tableFormat in FORMATS:
            self.begin(tableFormat)
            self.publish(2)
            none = [f"{self.table}: 0 rows in 0 partitions have expired"]
            self.assertEqual(self.expire("--keep", "36500d"), none)
            found = self.expire("--keep", "b=36500d", "--keep", "bb.*=1d", "--keep", "*=90d")
            gone = f"{self.table}: 10 rows in 1 partitions have expired"
            self.assertEqual(found, [f"--keep bb.*=... matches no topic of {self.table}", gone])
            self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 21, 10, (), 10))
            self.assertEqual(self.expire("--keep", "b=36500d", "--keep", "90d"), none)
            self.assertEqual(lake.audit(self.table), [])

    def test_keepIsAnAgeOrAPatternWithAnAge(self) -> None:
        self.assertEqual(keep("keep", "90d"), Keep(None, 90 * 86_400))
        self.assertEqual(keep("keep", "a=b.*=12h"), Keep("a=b.*", 43_200))
        self.assertIn("keep is 'pay-*=9d', but * and #", str(self.assertRaises(SettingError, keep, "keep", "pay-*=9d")))
        for wrong in ("", "90", "0d", "=90d", "a=", "90y"):
            words = str(self.assertRaises(SettingError, keep, "keep", wrong))
            self.assertIn("must be an age of more than 0, e.g. 90d", words)

    def test_withoutKeepNothingExpires(self) -> None:
        self.publish()
        self.assertIn("--keep AGE is needed", str(self.assertRaises(OptionRefused, self.expire)))
