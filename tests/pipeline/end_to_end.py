"""Publishes, ingests, and kills brokers and drivers at random moments; then looks whether the lake is right.

::

    python -m tests.pipeline.end_to_end --messages 1000000

prints the report that docs/guides/pipeline-lake.rst shows; with ``--url`` the ingest asks the broker. ``twistd``, four
publishers and ``fleximq-pipeline ingest`` run as they would anywhere, and the lake's small files are joined meanwhile.
At the end a last ``ingest --once`` brings what is left, and plain Spark reads what a lake has.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from fleximq.pipeline import lake
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.files.journal_files import JournalFiles
from fleximq.pipeline.lake.compaction import compact
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_log import CompactionGoal
from tests.broker_process import BrokerProcess
from tests.pipeline.publishers import PUBLISHERS, Publisher
from tests.pipeline.session import sharedSession

ROOT = Path(__file__).parents[2]
#: Seconds that anything may take; they cost nothing while all goes well.
PATIENCE = 300.0
#: Who is killed, each once, in an order by chance: a broker; of an ingest its Python alone, which its Java notices;
#: with its Java, which Spark's workers notice; or all that belong to it.
KILLS = ("broker", "broker", "driver", "driver and java", "driver, java and workers")
#: Seconds between two looks, and between two compactions.
LOOK, AGAIN = 0.05, 2.0
#: The bursts of a run; fewer are larger.
_BURSTS = 1500


class Ingest:
    """``fleximq-pipeline ingest`` as a process, in a session of its own, so that all that belong to it can be found;
    ``program``: Python's arguments.
    """

    def __init__(
        self,
        folder: Path,
        *words: str,
        program: tuple[str, ...] = ("-m", "fleximq.pipeline"),
        lake: str | None = None,
    ) -> None:
        self.said = folder / f"said-{time.monotonic_ns()}"
        command = ["ingest", "--lake", lake or str(folder / "lake"), *words]
        own = ("--no-cache", "--master", "local[2]", "--conf", "spark.driver.memory=1g")
        with self.said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, *program, *command, *own],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def code(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.poll()

    def hasStarted(self) -> bool:
        """Tell whether its query was ever started."""
        return "ingesting into" in self.said.read_text()

    def running(self) -> bool:
        """Tell whether it runs.

        :raises AssertionError: it has ended by itself, with an error.
        """
        code = self.code()
        if code not in (None, 0):
            raise AssertionError(f"the ingest ended with {code}\n{self.said.read_text()[-3000:]}")
        return code is None

    def isIngesting(self) -> bool:
        """Tell whether its query was started."""
        return self.running() and self.hasStarted()

    def stop(self) -> None:
        """Ask it to end, and see that it does so in order."""
        self._process.send_signal(signal.SIGTERM)
        self.wait()

    def wait(self, patience: float = PATIENCE) -> None:
        """Wait until it has ended, for so many seconds.

        :raises AssertionError: it does not, or not in order.
        """
        self.ended(patience)
        self.running()

    def ended(self, patience: float) -> int:
        """Wait until it has ended, for so many seconds, and return the exit code; raises AssertionError."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the ingest did not end\n{self.said.read_text()[-3000:]}") from None

    def kill(self, who: str) -> None:
        """Kill it, and as many of those that belong to it as one of :data:`KILLS` says."""
        pid = self._process.pid
        with suppress(ProcessLookupError):
            if who == "driver":
                os.kill(pid, signal.SIGKILL)
            else:
                os.killpg(pid, signal.SIGKILL)
        if who not in ("driver", "driver and java"):
            for each in sessionOf(pid):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        self._process.wait(PATIENCE)


