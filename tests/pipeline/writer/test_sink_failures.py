"""Rows are published once each while tasks fail and drivers and brokers are killed: ten times, as a seed says."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from tests.broker_process import BrokerProcess
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip

if not skip:
    from tests.pipeline.sink_driver import NO_JAVA

ROOT = Path(__file__).parents[3]
#: Seconds that anything may take; they cost nothing while all goes well.
PATIENCE = 300.0
#: What fails, and where: each once.
FAULTS = (
    *(("task", where) for where in ("task", "task", "staged", "staged")),
    *(("driver", where) for where in ("task", "commit", "committed")),
    *(("broker", where) for where in ("staged", "commit", "committed")),
)
#: Lines of a file, which make one batch.
EACH = 300
#: Another one is tried with this variable in the environment.
SEED = int(os.environ.get("FLEXIMQ_SINK_SEED", "7"))


@nightly
class TenFailuresTests(SynchronousTestCase):
    """A broker and a driver, both processes that can be killed."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-failures-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name in ("source", "faults"):
            (self.folder / name).mkdir()
        self.chance = random.Random(SEED)
        self.lines: list[str] = []
        self.again = 2
        self.files = 0
        self.began = int(time.time()) - 3600
        self.broker = self.startBroker(0)
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"
        self.driver = self.startDriver()

    def startBroker(self, port: int) -> BrokerProcess:
        """Start a broker on the test's journal."""
        listen = f"tcp:{port}:interface=127.0.0.1"
        broker = BrokerProcess("--listen", listen, "--journal", str(self.folder / "journal"), "--durable", "#")
        self.addCleanup(broker.stop, signal.SIGKILL)
        return broker.__enter__()

    def startDriver(self) -> subprocess.Popen[bytes]:
        """Start a driver in a group of its own, which goes on from its checkpoint."""
        with ExitStack() as stack:
            said = stack.enter_context((self.folder / "said").open("ab"))
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.sink_driver", str(self.folder), self.url],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self.addCleanup(self.endDriver, driver)
        return driver

    def endDriver(self, driver: subprocess.Popen[bytes]) -> None:
        """Kill a driver and its Java, if they are still there."""
        try:
            os.killpg(driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        driver.wait(PATIENCE)

    def addFile(self) -> None:
        """Add lines that nobody else has: their number and something random."""
        lines = [f"{len(self.lines) + n} {self.chance.randbytes(self.chance.randrange(60)).hex()}" for n in range(EACH)]
        self.lines += lines
        self.files += 1
        new = self.folder / "new"
        new.write_text("\n".join(lines))
        # Spark takes files in the order of their times.
        os.utime(new, (self.began + self.files,) * 2)
        new.rename(self.folder / "source" / f"{self.files:04}.txt")

    def waitFor(self, holds: Callable[[], object], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            ended = self.driver.poll()
            if ended == NO_JAVA:
                raise SkipTest("Spark needs Java 17, 21 or 25")
            if ended == 1 and self.again:
                # Faults that came one upon the other, so that one task failed too often.
                self.again -= 1
                self.driver = self.startDriver()
            elif time.monotonic() > deadline or ended not in (None, -signal.SIGKILL):
                self.fail(f"{what} did not come, the driver: {ended}\n{(self.folder / 'said').read_text()[-3000:]}")
            time.sleep(0.05)

    def happens(self, who: str, where: str) -> None:
        """Order a fault, add a batch or two in which it can happen, and set right what it has broken."""
        pid = {"task": "", "driver": f"-{self.driver.pid}", "broker": f"{self.broker.pid}"}[who]
        fault = self.folder / "faults" / f"{where}-{self.files}"
        fault.write_text(pid)
        for _ in range(self.chance.randint(1, 2)):
            self.addFile()
        self.waitFor(lambda: not fault.exists(), f"{who} failing at {where}")
        if who == "driver":
            self.assertEqual(self.driver.wait(PATIENCE), -signal.SIGKILL)
            self.driver = self.startDriver()
        elif who == "broker":
            port = self.broker.port()
            self.assertEqual(self.broker.wait(PATIENCE), -signal.SIGKILL)
            self.broker = self.startBroker(port)

    def count(self) -> int:
        """Return how many rows were published."""
        with connect(self.url) as client:
            topics = client.ask("/journal/bounds")["topics"]
        return sum(row["count"] for row in topics)

    def published(self) -> list[Any]:
        """Return all rows that were published, in their order."""
        number = self.count()
        with connect(self.url) as client, client.subscribe("rows", from_="first") as deliveries:
            found = [deliveries.next(PATIENCE) for _ in range(number)]
        return [delivery.value for delivery in found if delivery is not None]

    def test_tenFailuresPublishEveryRowOnceInOrder(self) -> None:
        self.addFile()
        self.waitFor(lambda: self.count() == len(self.lines), "the first batch")
        faults = list(FAULTS)
        self.chance.shuffle(faults)
        for who, where in faults:
            self.happens(who, where)
        self.waitFor(lambda: self.count() >= len(self.lines), "the last batch")
        self.endDriver(self.driver)
        found = self.published()
        self.assertEqual(_digest(found), _digest(self.lines), [line for line, n in Counter(found).items() if n > 1][:5])
        batches = [int(line.partition(" ")[0]) // EACH for line in found]
        self.assertEqual(batches, sorted(batches))
        self.assertEqual(list((self.folder / "faults").iterdir()), [])


def _digest(lines: list[str]) -> tuple[int, str]:
    """Return what lines have in them, whatever their order."""
    return len(lines), hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
