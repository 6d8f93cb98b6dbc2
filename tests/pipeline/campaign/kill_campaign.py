"""Publishes, ingests and maintains a lake; kills all of it at random; then looks whether every row is there once.

::

    python -m tests.pipeline.campaign.kill_campaign --format delta --store --kills 50

The broker, the ingest, the store and the jobs ``compact``, ``expire``, ``redecode`` and ``backfill`` are killed, a
second ingest of the same tables is started, and some requests of the store fail or are slow. At the end the rows of
each engine are compared with the journal, and the journal with what was confirmed to the publisher.
"""

import argparse
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from fleximq import reader
from tests.broker_process import BrokerProcess
from tests.pipeline.campaign.changes import PATIENCE, SMALL, KilledJob
from tests.pipeline.campaign.engines import Row, rowsBy
from tests.pipeline.campaign.lake_place import FolderPlace, StorePlace
from tests.pipeline.end_to_end import LOOK, Ingest
from tests.pipeline.publishers import FlexiPublisher
from tests.pipeline.written import TIME, Written

#: What is killed, as often as it is named here; the ingest as in :data:`tests.pipeline.end_to_end.KILLS`.
VICTIMS = (
    "broker",
    "store",
    "store",
    "second",
    "driver",
    "driver and java",
    "driver, java and workers",
)
#: The topic of which old days expire, and the messages that are old.
EXPIRES, OLD, PER_DAY = "t1.x", 1_500, 300
#: How often the first ingest may end by itself.
PATIENT = 5
#: Seconds for the publisher to end.
GRACE = 20.0
FORMATS = ("parquet", "delta", "iceberg")


class NumbersPublisher(FlexiPublisher):
    """Publishes maps to three topics; every third ``a`` is no INT."""

    sender = "numbers"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.topics = [f"t{place}.x" for place in range(3)]

    def kept(self, number: int) -> bytes:
        return payloadOf(number)


def payloadOf(number: int) -> bytes:
    """Return the payload of a message."""
    return msgspec.msgpack.encode({"a": number if number % 3 else number + 2**40, "b": number})


