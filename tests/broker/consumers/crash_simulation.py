"""A queue on a disk that loses power at any moment: what a restart delivers, compared with what was promised.

A load publishes jobs, also in transactions, and schedules them, with priorities or ordered by key, settles deliveries,
lets consumers die and time pass, and commits, on a :class:`tests.journal.recorder.Recorder`. Each point of it is one
disk as a power loss may leave it. A new broker is started on it, all time passes, and a worker acknowledges all that it
gets. Then each confirmed job was delivered once, or became a dead letter, unless its acknowledgement was requested;
none was delivered after its confirmed acknowledgement or rejection, or before its time; each confirmed rejection is a
dead letter, once; and jobs of one key were delivered in their order.

``python -m tests.broker.consumers.crash_simulation --seeds 1000`` prints how many points were tried.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import msgpack

from fleximq.broker.envelope import Envelope, QueueDelivery
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import Worker
from tests.broker.power_losses import Broken, main, tryPoints
from tests.broker.schedules.durable import SOURCE, Life, batch
from tests.journal.at_once import published
from tests.journal.recorder import WAYS, Recorder, State, crashes

#: The queue, its other source, and its dead letters.
QUEUE, SOURCES, DEAD = "w", "b/*", "$dead/w"
KEYS = ("a", "b", "c")
#: Longer than a sector, so that a power loss may tear records off their commit.
FILLING = bytes(700)
#: Seconds for which a delivery is its consumer's, in the queues of some loads; longer than a load.
LEASE = 1000.0


@dataclass
class Promises:
    """What was promised, by job, each with the number of changes of the disk after which it holds.

    ``requested`` are settlements that were sent, ``acknowledged`` and ``rejected`` the confirmed ones. ``due`` has the
    earliest time of a scheduled job, ``key`` the key of a job of an ordered queue.
    """

    confirmed: dict[int, int] = field(default_factory=dict)
    requested: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    rejections: set[int] = field(default_factory=set)
    rejected: dict[int, int] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)
    key: dict[int, str] = field(default_factory=dict)
    #: The seconds of the clock by the number of changes of the disk.
    times: list[tuple[int, float]] = field(default_factory=list)


class Load:
    """A random load of one seed on one disk; ``begun`` is when the queue was on disk."""

    def __init__(self, seed: int, steps: int = 30) -> None:
        self.random = Random(seed)
        self.disk = Recorder()
        self.promises = Promises()
        self.life = Life(self.disk, segmentBytes=self.random.choice((1 << 13, 1 << 15, 1 << 20)))
        self.isOrdered = self.random.random() < 0.5
        self.lease = self.random.choice((0.0, LEASE))
        ordered = "key" if self.isOrdered else None
        definition = QueueDefinition(QUEUE, (SOURCES,), ordered_by=ordered, lease=self.lease)
        self.life.broker.defineQueue(self.life.me, definition)
        self.life.commit()
        self.begun = self._now()
        self._made = 0
        self._unsettled: list[tuple[Worker, int, int]] = []
        self._workers = [self._worker(), self._worker()]
        acts = (
            *(self._publish, self._publish, self._transact, self._schedule, self._settle, self._settle, self._settle),
            *(self._step, self._step, self._step, self._read, self._advance, self._die, self._roll),
        )
        #: A patient one brings transactions back later, and messages of queues.
        reader: Any = self.life.journal.opened.reader
        self._reader = reader
        reader.patient = self.random.random() < 0.5
        for _ in range(steps):
            self.random.choice(acts)()
            self.promises.times.append((self._now(), self.life.clock.seconds()))
        if self.life.errors:
            raise self.life.errors[0]

    def _now(self) -> int:
        return len(self.disk.changes)

    # -- acts ----------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish some jobs with one header, to the topic of the queue's name or to one of its sources."""
        header = self._header()
        jobs, payloads = self._jobs()
        # Jobs of one key are ordered if they are in one topic.
        topic = QUEUE if self.isOrdered else self.random.choice((QUEUE, "b/x"))
        me = self.life.me
        envelope = Envelope(self.life.broker.topicFor(me, topic), me, SOURCE, durable=True)
        if "key" in header:
            self.promises.key.update(dict.fromkeys(jobs, header["key"]))
        self.life.broker.publish(envelope, batch(topic, header, *payloads), len(jobs))
        self.life.broker.whenCommitted(partial(self._holds, self.promises.confirmed, jobs))

    def _transact(self) -> None:
        """Publish some jobs in a transaction."""
        header = self._header()
        jobs, payloads = self._jobs()
        if "key" in header:
            self.promises.key.update(dict.fromkeys(jobs, header["key"]))
        run = published(payloads, topic=QUEUE, header=msgpack.packb(header) if header else b"")
        tokens: list[str] = []
        transactions = self.life.broker.transactions
        transactions.stage("query", self._made, "part", [run], lambda token, reason: tokens.append(str(token)))
        self.life.commit()
        if not tokens:
            return  # the earlier ones are not delivered yet; this client does not wait for it
        decided = partial(self._holds, self.promises.confirmed, jobs)
        transactions.commit("query", self._made, tokens, lambda offset, reason: decided(reason))

    def _read(self) -> None:
        """Answer some questions to the journal."""
        for _ in range(self.random.randint(1, 3)):
            self._reader.answer()

    def _header(self) -> dict[str, Any]:
        if self.isOrdered:
            return {"key": self.random.choice(KEYS)} if self.random.random() < 0.8 else {}
        return {"priority": self.random.randrange(10)} if self.random.random() < 0.5 else {}

    def _jobs(self) -> tuple[list[int], list[bytes]]:
        jobs = [self._made + number for number in range(self.random.randint(1, 3))]
        self._made += len(jobs)
        return jobs, [b"%d " % job + FILLING for job in jobs]

    def _schedule(self) -> None:
        jobs, payloads = self._jobs()
        due = self.life.now() + self.random.choice((0, 5, 50, 2000))
        self.promises.due.update(dict.fromkeys(jobs, due))
        told = self.life.schedule(due, *payloads, topic=QUEUE)

        def confirmed() -> None:
            if told and told[0][0] is None:
                self._holds(self.promises.confirmed, jobs)

        self.life.broker.whenCommitted(confirmed)

    def _holds(self, promises: dict[int, int], jobs: Sequence[int], reason: str | None = None) -> None:
        if reason is None:
            promises.update(dict.fromkeys(jobs, self._now()))

    def _settle(self) -> None:
        if not self._unsettled:
            return
        worker, tag, job = self._unsettled.pop(self.random.randrange(len(self._unsettled)))
        promises, settle = self.promises, partial(self.life.broker.settle, worker.client, QUEUE)
        if self.random.random() < 0.3:
            settle(extends=[(tag, LEASE)])
        act = self.random.random()
        if act < 0.25:
            others = settle(retries=[(tag, self.random.choice((0.0, 0.05, 3.0)))])
        elif act < 0.45:
            promises.rejections.add(job)
            promises.requested[job] = self._now()
            others = settle(rejects=[(tag, "no")])
            self.life.broker.whenStored(partial(self._holds, promises.rejected, [job]), worker.client)
        else:
            promises.requested[job] = self._now()
            others = settle([tag])
            self.life.broker.whenStored(partial(self._holds, promises.acknowledged, [job]), worker.client)
        if others:
            raise Broken(f"job {job} is not its consumer's any more")

    def _die(self) -> None:
        """A consumer dies, and another one comes."""
        worker = self._workers.pop(0)
        self._unsettled = [each for each in self._unsettled if each[0] is not worker]
        self._workers.append(self._worker())
        self.life.broker.leave(worker.client, "test")

    def _worker(self) -> Worker:
        worker = Worker(self.life.broker)

        def deliver(deliveries: Sequence[QueueDelivery]) -> None:
            for each in deliveries:
                job = int(each.message.payload.split()[0])
                if job in self.promises.requested:
                    raise Broken(f"job {job} was delivered after it was settled")
                self._unsettled.append((worker, each.tag, job))

        prefetch = self.random.randint(1, 5)
        self.life.broker.consumeFrom(worker.client, QUEUE, deliver, worker.errors.append, prefetch)
        return worker

    def _advance(self) -> None:
        self.life.clock.advance(self.random.choice((0.001, 0.01, 0.1, 1.5)))

    def _step(self) -> None:
        self.life.step(self.random.random() < 0.5)

    def _roll(self) -> None:
        """Begin a segment."""
        self.life.roll(self.random.random() < 0.5)


