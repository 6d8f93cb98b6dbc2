"""Kills a broker and the worker of a framework at random moments under load, and compares which tasks ran.

A loop publishes tasks, a part of them for a later time, and kills the broker, the worker, or both with SIGKILL; the
worker acknowledges a task after it ran. Then:

- each task whose publication was confirmed ran to its end;
- none began twice unless a worker or the broker was killed in between;
- none began before its time;
- the worker went on after each kill of the broker, without being started again.
"""

import argparse
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.broker_process import BrokerProcess

#: The environment's variable with the folder in which tasks write what they do.
FOLDER = "FLEXIMQ_LOOP_FOLDER"
_ROOT = Path(__file__).parents[2]
#: Seconds in which the worker must run some tasks.
PATIENCE = 120.0
#: Tasks that run until the next kill, at least and at most.
LIVES = 5, 60
#: Most seconds for which a task is published for later.
DELAY = 1.5

#: Returns the command of a worker for the port of a broker.
Command = Callable[[int], Sequence[str]]
#: Publishes a task with this number and delay in seconds to the broker of a port; raises an error if it is not
#: confirmed.
Publish = Callable[[int, int, float], None]


def record(number: int) -> None:
    """Run a task: write its beginning and its end with their times, some milliseconds between them."""
    with (Path(os.environ[FOLDER]) / f"ran.{os.getpid()}").open("a") as file:
        file.write(f"begin {number} {time.monotonic()} {time.time()}\n")
        file.flush()
        time.sleep(random.random() / 50)
        file.write(f"end {number} {time.monotonic()} {time.time()}\n")


class KillLoop:
    """One run of the loop, with a broker on a journal in a folder; ``faults`` are sentences."""

    def __init__(self, folder: str, command: Command, publish: Publish) -> None:
        self.folder = Path(folder).absolute()
        self.folder.mkdir(exist_ok=True)
        self._command = command
        self._publish = publish
        self._broker = self._started("tcp:0:interface=127.0.0.1")
        self._port = self._broker.port()
        self._worker = self._startedWorker()
        self._due: dict[int, float] = {}
        self.confirmed: set[int] = set()
        #: When each kill began, and when there was a broker again. A task that begins in between was delivered before.
        self.kills: list[tuple[float, float]] = []
        self.repeated = 0
        self.faults: list[str] = []
        self._goesOn = True

    def _started(self, listen: str) -> BrokerProcess:
        return BrokerProcess("--listen", listen, "--journal", str(self.folder / "journal")).__enter__()

    def _startedWorker(self) -> "subprocess.Popen[bytes]":
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, FOLDER: str(self.folder)}
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(
                self._command(self._port), stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def run(self, kills: int) -> None:
        """Kill so often, and check."""
        publisher = threading.Thread(target=self._produce)
        publisher.start()
        try:
            for number in range(kills):
                if not self._await(self._ended() + random.randint(*LIVES)):
                    self.faults.append(f"after kill {number} the worker ran no tasks")
                    break
                self._kill(random.choice(("broker", "worker", "both")))
        finally:
            self._goesOn = False
            publisher.join()
        missing = self._missing()
        deadline = time.monotonic() + PATIENCE
        while missing and time.monotonic() < deadline:
            time.sleep(0.1)
            missing = self._missing()
        self.faults += [f"task {number} was confirmed, and did not run" for number in sorted(missing)]
        self._check()

    def stop(self) -> None:
        """End all processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._worker.pid, signal.SIGKILL)
        self._worker.wait()
        self._broker.stop(signal.SIGKILL)

    def _produce(self) -> None:
        number = 0
        while self._goesOn:
            number += 1
            delay = random.random() * DELAY if number % 4 == 0 else 0.0
            self._due[number] = time.time() + delay
            try:
                self._publish(self._port, number, delay)
            except Exception:  # the broker was killed; whether it has the task is not known
                time.sleep(0.05)
            else:
                self.confirmed.add(number)
                time.sleep(0.002)

    def _kill(self, what: str) -> None:
        began = time.monotonic()
        if what != "broker":
            os.killpg(self._worker.pid, signal.SIGKILL)
            self._worker.wait()
        if what != "worker":
            self._broker.stop(signal.SIGKILL)
            self._broker = self._started(f"tcp:{self._port}:interface=127.0.0.1")
        self.kills.append((began, time.monotonic()))
        if what != "broker":
            self._worker = self._startedWorker()

    def _await(self, ended: int) -> bool:
        deadline = time.monotonic() + PATIENCE
        while self._ended() < ended:
            if time.monotonic() > deadline or self._worker.poll() is not None:
                return False
            time.sleep(0.05)
        return True

    def _lines(self, kind: str) -> list[tuple[int, float, float]]:
        """Return number, monotonic time and system time of all beginnings or ends."""
        words = [line.split() for path in self.folder.glob("ran.*") for line in path.read_text().splitlines()]
        return [(int(each[1]), float(each[2]), float(each[3])) for each in words if len(each) == 4 and each[0] == kind]

    def _ended(self) -> int:
        return len(self._lines("end"))

    def _missing(self) -> set[int]:
        return self.confirmed - {number for number, *_ in self._lines("end")}

    def _check(self) -> None:
        begun: dict[int, list[float]] = defaultdict(list)
        for number, at, wall in self._lines("begin"):
            begun[number].append(at)
            if wall < self._due[number] - 0.002:
                self.faults.append(f"task {number} began {self._due[number] - wall:.3f} s before its time")
        for number, times in begun.items():
            times.sort()
            for one, two in zip(times, times[1:], strict=False):
                self.repeated += 1
                if not any(one <= ended and began <= two for began, ended in self.kills):
                    self.faults.append(f"task {number} began twice, and nothing was killed in between")

    def report(self) -> str:
        """Return what happened as a sentence."""
        faults = "; ".join(self.faults[:10]) or "none"
        ran = f"{len(self.confirmed)} tasks confirmed, {self.repeated} repeated"
        return f"{len(self.kills)} kills, {ran}; faults: {faults}"


def main(description: str | None, command: Command, publish: Publish) -> int:
    """Run a loop as the command line says, and print the report; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kills", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        loop = KillLoop(folder, command, publish)
        try:
            loop.run(arguments.kills)
        finally:
            loop.stop()
    print(loop.report())
    return 1 if loop.faults else 0