def sessionOf(leader: int) -> list[int]:
    """Return the ids of the processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(path.parent.name))
    return found


class Outcome(NamedTuple):
    """What became of the messages of one publisher; ``unconfirmed`` are in the lake, though it was not told so."""

    sent: int
    confirmed: int
    lost: int
    twice: int
    unconfirmed: int


class EndToEnd:
    """A folder and what happens in it; what is wrong stands in ``faults``.

    :param messages: how many are published at least.
    :param byUrl: whether the ingest asks the broker, and does not read the journal's folder.
    """

    def __init__(self, folder: str, messages: int, seed: int, byUrl: bool = False) -> None:
        self.faults: list[str] = []
        self.seconds: dict[str, float] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.joined = self.rows = 0
        self._folder = Path(folder)
        self._table = str(self._folder / "lake" / "messages")
        self._messages = messages
        self._byUrl = byUrl
        self._chance = random.Random(seed)
        self._ending = threading.Event()
        self._broker: BrokerProcess | None = None
        self._address = ("127.0.0.1", 0)
        self._publishers: list[Publisher] = []
        self._ingest: Ingest | None = None

    def run(self) -> None:
        """Do all of it."""
        with ExitStack() as held:
            held.callback(self._endAll)
            self._startBroker()
            most = max(2, self._messages // _BURSTS)
            for kind in PUBLISHERS:
                seed = self._chance.random()
                self._publishers.append(kind(lambda: self._address, most, random.Random(seed)))
            self._startIngest()
            compactor = threading.Thread(target=self._compact, daemon=True)
            for thread in (compactor, *self._publishers):
                thread.start()
            self._timed("publishing and killing", self._killAll)
            self._timed("the last ingest", self._finish)
            self._ending.set()
            compactor.join(PATIENCE)
        self._timed("looking", self._look)

    def _timed(self, what: str, call: Callable[[], None]) -> None:
        began = time.monotonic()
        call()
        self.seconds[what] = time.monotonic() - began

    def _startBroker(self) -> None:
        listen = ("--listen", f"tcp:{self._address[1]}:interface=127.0.0.1")
        journal = ("--journal", str(self._folder / "journal"), "--durable", "#", "--journal-segment", "4MiB")
        self._broker = BrokerProcess(*listen, *journal)
        self._address = self._broker.__enter__().address

    def _startIngest(self, *words: str) -> None:
        url = f"tcp://127.0.0.1:{self._address[1]}"
        source = ("--url", url) if self._byUrl else ("--journal", str(self._folder / "journal"))
        self._ingest = Ingest(self._folder, *source, *(words or ("--trigger", "200ms")))

    def _endAll(self) -> None:
        """End everything that still runs."""
        self._ending.set()
        for publisher in self._publishers:
            publisher.ending.set()
        if self._ingest is not None:
            self._ingest.kill("all")
        if self._broker is not None:
            self._broker.stop(signal.SIGKILL)

    # While it runs

    def _confirmed(self) -> int:
        return sum(publisher.total for publisher in self._publishers)

    def _batch(self) -> int:
        try:
            return readLedger(self._table).batch
        except LakeRefused:
            return -1

    def _until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until something holds, while the ingest runs."""
        assert self._ingest is not None
        deadline = time.monotonic() + PATIENCE
        while not holds():
            faults = [fault for publisher in self._publishers for fault in publisher.faults]
            if faults or not self._ingest.running() or time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come {faults[:3]}\n{self._ingest.said.read_text()[-3000:]}")
            time.sleep(LOOK)

    def _killAll(self) -> None:
        """Kill as :data:`KILLS` says, start again what was killed, and wait until all are published."""
        kills = list(KILLS)
        self._chance.shuffle(kills)
        for who in kills:
            if who == "broker":
                self._killBroker()
            else:
                self._killIngest(who)
        self._until(lambda: self._confirmed() >= self._messages, "the last message")
        for publisher in self._publishers:
            publisher.ending.set()
            publisher.join(PATIENCE)
            if publisher.is_alive():
                self.faults.append(f"{publisher.sender} did not end")
            self.faults += publisher.faults

    def _killBroker(self) -> None:
        assert self._broker is not None
        wanted = self._confirmed() + self._chance.randrange(max(1, self._messages // 10))
        self._until(lambda: self._confirmed() > wanted, "more messages")
        time.sleep(self._chance.uniform(0, 0.3))
        self._broker.stop(signal.SIGKILL)
        self._startBroker()

    def _killIngest(self, who: str) -> None:
        """Kill it after some batches, or before the first."""
        assert self._ingest is not None
        before = self._batch()
        self._until(self._ingest.isIngesting, "the start of the query")
        wanted = before + self._chance.randrange(4)
        self._until(lambda: self._batch() >= wanted, "a batch")
        time.sleep(self._chance.uniform(0, 1.0))
        self._ingest.kill(who)
        self._startIngest()

    def _compact(self) -> None:
        """Join small files until the end."""
        while not self._ending.wait(AGAIN):
            if self._batch() < 0:
                continue
            try:
                self.joined += sum(done.before for done in compact(self._table, CompactionGoal(olderThan=0)))
            except Exception as error:
                self.faults.append(f"compact: {error!r}")
                return

    def _finish(self) -> None:
        """End the ingest, and the broker where it is not asked, and let another ingest bring what is left."""
        assert self._ingest is not None and self._broker is not None
        self._until(self._ingest.isIngesting, "the start of the query")
        self._ingest.stop()
        if not self._byUrl:
            self._broker.stop()
        self._startIngest("--once")
        self._ingest.wait()

    # At the end

    def _look(self) -> None:
        """Hold the lake against what was published."""
        self.faults += lake.audit(self._table)
        spark = sharedSession()
        table = spark.read.parquet(self._table)
        hashed = "unhex(sha2(concat(encode(topic, 'utf-8'), X'00', value), 256)) AS hash"
        found = table.orderBy("journal", "offset").selectExpr("journal", "offset", hashed).toArrow()
        self.rows = found.num_rows
        places = set(zip(found["journal"].to_pylist(), found["offset"].to_pylist(), strict=True))
        if len(places) != self.rows:
            self.faults.append(f"{self.rows} rows have {len(places)} offsets")
        self._holdAgainstJournal(places)
        counts: dict[bytes, int] = {}
        for digest in found["hash"].to_pylist():
            counts[digest] = counts.get(digest, 0) + 1
        for publisher in self._publishers:
            self.outcomes[publisher.sender] = outcomeOf(publisher, counts)
        if counts:
            self.faults.append(f"{len(counts)} rows are nobody's message")

    def _holdAgainstJournal(self, places: set[tuple[str, int]]) -> None:
        """The lake must have what the journal has, and nothing else."""
        journal = JournalFiles(str(self._folder / "journal"))
        covered = lake.ranges(self._table)
        if set(covered) != {journal.id}:
            self.faults.append(f"the lake has the journals {', '.join(covered)}, not {journal.id}")
            return
        kept, had = journal.bounds(), covered[journal.id]
        if (had.first, had.next, had.rows) != (kept.first, journal.end().offset, len(places)):
            self.faults.append(f"the lake has {had}, the journal {kept} up to before {journal.end().offset}")


def outcomeOf(publisher: Publisher, counts: dict[bytes, int]) -> Outcome:
    """Take a publisher's messages out of ``counts``, and return what became of them."""
    confirmed = {number for each in publisher.confirmed for number in each}
    lost = twice = unconfirmed = 0
    for number in range(1, publisher.sent + 1):
        count = counts.pop(publisher.digest(number), 0)
        lost += number in confirmed and not count
        twice += count > 1
        unconfirmed += number not in confirmed and count > 0
    return Outcome(publisher.sent, len(confirmed), lost, twice, unconfirmed)


def report(run: EndToEnd) -> str:
    """Return what a run has shown."""
    titles = ("", *(name for name in Outcome._fields))
    rows = [titles, *((name, *(f"{each:,}" for each in found)) for name, found in run.outcomes.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    times = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in run.seconds.items())
    head = f"{run.rows:,} rows, {run.joined} files joined, {len(KILLS)} kills; {times}; {len(run.faults)} faults"
    return "\n".join([head, *lines, *run.faults[:20]])


def isRight(run: EndToEnd) -> bool:
    """Tell whether nothing is wrong."""
    return not run.faults and not any(each.lost or each.twice for each in run.outcomes.values())


def main() -> int:
    """Run as the command line says, and print the report; 1 if anything is lost or wrong."""
    parser = argparse.ArgumentParser(description="Kill brokers and ingests, and look whether the lake is right.")
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--url", action="store_true", help="let the ingest ask the broker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleximq-end-") as folder:
        run = EndToEnd(folder, arguments.messages, arguments.seed, arguments.url)
        run.run()
    print(report(run))
    return 0 if isRight(run) else 1


if __name__ == "__main__":
    sys.exit(main())
