"""A named queue beside a plain list: with priorities or keys, expiries, schedules, leases, sources, and consumers that
die, in memory and on disk, where the broker is killed too. Each delivery is compared with the list when it is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, QueueDelivery
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import Worker
from tests.broker.schedules.durable import SOURCE, Life, batch
from tests.nightly import repetitions

QUEUE = "w"
#: The most unsettled deliveries, the most consumers, and the seconds of a lease.
IN_FLIGHT, CONSUMERS, LEASE = 6, 3, 5
DELAYS = st.sampled_from([0, 0, 2, 7])
#: Which of those that may be meant.
PLACES = st.integers(0, 11)


@dataclass(eq=False)
class _Job:
    """A job in the model. ``state`` is "scheduled", "waiting", "out" or "delayed", the second two until ``until``;
    ``attempts`` is None if a killed broker may not have stored their number.
    """

    number: int
    priority: int = 4
    key: str | None = None
    expires: float | None = None
    state: str = "waiting"
    until: float | None = None
    place: int = 0
    attempts: int | None = 0
    holder: "_Consumer | None" = None


@dataclass(eq=False)
class _Consumer:
    """A consumer in the model; ``tags`` are those of its unsettled deliveries."""

    worker: Worker
    prefetch: int
    tags: dict[_Job, int] = field(default_factory=dict)


class NamedQueueMachine(RuleBasedStateMachine):
    """Each step is done to the list first, as the queue delivers within its calls."""

    durable = False
    ordered = False
    lease = 0

    def __init__(self) -> None:
        super().__init__()
        self.life = Life()
        definition = QueueDefinition(
            QUEUE, ("b/*",), durable=self.durable, ordered_by="key" if self.ordered else None, lease=self.lease,
            max_attempts=1000, max_in_flight=IN_FLIGHT,
        )  # fmt: skip
        self.life.broker.defineQueue(self.life.me, definition)
        self.jobs: list[_Job] = []
        self.consumers: list[_Consumer] = []
        self.ready: list[_Job] = []
        self.dead: list[int] = []
        self.paused = False
        self.number = self.place = 0
        self.rest()

    # -- the model -----------------------------------------------------------------------------------

    def now(self) -> float:
        return self.life.clock.seconds()

    def arrive(self, job: _Job) -> None:
        self.place += 1
        job.state, job.place, job.until = "waiting", self.place, None

    def giveBack(self, job: _Job) -> None:
        """A job returns to its place, unless it has expired meanwhile."""
        if job.holder is not None:
            del job.holder.tags[job]
        job.state, job.holder, job.until = "waiting", None, None

    def isFree(self, job: _Job) -> bool:
        """Whether a job may be delivered now."""
        isFirst = not self.ordered or job.key is None or all(
            each.place >= job.place or each.state == "scheduled" or self.isExpired(each)
            for each in self.jobs
            if each.key == job.key
        )  # fmt: skip
        return job.state == "waiting" and isFirst and not self.isExpired(job)

    def isExpired(self, job: _Job) -> bool:
        return job.state == "waiting" and job.expires is not None and job.expires <= self.now()

    def out(self) -> list[_Job]:
        return [each for each in self.jobs if each.state == "out"]

    def deliver(self, consumer: _Consumer, deliveries: Sequence[QueueDelivery]) -> None:
        """Compare deliveries with the list."""
        assert not self.paused
        for tag, message, attempts in deliveries:
            job = next((each for each in self.jobs if each.number == int(message.payload)), None)
            assert job is not None, f"{message.payload!r} is settled or expired"
            assert self.isFree(job), job
            assert job.attempts is None or attempts == job.attempts + 1, (attempts, job)
            before = [each for each in self.ready if each is not job and self.isFree(each)]
            rank = (-job.priority, job.place)
            assert not [each for each in before if (-each.priority, each.place) < rank], (job, before)
            job.state, job.holder, job.attempts = "out", consumer, attempts
            job.until = self.now() + self.lease if self.lease else None
            consumer.tags[job] = tag
        assert len(consumer.tags) <= consumer.prefetch
        assert len(self.out()) <= IN_FLIGHT

    def rest(self) -> None:
        """Let all be committed and delivered; nothing waits then that a consumer has room for."""
        for _ in range(4):
            self.life.commit()
            self.life.clock.advance(0)
        if self.life.errors:
            raise self.life.errors[0]
        self.jobs = [each for each in self.jobs if not self.isExpired(each)]
        self.ready = [each for each in self.jobs if self.isFree(each)]
        hasRoom = any(len(each.tags) < each.prefetch for each in self.consumers)
        if hasRoom and not self.paused and len(self.out()) < IN_FLIGHT:
            assert not self.ready, self.ready

    # -- steps ---------------------------------------------------------------------------------------

    def header(self, priority: int | None, key: str | None) -> dict[str, Any]:
        if self.ordered:
            return {"key": key} if key is not None else {}
        return {"priority": priority} if priority is not None else {}

    def new(self, header: dict[str, Any]) -> _Job:
        self.number += 1
        job = _Job(self.number, header.get("priority", 4), header.get("key"))
        self.jobs.append(job)
        return job

    @rule(
        topic=st.sampled_from([QUEUE, "b/x", "b/y"]), number=st.integers(1, 3),
        priority=st.sampled_from([None, 0, 4, 9]), key=st.sampled_from([None, "a", "b"]),
        expires=st.sampled_from([None, None, 3, 9]),
    )  # fmt: skip
    def publish(self, topic: str, number: int, priority: int | None, key: str | None, expires: int | None) -> None:
        header = self.header(priority, key)
        jobs = [self.new(header) for _ in range(number)]
        for job in jobs:
            self.arrive(job)
            job.expires = self.now() + expires if expires else None
        if expires:
            header["expires_in"] = expires * 1000
        me = self.life.me
        envelope = Envelope(self.life.broker.topicFor(me, topic), me, SOURCE, durable=self.durable)
        self.life.broker.publish(envelope, batch(topic, header, *(b"%d" % each.number for each in jobs)), number)
        self.rest()

    @rule(seconds=DELAYS, priority=st.sampled_from([None, 9]), key=st.sampled_from([None, "a"]))
    def schedule(self, seconds: int, priority: int | None, key: str | None) -> None:
        header = self.header(priority, key)
        job = self.new(header)
        job.state, job.until = "scheduled", self.now() + seconds
        if not seconds:
            self.arrive(job)
        self.life.schedule(self.life.now() + seconds * 1000, b"%d" % job.number, topic="b/x", **header)
        self.rest()

    @precondition(lambda self: len(self.consumers) < CONSUMERS)
    @rule(prefetch=st.integers(1, 4))
    def join(self, prefetch: int) -> None:
        consumer = _Consumer(Worker(self.life.broker), prefetch)
        self.consumers.append(consumer)
        deliver = partial(self.deliver, consumer)
        self.life.broker.consumeFrom(consumer.worker.client, QUEUE, deliver, consumer.worker.errors.append, prefetch)
        self.rest()

    @precondition(lambda self: self.consumers)
    @rule(place=PLACES, leaves=st.booleans())
    def die(self, place: int, leaves: bool) -> None:
        """A connection ends, or the client consumes no longer."""
        consumer = self.consumers.pop(place % len(self.consumers))
        for job in list(consumer.tags):
            self.giveBack(job)
        if leaves:
            self.life.broker.stopConsuming(consumer.worker.client, QUEUE)
        else:
            self.life.broker.leave(consumer.worker.client, "test")
        self.rest()

    @precondition(lambda self: self.out())
    @rule(place=PLACES, act=st.sampled_from(["ack", "ack", "reject", "retry", "extend"]), seconds=DELAYS)
    def settles(self, place: int, act: str, seconds: int) -> None:
        out = self.out()
        job = out[place % len(out)]
        assert job.holder is not None
        client, tag = job.holder.worker.client, job.holder.tags[job]
        settlements: dict[str, dict[str, Any]] = {
            "ack": {"acks": [tag]}, "reject": {"rejects": [(tag, "no")]}, "retry": {"retries": [(tag, float(seconds))]},
            "extend": {"extends": [(tag, float(seconds + 1))]},
        }  # fmt: skip
        if act == "extend":
            job.until = self.now() + seconds + 1 if self.lease else None
        else:
            self.giveBack(job)
        if act in ("ack", "reject"):
            self.jobs.remove(job)
            self.dead += [job.number] if act == "reject" else []
        elif act == "retry" and seconds:
            job.state, job.until = "delayed", self.now() + seconds
        assert self.life.broker.settle(client, QUEUE, **settlements[act]) == []
        self.rest()

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            later = self.now() + 1
            due = [each for each in self.jobs if each.until is not None and each.until <= later]
            for job in sorted(due, key=lambda each: (each.until, each.number)):
                if job.state == "scheduled":
                    self.arrive(job)
                else:
                    self.giveBack(job)
            self.life.clock.advance(1)
            self.rest()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.life.broker.pauseQueue(self.life.me, QUEUE, paused)
        self.rest()

    @precondition(lambda self: self.durable)
    @rule(roll=st.booleans())
    def kill(self, roll: bool) -> None:
        """The broker is killed when everything is on disk, perhaps at the beginning of a segment."""
        if roll:
            self.life.journal.opened.roll()
            self.rest()
        self.consumers.clear()
        for job in self.jobs:
            if job.state == "out":
                job.state, job.holder, job.until = "waiting", None, None
            job.attempts = None
        self.life = self.life.killed()
        self.rest()

    # -- both alike ----------------------------------------------------------------------------------

    @invariant()
    def looksAlike(self) -> None:
        queue = self.life.broker.queues.get(QUEUE)
        assert queue is not None
        scheduled = sum(each.state == "scheduled" for each in self.jobs)
        assert queue.depth + queue.inFlight == len(self.jobs) - scheduled
        assert len(self.life.broker.schedules) == scheduled

    def teardown(self) -> None:
        """In the end all jobs can be delivered and acknowledged; the rejected ones are dead letters."""
        self.pause(False)
        if len(self.consumers) < CONSUMERS:
            self.join(4)
        for _ in range(20):
            self.wait(1)
            while out := self.out():
                self.settles(0, "ack", 0)
                assert len(self.out()) <= IN_FLIGHT, out
        assert self.jobs == []
        letters = Worker(self.life.broker).consume(f"$dead/{QUEUE}", 1000)
        self.rest()
        assert sorted(int(each.message.payload) for each in letters.got) == sorted(self.dead)


class DurableMachine(NamedQueueMachine):
    """On disk."""

    durable = True


class LeasedMachine(NamedQueueMachine):
    """With leases, in memory."""

    lease = LEASE


class LeasedDurableMachine(LeasedMachine):
    """With leases, on disk."""

    durable = True


class OrderedMachine(NamedQueueMachine):
    """Ordered by key, in memory."""

    ordered = True


class OrderedDurableMachine(OrderedMachine):
    """Ordered by key, on disk, with leases."""

    durable = True
    lease = LEASE


class NamedQueueModelTests(SynchronousTestCase):
    """Queues and the model side by side, through many random lives."""

    def test_inMemory(self) -> None:
        self.compare(NamedQueueMachine)

    def test_durable(self) -> None:
        self.compare(DurableMachine)

    def test_leased(self) -> None:
        self.compare(LeasedMachine)

    def test_leasedDurable(self) -> None:
        self.compare(LeasedDurableMachine)

    def test_ordered(self) -> None:
        self.compare(OrderedMachine)

    def test_orderedDurable(self) -> None:
        self.compare(OrderedDurableMachine)

    def compare(self, machine: type[NamedQueueMachine]) -> None:
        some = settings(max_examples=repetitions(40, 750), stateful_step_count=40, deadline=None)
        run_state_machine_as_test(machine, settings=some)