class KillCampaign:
    """``kills`` counts what was killed, ``faults`` are sentences, ``restarts`` the ingests that ended by themselves."""

    #: Python's arguments for an ingest, and whether Spark reads at the end.
    program: tuple[str, ...] = ("-c", SMALL)
    hasSpark = True

    def __init__(
        self, folder: Path, place: FolderPlace, tableFormat: str, kills: int, chance: random.Random, seconds: float
    ) -> None:
        self.faults: list[str] = []
        self.kills: Counter[str] = Counter()
        self.restarts: Counter[str] = Counter()
        self.rows: dict[str, int] = {}
        self.engines: set[str] = set()
        self._began, self._seconds = time.monotonic(), seconds
        self._folder, self._place, self._format, self._wanted, self._chance = folder, place, tableFormat, kills, chance
        self._address = ("127.0.0.1", 0)
        self._broker: BrokerProcess | None = None
        self._ingest: Ingest | None = None
        self._jobs: list[KilledJob] = []
        self._publisher = NumbersPublisher(lambda: self._address, 20, random.Random(chance.random()))

    @property
    def _journal(self) -> str:
        return str(self._folder / "journal")

    def _tell(self, words: str) -> None:
        """Print what happens, if the run is to be followed."""
        if os.environ.get("FLEXIMQ_FOLLOW"):
            print(f"{time.monotonic() - self._began:7.1f} {words}", file=sys.stderr, flush=True)

    def run(self) -> None:
        """Do all of it."""
        with ExitStack() as held:
            held.enter_context(self._place)
            held.callback(self._endAll)
            self._writeOld()
            self._startBroker()
            # Delta Lake widens no column, so redecode only adds one there.
            schema = "a BIGINT" if self._format == "delta" else "a INT"
            while (first := self._startIngest("--once", "--schema", schema, tables=("early",))).ended(PATIENCE):
                # Its requests may fail, and on a busy machine Spark's workers may be too slow for Spark.
                self.restarts[f"the first one: {first.said.read_text()[-200:]}"] += 1
                if self.restarts.total() > PATIENT:
                    raise AssertionError(first.said.read_text()[-3000:])
            self._publisher.start()
            self._tell("the first ingest has ended")
            self._ingest = self._startIngest()
            self._startJobs()
            self._killAll()
            self._finish()
            self._look()

    def _writeOld(self) -> None:
        """Write messages of days long ago, which the broker finds in its journal."""
        written = Written(self._journal, segmentBytes=100_000)
        for first in range(1, OLD, 50):
            written.time = TIME + first // PER_DAY * 86_400_000_000
            topic = f"t{first // 50 % 3}.x"
            written.kept(topic, *map(payloadOf, range(-first - 49, -first + 1)))
        written.close()

    def _startBroker(self) -> None:
        listen = ("--listen", f"tcp:{self._address[1]}:interface=127.0.0.1")
        journal = ("--journal", self._journal, "--durable", "#", "--journal-segment", "1MiB")
        self._broker = BrokerProcess(*listen, *journal)
        self._address = self._broker.__enter__().address

    def _startIngest(self, *words: str, tables: tuple[str, ...] = ("early", "late")) -> Ingest:
        named = [word for name in tables for word in ("--table", f"{name}=#:messagepack")]
        numbers = ("--integers", "a", "--integers", "b")
        options = ("--journal", self._journal, "--format", self._format, *numbers, *named)
        more = words or ("--max-offsets", "5000", "--trigger", "200ms", "--compact-every", "2s")
        return Ingest(self._folder, *options, *more, program=self.program, lake=self._place.lake)

    def _startJobs(self) -> None:
        lake = ("--lake", self._place.lake)
        jobs = (
            ("backfill", "late", "--journal", self._journal, "--from", "early"),
            ("redecode", "--table", "early", "--schema", "a BIGINT, b BIGINT"),
            ("expire", "--table", "early", "--keep", f"{EXPIRES}=1d"),
            ("compact", "--many", "3"),
        )
        variables = {**os.environ, **self._place.environment}
        for job in jobs:
            self._jobs.append(KilledJob((*job, *lake), variables, self._folder, self._chance.random()))
        for thread in self._jobs:
            thread.start()

    def _endAll(self) -> None:
        self._publisher.ending.set()
        for job in self._jobs:
            job.ending.set()
        for job in self._jobs:
            job.join(PATIENCE)
        if self._ingest is not None:
            self._ingest.kill("all")
        if self._broker is not None:
            self._broker.stop(signal.SIGKILL)

    # Killing

    def _killAll(self) -> None:
        while self.kills.total() < self._wanted and time.monotonic() - self._began < self._seconds:
            who = self._chance.choice(VICTIMS)
            self._tell(f"next: {who}")
            self._untilIngested(self._chance.randrange(3))
            self._tell(f"batch {self._batch()}")
            time.sleep(self._chance.uniform(0, 1.0))
            if who == "broker":
                assert self._broker is not None
                self._broker.stop(signal.SIGKILL)
                self._startBroker()
            elif who == "store":
                if not self._place.kill():
                    continue
            elif who == "second":
                self._startSecond()
            else:
                assert self._ingest is not None
                self._ingest.kill(who)
                self._ingest = self._startIngest()
            self.kills[who] += 1

    def _untilIngested(self, batches: int) -> None:
        """Wait until the ingest has started, and has made so many batches; start one that has ended again."""
        deadline = time.monotonic() + PATIENCE
        before = self._batch()
        assert self._ingest is not None
        while time.monotonic() < deadline:
            if self._publisher.faults:
                raise AssertionError(self._publisher.faults[0])
            if self._ingest.code() is not None:
                said = self._ingest.said.read_text().strip().splitlines()
                why = said[-1][:300] if said else "it said nothing"
                self.restarts[why] += 1
                self._tell(f"the ingest ended: {why}")
                self._ingest = self._startIngest()
            if self._ingest.hasStarted() and self._batch() >= before + batches:
                return
            time.sleep(LOOK * 4)
        raise AssertionError(f"no batch came\n{self._ingest.said.read_text()[-3000:]}")

    def _batch(self) -> int:
        from fleximq.pipeline.errors import LakeRefused
        from fleximq.pipeline.lake.table.ledger import readLedger

        try:
            return readLedger(f"{self._place.lake}/early").batch
        except (LakeRefused, OSError):
            return -1

    def _startSecond(self) -> None:
        """Start another ingest of the same tables; kill it a while after its start, unless it has ended by itself."""
        second = self._startIngest("--trigger", "200ms", "--checkpoint", str(self._folder / "second"))
        deadline = time.monotonic() + PATIENCE
        while second.code() is None and not second.hasStarted() and time.monotonic() < deadline:
            time.sleep(LOOK)
        deadline = time.monotonic() + self._chance.uniform(0, 15)
        while second.code() is None and time.monotonic() < deadline:
            time.sleep(LOOK)
        if second.code() is None:
            second.kill("all")

    # At the end

    def _finish(self) -> None:
        """Let nothing fail any more, and all jobs end."""
        self._publisher.ending.set()
        # It may wait for an answer of a broker that was killed.
        self._publisher.join(GRACE)
        for job in self._jobs:
            job.ending.set()
        for job in self._jobs:
            job.join(PATIENCE)
        self._place.calm()
        assert self._ingest is not None and self._broker is not None
        self._ingest.kill("all")
        self._broker.stop()
        self._ingest = self._startIngest("--once")
        self._ingest.wait(PATIENCE)
        self._tell("the last ingest has ended")
        for job in self._jobs:
            if code := job.finish():
                self.faults.append(f"{job.words[0]} ended with {code}: {job.said.read_text()[-500:]}")
            self.kills[job.words[0]] = job.kills
            self._tell(f"{job.words[0]} has ended")

    def _look(self) -> None:
        """Compare the tables with the journal, and the journal with what was confirmed."""
        from fleximq.pipeline.lake import audit

        truth = list(self._truth())
        confirmed = {number for each in self._publisher.confirmed for number in each}
        found = Counter(row[5] for row in truth if row[5] > 0)
        lost, twice = confirmed - found.keys(), [number for number, times in found.items() if times > 1]
        if lost or twice:
            self.faults.append(f"the journal lacks {len(lost)} confirmed messages, and has {len(twice)} twice")
        for name in ("early", "late"):
            table = f"{self._place.lake}/{name}"
            wanted = [row for row in truth if name == "late" or row[2] != EXPIRES or row[5] > 0]
            if name == "late":
                # Its schema was never mended, so some are dead letters.
                wanted = [row[:4] for row in wanted]
            self.rows[name] = len(wanted)
            self.faults += [f"{name}: {sentence}" for sentence in audit(table)]
            for engine, rows in rowsBy(table, self._format, len(wanted[0]) if wanted else 6, self.hasSpark):
                self.engines.add(engine)
                self._compare(f"{name} by {engine}", rows, wanted)

    def _truth(self) -> "list[Row]":
        columns = ["journal", "offset", "topic", "value"]
        table = reader.read(self._journal, columns=columns).read_all()
        decoded = [msgspec.msgpack.decode(value) for value in table["value"].to_pylist()]
        rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
        return [(*row, value["a"], value["b"]) for row, value in zip(rows, decoded, strict=True)]

    def _compare(self, what: str, rows: "list[Row]", wanted: "list[Row]") -> None:
        if rows == wanted:
            return
        have, want = Counter(rows), Counter(wanted)
        lost, more = want - have, have - want
        twice = sum(times - 1 for times in Counter(row[:2] for row in rows).values())
        self.faults.append(
            f"{what}: {lost.total()} rows are missing, {more.total()} are wrong, {twice} offsets are there again; "
            f"the first: {next(iter(lost), None)} {next(iter(more), None)}"
        )


