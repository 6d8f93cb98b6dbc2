"""``fleximq-pipeline ingest`` with tables of the latest rows, and ``sql --as-of``."""

from argparse import ArgumentParser
from threading import Thread
from time import monotonic, sleep
from typing import Any

from tests.pipeline.lake.upserts.state_case import StateCase, skip

if not skip:
    from fleximq.pipeline.errors import DeadLettersFound, LakeRefused, LeftBehind, OptionRefused
    from fleximq.pipeline.jobs.describe import DESCRIBE
    from fleximq.pipeline.jobs.ingest import INGEST
    from fleximq.pipeline.jobs.sql import SQL
    from fleximq.pipeline.lake import audit
    from fleximq.pipeline.lake.batch_commit import readBehind
    from fleximq.pipeline.lake.delta_log import DeltaLog
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.query.tables import Tables
    from tests.pipeline.end_to_end import PATIENCE
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.session import sharedSession

    class _NoSpark(FakeRun):
        """A run in which Spark must not be started."""

        def session(self, quick: bool = False) -> Any:
            raise AssertionError("Spark was started")


class JobCase(StateCase):
    """Runs the job."""

    def ingest(self, *words: str, run: "FakeRun | None" = None) -> "FakeRun":
        """Run the job."""
        run = run or _NoSpark()
        parser = ArgumentParser()
        INGEST.prepare(parser)
        common = ("--journal", self.written.folder, "--lake", self.lake, "--format", self.tableFormat)
        chosen = parser.parse_args([*common, *words])
        chosen.table = [self.spec] if chosen.table is None else chosen.table
        INGEST.run(chosen, run)
        return run


class UpsertJobTests(JobCase):
    """Without Spark, where no other table is fed."""

    def test_onceBringsAllThatIsThereWithoutSpark(self) -> None:
        self.some(30)
        self.assertEqual(self.ingest("--once").said, ["30 records are in"])
        self.some(3)
        self.assertEqual(self.ingest("--once").said, ["3 records are in"])
        self.look()

    def test_deadLettersAreToldAndEndAStrictIngest(self) -> None:
        self.put(b"a")
        self.dead.append(self.change(None, {}))
        run = _NoSpark()
        self.assertRaises(DeadLettersFound, self.ingest, "--once", "--strict", run=run)
        self.assertIn("table state: 1 of 2 records are dead letters; the first: the message has no key", run.said)
        self.look()
        self.dead.append(self.change(None, {}))
        self.assertRaises(DeadLettersFound, self.ingest, "--strict")

    def test_itFollowsTheJournalUntilItIsStopped(self) -> None:
        run = _NoSpark()
        thread = Thread(target=self.ingest, args=("--upsert-every", "10ms"), kwargs={"run": run})
        thread.start()
        try:
            for _ in range(3):
                self.some(5)
                deadline = monotonic() + PATIENCE
                while (
                    not (found := readLedger(self.table).journals)
                    or max(each.next for each in found.values()) < self.written.next
                ):
                    self.assertLess(monotonic(), deadline)
                    sleep(0.01)
        finally:
            run.stopping.set()
            thread.join(PATIENCE)
        self.look()

    def test_tableThatCannotBeWrittenIsLeftBehindAndCatchesUp(self) -> None:
        real, refuses = DeltaLog.change, [True]

        def change(log: Any, *arguments: Any) -> None:
            if refuses:
                raise LakeRefused("it is refused")
            real(log, *arguments)

        self.patch(DeltaLog, "change", change)
        self.put(b"a")
        self.assertIn("it is refused", str(self.assertRaises(LeftBehind, self.ingest, "--once")))
        self.assertIn("it is refused", readBehind(self.table))
        self.put(b"a")
        refuses.clear()
        self.ingest("--once")
        self.look()
        self.assertEqual(readBehind(self.table), "")

    def test_describeCountsRowsAndThoseThatWereReplaced(self) -> None:
        self.put(b"a")
        self.put(b"a")
        self.remove(b"b")
        self.ingest("--once")
        printed = runJob(DESCRIBE, "--lake", self.lake).printed
        self.assertRegex(printed, rf"state +delta +{self.written.id} +1 +4 +1 +2 +0 +0\n")


class BesideSparkTests(JobCase):
    """With a second table that has all changes."""

    def test_stateAtEachOffsetIsFoundInAllChanges(self) -> None:
        past = {}
        for _ in range(5):
            self.some(20, keys=10)
            self.dead.append(self.change(None, {"n": 1}))
            past[self.written.next] = dict(self.model)
        words = ("--once", "--table", self.words)
        self.ingest(*words, run=FakeRun())
        self.look()
        self.assertIn("no table of the lake has all changes", str(self.assertRaises(LakeRefused, self.asked, 5)))
        self.ingest(*words, "--table", "changes=devices.#:json", run=FakeRun())
        self.look()
        self.assertEqual(audit(f"{self.lake}/changes"), [])
        for offset, model in past.items():
            self.assertEqual(self.asked(offset), sorted(model.items()), offset)
        self.assertEqual(self.asked(1), [])

    def asked(self, offset: int) -> list[tuple[bytes, int]]:
        """Return the keys and offsets of the rows as of an offset."""
        tables = Tables(sharedSession().newSession(), None, lake=self.lake, asOf=offset)
        found = tables.ask("select key, `offset` from state").collect()
        return sorted((bytes(row[0]), row[1]) for row in found)

    def test_asOfNeedsALake(self) -> None:
        parser = ArgumentParser()
        SQL.prepare(parser)
        chosen = parser.parse_args(["select 1", "--as-of", "5", "--journal", self.written.folder])
        self.assertRaises(OptionRefused, SQL.run, chosen, FakeRun())
