"""Acknowledging by id, against a plain list of everything that was produced."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers import work_queues
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.envelope import QueueDelivery
from fleximq.values.message import Message
from tests.broker.queueing import World, consumeFrom, message, only
from tests.nightly import repetitions

RETRY = 10.0
EXPIRY = 35.0
MESSAGES = 6
DELIVERIES = 3


@dataclass(eq=False)
class _Kept:
    """A message in the model; ``order`` counts deliveries, over all queues."""

    topic: str
    message: Message
    attempts: int = 0
    due: float | None = None
    order: int = 0


class TopicQueuesMachine(RuleBasedStateMachine):
    """Few ids, so that namesakes are common, in two queues that overflow, expire and have dead letters."""

    expiry: float | None = EXPIRY

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.queues = WorkQueues(
            self.world.makeQueue(redelivery=RETRY, maxDeliveries=DELIVERIES, maxMessages=MESSAGES, maxBytes=1 << 20),
            self.world.topics,
            self.world.stateLog,
            maxQueues=2,
            expiry=self.expiry,
            idOf=lambda each: each.message_id or "new",
            onExpired=self.onExpired,
        )
        self.durable: list[_Kept] = []
        self.number = 0
        self.order = 0

    def onExpired(self, queue: WorkQueue, dropped: int) -> None:
        assert self.expiry is not None or not dropped
        self.durable = [each for each in self.durable if each.topic != queue.name]

    @rule(topic=st.sampled_from("tu"), ids=st.lists(st.sampled_from(["i", "j", None]), max_size=4))
    def produce(self, topic: str, ids: list[str | None]) -> None:
        queue = self.queues.ensure(topic)
        for id in ids:
            self.number += 1
            new = message(str(self.number), id=id)
            queue.deliver([new], 1)
            self.durable.append(_Kept(topic, new._replace(message_id=id or "new")))
            mine = [each for each in self.durable if each.topic == topic]
            if len(mine) > MESSAGES:
                self.durable.remove(next(each for each in mine if each.due is None))

    @rule(topic=st.sampled_from("tu"))
    def consume(self, topic: str) -> None:
        got = only(consumeFrom(self.queues, topic))
        self.handedOut(topic, [] if got is None else [got], 1)

    @rule(topic=st.sampled_from("tu"), number=st.integers(0, 5))
    def consumeMany(self, topic: str, number: int) -> None:
        self.handedOut(topic, consumeFrom(self.queues, topic, number), number)

    def handedOut(self, topic: str, got: list[QueueDelivery], number: int) -> None:
        """Compare what was handed out with the oldest that wait, and hide these."""
        first = [each for each in self.durable if each.topic == topic and each.due is None][:number]
        assert [each.message for each in got] == [each.message for each in first]
        for each in first:
            self.order += 1
            each.order = self.order
            each.attempts += 1
            each.due = self.world.clock.seconds() + RETRY

    @rule(id=st.sampled_from(["i", "j", "new"]))
    def acknowledge(self, id: str) -> None:
        known = [each for each in self.durable if each.message.message_id == id and each.attempts]
        flying = sorted((each for each in known if each.due is not None), key=lambda each: each.order)
        assert self.queues.acknowledge([id]) == bool(known)
        if flying:
            self.durable.remove(flying[0])
        elif known:
            self.durable.remove(self.gone(known))

    def gone(self, known: list[_Kept]) -> _Kept:
        """Return the one that is not there any more; of several that returned any may be meant."""
        left = [each.message for queue in self.queues for each in queue.queue.stored.delivered()]
        missing = [each for each in known if each.message not in left]
        assert len(missing) == 1
        return missing[0]

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.clock.advance(1)
            for each in list(self.durable):
                if each.due is not None and each.due <= self.world.clock.seconds():
                    each.due = None
                    if each.attempts >= DELIVERIES:
                        self.durable.remove(each)

    @invariant()
    def looksAlike(self) -> None:
        for queue in self.queues:
            mine = [each for each in self.durable if each.topic == queue.name]
            assert queue.inFlight == len([each for each in mine if each.due is not None])
            assert queue.depth == len(mine) - queue.inFlight

    @invariant()
    def noIdIsRememberedInVain(self) -> None:
        assert len(self.queues._ids) == len({each.message.message_id for each in self.durable if each.attempts})


class LastingQueuesMachine(TopicQueuesMachine):
    """Without a time set by an operator, only empty queues expire."""

    expiry = None

    @invariant()
    def nothingIsLost(self) -> None:
        assert {each.topic for each in self.durable} <= {queue.name for queue in self.queues}


class TopicQueuesModelTests(SynchronousTestCase):
    """Two topic queues and the model side by side, through many random lives."""

    def test_likeTheModel(self) -> None:
        self.compare(TopicQueuesMachine)

    def test_lasting(self) -> None:
        self.patch(work_queues, "IDLE_SECONDS", EXPIRY)
        self.compare(LastingQueuesMachine)

    def compare(self, machine: type[TopicQueuesMachine]) -> None:
        some = settings(max_examples=repetitions(60, 750), stateful_step_count=40, deadline=None)
        run_state_machine_as_test(machine, settings=some)
