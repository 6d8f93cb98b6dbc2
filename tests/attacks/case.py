"""Tests in which a broker is attacked while a well-behaved client is served beside."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import FlexiClient, Stream
from tests.conversations.test_slow_consumers import MEBIBYTE, forgetPeak, status

ROOT = Path(__file__).parents[2]
#: How long an attack lasts, in seconds.
SECONDS = 1.5 if os.environ.get("CI") else 0.7
#: Seconds before an attack in which nothing happens.
CALM = 1.0
#: What the broker's memory may grow by, in bytes, whatever the attack.
BUDGET = 32 * MEBIBYTE
#: The well-behaved client's median may become so many times as long, and so many seconds are let pass: the machine is
#: shared, with the attackers too. ``benchmarks/under_attack.py`` is strict about it.
FACTOR, SLACK = 5.0, 0.010
#: An attack is looked at so many times before it counts as failed.
TRIES = 3
#: Seconds between two messages of the well-behaved client.
PAUSE = 0.003


class Outcome(NamedTuple):
    """Medians of the well-behaved client in seconds, how much the broker grew in bytes, how often it was attacked."""

    quiet: float
    attacked: float
    grown: int
    attacks: int

    def __str__(self) -> str:
        return (
            f"{self.attacks:,} times, median {self.quiet * 1000:.2f} ms -> {self.attacked * 1000:.2f} ms, "
            f"memory +{self.grown / MEBIBYTE:.1f} MiB"
        )


class WellBehaved:
    """Publishes now and then, and waits for its own message; its medians are those of one round."""

    def __init__(self, address: tuple[str, int], header: object = None) -> None:
        self._client = FlexiClient(Stream(address)).join(header)
        self._client.tell("SUB", {"topic": "own"})
        self._client.barrier()

    def median(self, seconds: float) -> float:
        """Talk for so long, and return the median of a round."""
        rounds: list[float] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.perf_counter()
            self._client.publish("own", "x")
            if self._client.hear().value != "x":
                raise AssertionError("something else came")
            rounds.append(time.perf_counter() - began)
            time.sleep(PAUSE)
        return statistics.median(rounds)

    def close(self) -> None:
        """Go."""
        self._client.close()


def attacked(broker: BrokerProcess, port: int, good: WellBehaved, names: Sequence[str], seconds: float) -> Outcome:
    """Attack a port in these ways at the same time, and see what becomes of the broker and of the client beside.

    The client is measured before, when what an earlier attack has left is over, and meanwhile.
    """
    time.sleep(CALM)
    before = good.median(seconds)
    resting = status(broker.pid, "VmRSS")
    forgetPeak(broker.pid)
    command = [sys.executable, "-m", "tests.attacks.attackers"]
    attackers = [
        subprocess.Popen([*command, name, str(port), str(seconds + 0.5)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    time.sleep(0.5)
    during = good.median(seconds)
    attacks = sum(int(each.communicate(timeout=300)[0]) for each in attackers)
    grown = status(broker.pid, "VmHWM") - resting
    return Outcome(before, during, grown, attacks)


class AttackCase(SynchronousTestCase):
    """A broker with these options; ``port`` is the listener that is attacked, ``header`` that of a good JOIN."""

    options: ClassVar[tuple[str, ...]] = ()
    header: ClassVar[object] = None
    port = 1

    def setUp(self) -> None:
        """Start the broker, and connect the well-behaved client by the first listener."""
        self.broker = BrokerProcess(*self.options, *self.more(), fresh=True).__enter__()
        self.addCleanup(self.broker.stop)
        self.good = WellBehaved(self.broker.address, self.header)
        self.addCleanup(self.good.close)

    def more(self) -> Sequence[str]:
        """Return options that are known only now."""
        return ()

    def attack(self, *names: str) -> Outcome:
        """Attack, and check that memory and the client beside are well; the first attack is for getting warm."""
        said = []
        for number in range(1 + TRIES):
            outcome = attacked(self.broker, self.broker.port(self.port), self.good, names, SECONDS)
            self.assertGreater(outcome.attacks, 0)
            said.append(str(outcome))
            good = outcome.attacked < FACTOR * outcome.quiet + SLACK
            if number and good and outcome.grown < BUDGET:
                print(f"\n{' + '.join(names)}: {said[-1]}")
                return outcome
        raise AssertionError(f"{' + '.join(names)}: {'; '.join(said)}")

    def counted(self, name: str) -> int:
        """Return how often the broker has counted something."""
        client = FlexiClient(Stream(self.broker.address)).join(self.header)
        try:
            return int(client.ask("/broker/about")["counts"].get(name, 0))
        finally:
            client.close()