class SmallCampaign(KillCampaign):
    """The same with an ingest without Spark, which can be killed much more often."""

    program = ("-m", "tests.pipeline.campaign.small_ingest")
    hasSpark = False


def report(run: KillCampaign, place: FolderPlace) -> str:
    """Return what a run has shown."""

    def told(counts: "Counter[str]") -> str:
        return ", ".join(f"{name} {number}" for name, number in sorted(counts.items())) or "none"

    lines = [
        f"{run.kills.total()} kills: {told(run.kills)}",
        f"requests that failed or were slow: {told(place.faults)}",
        f"rows: {run.rows}, read by {', '.join(sorted(run.engines))}",
        f"ingests that ended by themselves: {run.restarts.total()}",
        *(f"  {number} x {words}" for words, number in run.restarts.most_common(8)),
        f"{len(run.faults)} faults",
        *run.faults[:20],
    ]
    return "\n".join(lines)


def campaign(
    tableFormat: str,
    kills: int,
    seed: int,
    isStore: bool,
    isSmall: bool = False,
    share: float = 0.01,
    seconds: float = math.inf,
) -> tuple[KillCampaign, str]:
    """Run a campaign in a temporary folder; return it and its report."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fleximq-kills-") as name:
        folder = Path(name)
        place = StorePlace(folder, random.Random(seed), share) if isStore else FolderPlace(folder)
        run = (SmallCampaign if isSmall else KillCampaign)(folder, place, tableFormat, kills, chance, seconds)
        run.run()
        return run, report(run, place)


def main() -> int:
    """Run as the command line says, and print the report; 1 if anything is lost or wrong."""
    parser = argparse.ArgumentParser(description="Kill all that feeds and maintains a lake, and look at its rows.")
    parser.add_argument("--format", choices=FORMATS, default="parquet")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--store", action="store_true", help="a lake on an object store")
    parser.add_argument("--small", action="store_true", help="an ingest without Spark")
    parser.add_argument("--share", type=float, default=0.01, help="how many requests of the store fail, and are slow")
    words = "seconds after which nothing more is killed, for a busy machine"
    parser.add_argument("--seconds", type=float, default=math.inf, help=words)
    arguments = parser.parse_args()
    began = time.monotonic()
    where = arguments.store, arguments.small, arguments.share, arguments.seconds
    run, said = campaign(arguments.format, arguments.kills, arguments.seed, *where)
    print(f"{arguments.format}, seed {arguments.seed}, {time.monotonic() - began:.0f} s\n{said}")
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