def explore(seed: int, points: Counter[str], most: int) -> None:
    """Let the power go at some moments of one load, at most about ``most``; raises Broken."""
    try:
        load = Load(seed)
    except Exception as error:
        raise Broken(f"seed {seed}: {error!r}") from error
    random = Random(seed)
    found = (each for each in crashes(load.disk, random, WAYS) if each[0] >= load.begun)
    tryPoints(seed, found, points, most, random, partial(_check, load))


def _check(load: Load, done: int, state: State) -> None:
    """Start a broker on this disk, let all time pass, acknowledge everything, and compare."""
    life, promises = Life(Recorder(state)), load.promises
    life.clock.advance(max((when for place, when in promises.times if place <= done), default=0.0))
    delivered = _acknowledgeAll(life, promises)
    dead = [_jobOf(each) for each in Worker(life.broker).consume(DEAD, 1000).got]
    queue = life.broker.queues.get(QUEUE)
    left = -1 if queue is None else queue.depth + queue.inFlight
    if life.errors:
        raise life.errors[0]
    if left or len(life.broker.schedules):
        raise Broken(f"{left} jobs and {len(life.broker.schedules)} schedules are left")
    _compare(promises, done, Counter(delivered), Counter(dead))
    for key in KEYS if load.isOrdered else ():
        mine = [each for each in delivered if promises.key.get(each) == key]
        if mine != sorted(mine):
            raise Broken(f"jobs of the key {key} were delivered as {mine}")
    life.stop()


