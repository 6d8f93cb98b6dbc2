"""A subscription against a plain list: both kinds of messages in one order, within the bounds."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.polled_subscriptions import PolledSubscriptions
from fleximq.broker.envelope import ConnectedClient, QueueDelivery
from fleximq.broker.queues.bounds import DROPPED
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.broker.queues.in_flight import IN_FLIGHT_OVERHEAD
from fleximq.limits import Limits
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD
from tests.broker.queueing import World, X, Y, message, only, paired
from tests.nightly import repetitions

RETRY = 10.0
MESSAGES = 6
BYTES = 6 * OVERHEAD + 3 * IN_FLIGHT_OVERHEAD + 200


@dataclass(eq=False)
class _Kept:
    """A message in the model."""

    message: Message
    arrived: float
    tag: int = 0
    attempts: int = 0
    due: float | None = None
    holder: ConnectedClient | None = None

    @property
    def cost(self) -> int:
        return len(self.message.payload) + OVERHEAD

    @property
    def weight(self) -> int:
        return self.cost + (IN_FLIGHT_OVERHEAD if self.due is not None else 0)


class SubscriptionMachine(RuleBasedStateMachine):
    """Every step is done to the subscription and to the list."""

    timeToLive: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.subscriptions = PolledSubscriptions(
            self.world.makeQueue(
                redelivery=RETRY,
                maxDeliveries=0,
                maxMessages=MESSAGES,
                maxBytes=BYTES,
                onDead=None,
                timeToLiveOf=lambda topic: self.timeToLive,
            ),
            self.world.topics,
            self.world.stateLog,
            limits=Limits(),
            grace=10_000.0,
            onExpired=self.fail,
        )
        self.subscription = self.subscriptions.open(X, None, "t", 1)
        self.durable: list[_Kept] = []
        self.tag = 0
        self.number = 0
        self.dropped = 0
        self.expired = 0

    def fail(self, subscription: PolledSubscription, dropped: int) -> None:
        raise AssertionError("expired")

    def total(self, kept: list[_Kept]) -> int:
        return sum(each.cost for each in kept)

    def fits(self, kept: list[_Kept], count: int = 0, size: int = 0) -> bool:
        return len(kept) + count <= MESSAGES and sum(each.weight for each in kept) + size + OVERHEAD * count <= BYTES

    @rule(qos=st.sampled_from([0, 1]), sizes=st.lists(st.integers(0, 250), min_size=1, max_size=4))
    def deliver(self, qos: int, sizes: list[int]) -> None:
        tracked = [each for each in self.durable if each.message.qos]
        if qos:
            admitted = self.fits(tracked, len(sizes), sum(max(size, 4) for size in sizes))
            asked = self.subscription.admits(len(sizes), sum(max(size, 4) for size in sizes))
            assert (asked is None) == admitted
            if not admitted:
                return
        new = []
        for size in sizes:
            self.number += 1
            new.append(message(f"{self.number:04}", qos=qos, size=max(size, 4)))
        self.subscription.deliver(new, len(new))
        before = len(self.durable) + len(new)
        room = BYTES - sum(each.weight for each in tracked)
        now = self.world.clock.seconds()
        self.durable += [_Kept(each, now) for each in new if qos or len(each.payload) + OVERHEAD <= room]
        while not self.fits(self.durable) and (untracked := [each for each in self.durable if not each.message.qos]):
            self.durable.remove(untracked[0])
        self.dropped += before - len(self.durable)

    def next(self, holder: ConnectedClient) -> QueueDelivery | None:
        first = next((each for each in self.durable if each.due is None), None)
        if first is None:
            return None
        first.attempts += 1
        if not first.message.qos:
            self.durable.remove(first)
            return QueueDelivery(0, first.message, 1)
        if not first.tag:
            self.tag += 1
            first.tag = self.tag
        first.due = self.world.clock.seconds() + RETRY
        first.holder = holder
        return QueueDelivery(first.tag, first.message, 1)

    @rule(holder=st.sampled_from([X, Y]))
    def poll(self, holder: ConnectedClient) -> None:
        assert only(paired(self.subscription.pollMany(holder, 1))) == self.next(holder)

    @rule(holder=st.sampled_from([X, Y]), number=st.integers(0, 8))
    def pollMany(self, holder: ConnectedClient, number: int) -> None:
        expected = [self.next(holder) for _ in range(number)]
        assert paired(self.subscription.pollMany(holder, number)) == [each for each in expected if each is not None]

    @precondition(lambda self: self.tag)
    @rule(back=st.integers(0, 6))
    def acknowledge(self, back: int) -> None:
        tag = self.tag - back
        known = [each for each in self.durable if each.tag == tag > 0]
        assert self.subscription.queue.acknowledge(tag) == bool(known)
        for each in known:
            self.durable.remove(each)

    @rule(holder=st.sampled_from([X, Y]))
    def leave(self, holder: ConnectedClient) -> None:
        self.subscriptions.leave(holder)
        for each in self.durable:
            if each.holder == holder:
                each.due = each.holder = None
        self.expire()

    def expire(self) -> None:
        """Remove the waiting messages that are too old; those of QoS1 use a tag."""
        now = self.world.clock.seconds()
        for each in list(self.durable):
            if self.timeToLive is not None and each.due is None and each.arrived + self.timeToLive <= now:
                self.durable.remove(each)
                self.tag += each.message.qos and not each.tag
                self.expired += 1

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.clock.advance(1)
            for each in self.durable:
                if each.due is not None and each.due <= self.world.clock.seconds():
                    each.due = each.holder = None
            self.expire()
        if self.timeToLive is not None:  # those of QoS0 are looked for when a client polls, or when there is no room
            self.subscription.pollMany(X, 0)

    @invariant()
    def looksAlike(self) -> None:
        assert self.subscription.size == self.total(self.durable)
        assert self.subscription.inFlight == len([each for each in self.durable if each.due is not None])
        assert self.subscription.depth == len(self.durable) - self.subscription.inFlight
        assert self.world.counts[DROPPED] == self.dropped
        assert self.world.counts[EXPIRED] == self.expired


class ExpiringSubscriptionMachine(SubscriptionMachine):
    """Messages expire, so that a publisher that met a full subscription is admitted again."""

    timeToLive = 15.0


class SubscriptionModelTests(SynchronousTestCase):
    """A subscription and the model side by side, through many random lives."""

    def test_likeTheModel(self) -> None:
        self.compare(SubscriptionMachine)

    def test_expiring(self) -> None:
        self.compare(ExpiringSubscriptionMachine)

    def compare(self, machine: type[SubscriptionMachine]) -> None:
        some = settings(max_examples=repetitions(60, 750), stateful_step_count=40, deadline=None)
        run_state_machine_as_test(machine, settings=some)
