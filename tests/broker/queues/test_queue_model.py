"""The queue against a plain list that does the same the slow and obvious way."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.bounds import DROPPED, FULL
from fleximq.broker.queues.delivery_limit import DEAD_LETTERS, DeliveryLimit
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.broker.queues.in_flight import IN_FLIGHT_OVERHEAD
from fleximq.broker.queues.queue import Queue
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD
from tests.broker.queueing import World, message, only, run
from tests.nightly import repetitions

RETRY = 10.0
MESSAGES = 8
BYTES = 8 * OVERHEAD + 3 * IN_FLIGHT_OVERHEAD + 300
DELIVERIES = 3


@dataclass(eq=False)
class _Kept:
    """A message in the model, in its place in the list of all, oldest first."""

    message: Message
    arrived: float
    tag: int = 0
    attempts: int = 0
    due: float | None = None
    holder: str | None = None

    @property
    def cost(self) -> int:
        return len(self.message.payload) + OVERHEAD

    @property
    def weight(self) -> int:
        return self.cost + (IN_FLIGHT_OVERHEAD if self.due is not None else 0)


class QueueMachine(RuleBasedStateMachine):
    """Every step is done to the queue and to the list, and both must look alike after it."""

    timeToLive: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.queue = Queue(
            name="t",
            deadlines=self.world.deadlines,
            redelivery=RETRY,
            limit=DeliveryLimit(DELIVERIES, self.world.onDead),
            maxMessages=MESSAGES,
            maxBytes=BYTES,
            counted=self.world.counted,
            timeToLive=self.timeToLive,
        )
        self.kept: list[_Kept] = []
        self.dead: list[Message] = []
        self.dropped = 0
        self.expired = 0
        self.tag = 0
        self.number = 0

    def waiting(self) -> list[_Kept]:
        return [each for each in self.kept if each.due is None]

    def flying(self) -> list[_Kept]:
        return [each for each in self.kept if each.due is not None]

    def over(self) -> bool:
        return len(self.kept) > MESSAGES or sum(each.weight for each in self.kept) > BYTES

    @rule(sizes=st.lists(st.integers(0, 200) | st.sampled_from([0, BYTES - OVERHEAD, BYTES]), min_size=1, max_size=10))
    def deliver(self, sizes: list[int]) -> None:
        self.arrived(self.made(sizes))

    @rule(sizes=st.lists(st.integers(0, 200) | st.sampled_from([BYTES]), min_size=1, max_size=10))
    def deliverRun(self, sizes: list[int]) -> None:
        self.arrived(run(self.made(sizes)))

    def made(self, sizes: list[int]) -> list[Message]:
        made = []
        for size in sizes:
            self.number += 1
            made.append(message(str(self.number), size=size))
        return made

    def arrived(self, new: Sequence[Message]) -> None:
        self.queue.deliver(new, len(new))
        room = BYTES - sum(each.weight for each in self.flying())
        fitting = [_Kept(each, self.world.clock.seconds()) for each in new if len(each.payload) + OVERHEAD <= room]
        before = len(self.kept) + len(new)
        self.kept += fitting
        while self.over() and self.waiting():
            self.drop(self.waiting()[0])
        self.dropped += before - len(self.kept)

    def drop(self, dropped: _Kept) -> None:
        """Messages that are dropped before their delivery use a tag too."""
        self.kept.remove(dropped)
        self.tag += not dropped.tag

    def expire(self) -> None:
        now = self.world.clock.seconds()
        for each in self.waiting():
            if self.timeToLive is not None and each.arrived + self.timeToLive <= now:
                self.drop(each)
                self.expired += 1

    def handOut(self, holder: str | None) -> QueueDelivery | None:
        if not self.waiting():
            return None
        first = self.waiting()[0]
        if first.tag == 0:
            self.tag += 1
            first.tag = self.tag
        first.attempts += 1
        first.due = self.world.clock.seconds() + RETRY
        first.holder = holder
        return QueueDelivery(first.tag, first.message, first.attempts)

    @rule(holder=st.sampled_from([None, "x", "y"]))
    def take(self, holder: str | None) -> None:
        assert only(self.queue.takeMany(holder, 1)) == self.handOut(holder)

    @rule(holder=st.sampled_from([None, "x", "y"]), number=st.integers(0, 5))
    def takeMany(self, holder: str | None, number: int) -> None:
        expected = [self.handOut(holder) for _ in range(number)]
        assert self.queue.takeMany(holder, number) == [each for each in expected if each is not None]

    @rule(back=st.integers(-1, 12))
    def acknowledge(self, back: int) -> None:
        tag = self.tag - back
        known = [each for each in self.kept if each.tag == tag > 0]
        assert self.queue.acknowledge(tag) == bool(known)
        for each in known:
            self.kept.remove(each)

    @rule(back=st.integers(-1, 12), number=st.integers(1, 9))
    def acknowledgeRange(self, back: int, number: int) -> None:
        tags = range(max(1, self.tag - back), max(1, self.tag - back) + number)
        known = [each for each in self.kept if each.tag in tags]
        unknown = {*tags} - {each.tag for each in known}
        assert {*self.queue.acknowledgeRange(tags)} == unknown
        for each in known:
            self.kept.remove(each)

    def takeBack(self, returning: list[_Kept]) -> None:
        for each in returning:
            each.due = each.holder = None
            if each.attempts >= DELIVERIES:
                self.kept.remove(each)
                self.dead.append(each.message)
        self.expire()

    @rule(holder=st.sampled_from(["x", "y"]))
    def release(self, holder: str) -> None:
        self.queue.release(holder)
        self.takeBack([each for each in self.flying() if each.holder == holder])

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.clock.advance(1)
            now = self.world.clock.seconds()
            due = [each for each in self.flying() if each.due is not None and each.due <= now]
            self.takeBack(sorted(due, key=lambda each: (each.due, each.tag)))

    @rule(count=st.integers(0, 9), size=st.integers(0, BYTES))
    def admits(self, count: int, size: int) -> None:
        fits = len(self.kept) + count <= MESSAGES
        fits = fits and sum(each.weight for each in self.kept) + size + OVERHEAD * count <= BYTES
        assert self.queue.bounds.admits(count, size) == (None if fits else FULL)

    @invariant()
    def looksAlike(self) -> None:
        assert self.queue.stored.depth == len(self.waiting())
        assert len(self.queue.stored.flying) == len(self.flying())
        assert self.queue.stored.size == sum(each.cost for each in self.kept)
        assert sorted(each.tag for each in self.queue.stored.delivered()) == sorted(
            each.tag for each in self.kept if each.tag
        )

    @invariant()
    def boundsHold(self) -> None:
        """What is in flight weighs more, which nothing makes room for before something new comes."""
        assert len(self.kept) <= MESSAGES
        assert sum(each.cost for each in self.kept) <= BYTES

    @invariant()
    def nothingIsLostInSilence(self) -> None:
        assert self.world.counts[EXPIRED] == self.expired
        assert [each for _, each in self.world.dead] == self.dead
        assert self.world.counts[DROPPED] == self.dropped
        assert self.world.counts[DEAD_LETTERS[DeathReason.ATTEMPTS]] == len(self.dead)
        assert self.world.errors == []


class ExpiringQueueMachine(QueueMachine):
    """Messages expire, so that a full queue may have room, and those in flight when they return."""

    timeToLive = 15.0


class QueueModelTests(SynchronousTestCase):
    """A queue and the model side by side, through many random lives."""

    def test_likeTheModel(self) -> None:
        self.compare(QueueMachine)

    def test_expiring(self) -> None:
        self.compare(ExpiringQueueMachine)

    def compare(self, machine: type[QueueMachine]) -> None:
        some = settings(max_examples=repetitions(60, 750), stateful_step_count=40, deadline=None)
        run_state_machine_as_test(machine, settings=some)
