"""Crashes the disk of a broker with values: what was confirmed must be there after the next start.

A load puts, adds to and deletes values of a few keys at random, each a few at a time. It promises for each confirmed
change that its key has this state or that of a later change. Each disk that a power loss can leave is opened by another
broker. A sum that was confirmed is the sum of all that was added until then.

``python -m tests.broker.key_values.crash_simulation --seeds 1000`` prints how many points were tried.
"""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgpack

from fleximq.errors import BrokerError
from tests.broker.parts import ask
from tests.broker.power_losses import Broken, main, tryPoints
from tests.broker.schedules.durable import Life
from tests.journal.recorder import WAYS, Recorder, State, crashes

#: Longer than a sector, so that a power loss may tear records off their commit.
FILLING = bytes(700)
KEYS = ("a", "b", "c")
#: Keys of numbers.
SUMS = ("m", "n")


class Load:
    """One random load; ``states`` has by key the states in order, each with the number of changes of the disk after
    which it is confirmed, None: never.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = Recorder()
        self.life = Life(self.disk, segmentBytes=1 << 14)
        self.states: dict[str, list[list[Any]]] = {key: [[b"", 0]] for key in (*KEYS, *SUMS)}
        self._made = 0
        acts: tuple[Callable[[], None], ...] = (
            self._put, self._put, self._delete, self._add, self._add, self._step, self._step, self._roll,
        )  # fmt: skip
        for _ in range(self.random.randint(20, 60)):
            self.random.choice(acts)()
        if self.life.errors:
            raise self.life.errors[0]

    def _ask(self, path: str, key: str, state: bytes, **arguments: Any) -> None:
        row: list[Any] = [state, None]
        self.states[key].append(row)

        def answered(answer: Any) -> None:
            if isinstance(answer, BrokerError):
                raise Broken(f"{path} of {key} was answered with {answer!r}")
            if path == "add" and msgpack.packb(answer["sum"]) != state:
                raise Broken(f"the sum {answer['sum']} was not expected")
            row[1] = len(self.disk.changes)

        ask(self.life.broker, self.life.me, f"/value/{path}", {"key": key, **arguments}, answered)

    def _put(self) -> None:
        self._made += 1
        value = b"%d " % self._made + FILLING
        self._ask("put", self.random.choice(KEYS), value, value=value)

    def _delete(self) -> None:
        self._ask("delete", self.random.choice(KEYS), b"")

    def _add(self) -> None:
        key = self.random.choice(SUMS)
        last = self.states[key][-1][0]
        number = self.random.randint(1, 9)
        self._ask("add", key, msgpack.packb((msgpack.unpackb(last) if last else 0) + number), number=number)

    def _step(self) -> None:
        self.life.step(self.random.random() < 0.5)

    def _roll(self) -> None:
        self.life.roll(self.random.random() < 0.5)


def explore(seed: int, points: Counter[str], most: int) -> None:
    """Let the power go at some moments of one load, at most about ``most``; raises Broken."""
    try:
        load = Load(seed)
    except Broken as error:
        raise Broken(f"seed {seed}: {error}") from error
    random = Random(seed)
    tryPoints(seed, crashes(load.disk, random, WAYS), points, most, random, partial(_check, load))


def _check(load: Load, done: int, state: State) -> None:
    """Start a broker on this disk, and compare."""
    life = Life(Recorder(state))
    answers: list[Any] = []
    ask(life.broker, life.me, "/value/get", {"keys": list(load.states)}, answers.append)
    [answer] = answers
    for key, states in load.states.items():
        found = answer["values"].get(key, (0, b""))[1]
        confirmed = [place for place, (_, when) in enumerate(states) if when is not None and when <= done]
        if found not in [each for each, _ in states[confirmed[-1] :]]:
            raise Broken(f"{key!r} is {found[:10]!r}, but {states[confirmed[-1]][0][:10]!r} was confirmed")
    life.stop()


if __name__ == "__main__":
    sys.exit(main(__doc__, explore))