def _jobOf(delivery: QueueDelivery) -> int:
    return int(delivery.message.payload.split()[0])


def _acknowledgeAll(life: Life, promises: Promises) -> list[int]:
    """Return the jobs that are delivered until all leases have ended, each acknowledged at once."""
    worker = Worker(life.broker).consume(QUEUE, 1000)
    delivered: list[int] = []
    for seconds in (0.0, 0.01, 1.0, 8.0, *[LEASE / 2] * 4):
        life.clock.advance(seconds)
        _settled(life)
        while len(delivered) < len(worker.got):
            each = worker.got[len(delivered)]
            job = _jobOf(each)
            delivered.append(job)
            if life.now() < promises.due.get(job, 0):
                raise Broken(f"job {job} was delivered before its time")
            life.broker.settle(worker.client, QUEUE, [each.tag])
            _settled(life)
    return delivered


def _settled(life: Life) -> None:
    """Carry out all commits, and what depends on them."""
    for _ in range(3):
        life.commit()
        life.clock.advance(0)


def _compare(promises: Promises, done: int, delivered: Counter[int], dead: Counter[int]) -> None:
    def holds(promise: dict[int, int], job: int) -> bool:
        return promise.get(job, done + 1) <= done

    for job, number in delivered.items():
        if number > 1:
            raise Broken(f"job {job} was delivered {number} times")
        if holds(promises.acknowledged, job) or holds(promises.rejected, job):
            raise Broken(f"job {job} was delivered, though settling it was confirmed")
    for job, number in dead.items():
        if number > 1:
            raise Broken(f"job {job} is a dead letter {number} times")
        if job not in promises.rejections:
            raise Broken(f"job {job} is a dead letter, though it was not rejected")
    for job in promises.confirmed:
        if not holds(promises.confirmed, job) or job in delivered or job in dead:
            continue
        if not holds(promises.requested, job) or job in promises.rejections:
            raise Broken(f"job {job} was confirmed, and is neither delivered nor a dead letter")


if __name__ == "__main__":
    sys.exit(main(__doc__, explore))
