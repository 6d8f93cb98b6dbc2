"""Schedules on a disk that loses power at any moment: what a restart publishes, compared with what was promised.

A load schedules, cancels, lets time pass and commits, on a :class:`tests.journal.recorder.Recorder`. Each point of it
is one disk as a power loss may leave it. A new broker is started on it, and all time passes. Then each confirmed
message was published once, unless its cancelling was confirmed; no message was published twice, or before its time,
or after its cancelling was confirmed; and each due time of the recurring schedule was published at most once.

``python -m tests.broker.schedules.crash_simulation --seeds 1000`` prints how many points were tried.
"""

import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgpack

from fleximq.broker.schedules.repeat import Repeat
from fleximq.values.occurrences import CatchUp
from fleximq.values.records import QOS1
from tests.broker.power_losses import Broken, main, tryPoints
from tests.broker.schedules.durable import Life
from tests.journal.recorder import WAYS, Recorder, State, crashes

#: The interval of the recurring schedule in milliseconds.
EVERY = 1000


@dataclass
class Promises:
    """What was promised, each with the number of changes of the disk after which it holds.

    ``confirmed`` and ``cancelled`` are by payload, ``scheduled`` has the due time of each payload, ``defined`` when the
    recurring schedule was confirmed.
    """

    scheduled: dict[bytes, int] = field(default_factory=dict)
    confirmed: dict[bytes, int] = field(default_factory=dict)
    cancelled: dict[bytes, int] = field(default_factory=dict)
    #: Of payloads whose cancelling was asked for, confirmed or not.
    given: set[bytes] = field(default_factory=set)
    #: The seconds of the clock by the number of changes of the disk.
    times: list[tuple[int, float]] = field(default_factory=list)


class Load:
    """A random load of one seed on one disk."""

    def __init__(self, seed: int, steps: int = 24) -> None:
        self.random = Random(seed)
        self.disk = Recorder()
        self.promises = Promises()
        self.life = Life(self.disk, segmentBytes=self.random.choice((1 << 13, 1 << 15, 1 << 20)))
        self._made = 0
        acts = (self._schedule, self._schedule, self._advance, self._step, self._step, self._cancel, self._roll)
        for number in range(steps):
            if number == 5:
                self._repeat()
            self.random.choice(acts)()
            self.promises.times.append((self._now(), self.life.clock.seconds()))
        if self.life.errors:
            raise self.life.errors[0]

    def _now(self) -> int:
        return len(self.disk.changes)

    def _schedule(self) -> None:
        # Longer than a sector, so that a power loss may tear records off their commit.
        payloads = [b"%d " % (self._made + number) + bytes(700) for number in range(self.random.randint(1, 3))]
        self._made += len(payloads)
        due = self.life.now() + self.random.choice((0, 5, 50, 2000))
        promises = self.promises
        promises.scheduled.update(dict.fromkeys(payloads, due))
        told = self.life.schedule(due, *payloads)

        def confirmed() -> None:
            if told and told[0][0] is None:
                promises.confirmed.update(dict.fromkeys(payloads, self._now()))

        self.life.broker.whenCommitted(confirmed)

    def _advance(self) -> None:
        self.life.clock.advance(self.random.choice((0.001, 0.01, 0.1, 1.5)))

    def _step(self) -> None:
        self.life.step(self.random.random() < 0.5)

    def _roll(self) -> None:
        """Begin a segment, perhaps while messages are being published."""
        if self.random.random() < 0.7:
            self._advance()
        self.life.roll(self.random.random() < 0.5)

    def _cancel(self) -> None:
        waiting = self.life.waitingIds()
        if not waiting:
            return
        number = self.random.choice(waiting)
        store = self.life.broker.schedules.inJournal
        payloads: list[bytes] = []
        self.life.journal.fetchRecords([number], 1, lambda found, _: payloads.extend(found[0].payloads))
        said: list[object] = []
        self.life.broker.schedules.cancel(self.life.me, number, said.append)
        if said != [True] or number in store.firing:
            raise Broken(f"cancelling {number} was answered with {said}")
        self.promises.given.update(payloads)
        self.life.broker.whenStored(lambda reason: self.promises.cancelled.update({payloads[0]: self._now()}))

    def _repeat(self) -> None:
        now = self.life.now()
        self.life.broker.schedules.repeats.define(
            Repeat(
                name="every second", topic="t", payload=b"again", content=QOS1, publisher=(1, "fleximq-1", 1),
                start=now, since=now, every=EVERY, catchUp=CatchUp.ALL,
            )
        )  # fmt: skip


def explore(seed: int, points: Counter[str], most: int) -> None:
    """Let the power go at some moments of one load, at most about ``most``; raises Broken."""
    load = Load(seed)
    random = Random(seed)
    found = crashes(load.disk, random, WAYS)
    tryPoints(seed, found, points, most, random, partial(_check, load))


def _check(load: Load, done: int, state: State) -> None:
    """Start a broker on this disk, let all time pass, and compare."""
    life = Life(Recorder(state))
    life.clock.advance(max((when for place, when in load.promises.times if place <= done), default=0.0))
    life.clock.advance(0)
    life.finish(8.0)
    if life.errors:
        raise life.errors[0]
    if len(life.broker.schedules):
        raise Broken(f"{len(life.broker.schedules)} still wait")
    published: Counter[bytes] = Counter()
    dues: Counter[int] = Counter()
    for each in life.journal.everything():
        mine = each.only("t".__eq__)
        for payload, header, time in zip(mine.payloads, mine.headers, mine.timestamps, strict=True):
            due = msgpack.unpackb(header)["schedule"]["due"]
            if time < due * 1000:
                raise Broken(f"{payload[:4]!r} was published {due * 1000 - time} us before its time")
            if payload == b"again":
                dues[due] += 1
            else:
                published[payload] += 1
    _compare(load.promises, done, published)
    if dues and (max(dues.values()) > 1 or sorted(dues) != list(range(min(dues), max(dues) + 1, EVERY))):
        raise Broken(f"the recurring schedule was published at {sorted(dues.elements())}")
    life.stop()


def _compare(promises: Promises, done: int, published: Counter[bytes]) -> None:
    for payload, number in published.items():
        if number > 1:
            raise Broken(f"{payload[:4]!r} was published {number} times")
        if promises.cancelled.get(payload, done + 1) <= done:
            raise Broken(f"{payload[:4]!r} was published, though its cancelling was confirmed")
    for payload, when in promises.confirmed.items():
        if when <= done and payload not in published and payload not in promises.given:
            raise Broken(f"{payload[:4]!r} was confirmed, and never published")


if __name__ == "__main__":
    sys.exit(main(__doc__, explore))
