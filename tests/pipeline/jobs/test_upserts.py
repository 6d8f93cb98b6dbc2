"""``fleximq-pipeline ingest`` with tables of the latest rows, and ``sql --as-of``."""

import math
from argparse import ArgumentParser
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from threading import Thread
from time import monotonic, sleep
from typing import Any

from tests.pipeline.lake.upserts.state_case import StateCase, skip

if not skip:
    import msgpack
    import pyarrow as pa

    from fleximq.pipeline.errors import DeadLettersFound, LakeRefused, LeftBehind, OptionRefused
    from fleximq.pipeline.jobs.describe import DESCRIBE
    from fleximq.pipeline.jobs.ingest import INGEST
    from fleximq.pipeline.jobs.sql import SQL
    from fleximq.pipeline.lake import audit
    from fleximq.pipeline.lake.batch_commit import readBehind
    from fleximq.pipeline.lake.delta_log import DeltaLog
    from fleximq.pipeline.lake.storage.lake_files import FILES
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.table_spec import tableOf
    from fleximq.pipeline.lake.upserts.row_keys import keysIn
    from fleximq.pipeline.payloads import ddl
    from fleximq.pipeline.query.tables import Tables
    from fleximq.values.message import Content
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


def keyOf(dataType: Any, value: Any) -> bytes:
    """Return the message key that names the row of a value."""
    if pa.types.is_decimal(dataType):
        value = Decimal(value).quantize(Decimal(1).scaleb(-dataType.scale))
    made = pa.array([date.fromisoformat(value) if pa.types.is_date(dataType) else value], dataType)
    found: bytes = keysIn(made)[0].as_py()
    return found


class UpsertJobTests(JobCase):
    """Without Spark, where no other table is fed."""

    def test_onceBringsAllThatIsThereWithoutSpark(self) -> None:
        self.some(30)
        self.assertEqual(self.ingest("--once").said, ["30 records are in"])
        self.some(3)
        self.assertEqual(self.ingest("--once").said, ["3 records are in"])
        self.look()

    def test_storeThatRefusesIsNamed(self) -> None:
        """Its own words may have neither the lake nor the store."""
        self.patch(FILES, "names", self.refuse)
        self.lake = "s3://bucket/lake"
        error = self.assertRaises(LakeRefused, self.ingest, "--once")
        self.assertEqual(str(error), "the lake s3://bucket/lake cannot be read: forbidden")

    def refuse(self, path: str) -> list[str]:
        """Answer as a store does without the right credentials."""
        raise PermissionError("Forbidden")

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

    def test_keysOfEachTypeAreTheSameAsInTheTable(self) -> None:
        """Whatever the text of a value is, a row replaces the one of an equal value, and a tombstone removes it."""
        kinds: dict[str, tuple[str, list[Any]]] = {
            "d": ("DOUBLE", [0.0, -0.0, math.nan, math.inf, 1e22, 1e16, 1e7, 1e-7, 5e-324, 0.1, 1.0, 123456789.125]),
            "f": ("FLOAT", [0.0, -0.0, 0.1, 1e22, 1e10, 1e-7, 3.4e38, 16777216.0]),
            "m": ("DECIMAL(20,9)", ["0", "0.000000001", "1", "1.5", "-12345678901.123456789", "100"]),
            "t": ("TIMESTAMP", [datetime(2026, 1, 31, 12, 0, 0, each, UTC) for each in (0, 1, 120_000)]),
            "y": ("DATE", ["2026-01-31", "0001-01-01", "1582-10-10", "9999-12-31"]),
            "b": ("BOOLEAN", [True, False]),
            "n": ("BIGINT", [0, -1, 1 << 53, -(1 << 63), (1 << 63) - 1]),
            "i": ("TINYINT", [0, -128, 127]),
            "s": ("STRING", ["", " ", "\u00e4", "a\0b", "x" * 5000]),
            "x": ("BINARY", [b"", b"\0\xff", b"a"]),
        }
        values = {name: list(each) for name, (_, each) in kinds.items()}
        values["d"] += [self.chance.uniform(-1, 1) * 10.0 ** self.chance.randrange(-300, 300) for _ in range(40)]
        values["m"] += [f"{self.chance.randrange(-(10**19), 10**19)}e-9" for _ in range(20)]
        values["t"] += [
            datetime.fromtimestamp(self.chance.randrange(-(10**9), 10**10), UTC) + timedelta(microseconds=each)
            for each in range(20)
        ]
        columns = pa.schema(
            [pa.field(name, ddl.parsed(f"v {written}").field(0).type) for name, (written, _) in kinds.items()]
        )
        schema = ", ".join(f"{name} {written}" for name, (written, _) in kinds.items())
        common = {"topics": ["devices.#"], "decode": "messagepack", "schema": schema}
        for _ in range(3):
            for name in kinds:
                for value in values[name]:
                    payload = msgpack.packb({name: value}, datetime=True)
                    self.written.kept("devices.a", payload, content=Content.MESSAGEPACK)
                    if self.chance.random() < 0.3:
                        key = keyOf(columns.field(name).type, value)
                        self.change(key, b"")
        words = [tableOf("--table", {"name": f"by_{name}", "upsert": name, **common}) for name in kinds]
        words.append(tableOf("--table", {"name": "changes", **common}))
        run, parser = FakeRun(), ArgumentParser()
        INGEST.prepare(parser)
        chosen = parser.parse_args(
            ["--journal", self.written.folder, "--lake", self.lake, "--format", "delta", "--once"]
        )
        chosen.table = words
        INGEST.run(chosen, run)
        spark = sharedSession().newSession()
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        for name in kinds:
            self.table = f"{self.lake}/by_{name}"
            rows = self.rows()
            live = sorted(rows.filter(rows["reason"].is_null())["offset"].to_pylist())
            self.assertGreater(len(values[name]), 0)
            found = Tables(spark, None, lake=self.lake, asOf=self.written.next).ask(f"select `offset` from by_{name}")
            self.assertEqual(sorted(row[0] for row in found.collect()), live, name)
            self.assertEqual([each.name for each in spark.catalog.listTables()], [])

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
