"""What the tests of queues share: a clock, callbacks that remember, messages that tell themselves apart."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient, LastDelivery, QueueDelivery
from fleximq.broker.queues.delivery_limit import DeliveryLimit
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import costOf
from fleximq.values.message_run import MessageRun

#: Three clients.
X, Y, Z = (ConnectedClient(number, "blipmq", f"blipmq-{number}") for number in range(1000, 1003))
#: Seconds for which the tests' queues hide a delivery.
RETRY = 30.0


def message(name: str = "m", *, qos: int = 1, id: str | None = None, size: int | None = None) -> Message:
    """Return a message with this name as its payload, filled up to ``size`` bytes."""
    payload = name.encode()
    return Message(payload if size is None else payload.ljust(size, b"."), Content.BYTES, qos, id)


def messages(names: str, qos: int = 1) -> list[Message]:
    """Return one message for each letter."""
    return [message(name, qos=qos) for name in names]


def run(messages: Sequence[Message], first: int = 0) -> MessageRun:
    """Return messages that differ only in their payloads as a run, with offsets from ``first`` on."""
    one = messages[0]
    each = costOf(one) - len(one.payload)
    return MessageRun([message.payload for message in messages], one._replace(offset=0)[1:], each, first)


def names(deliveries: Sequence[QueueDelivery | LastDelivery | Message | None]) -> str:
    """Return the names of these messages in one string, ``-`` for none at all."""
    found = [each.message if isinstance(each, QueueDelivery | LastDelivery) else each for each in deliveries]
    return "".join("-" if each is None else each.payload.decode().rstrip(".") for each in found)


def only(deliveries: Sequence[QueueDelivery]) -> QueueDelivery | None:
    """Return the one delivery, None if there is none."""
    if not deliveries:
        return None
    [delivery] = deliveries
    return delivery


def paired(polled: tuple[Sequence[int], Sequence[Message]]) -> list[QueueDelivery]:
    """Return polled tags and messages as deliveries, as if each were the first of its message."""
    return [QueueDelivery(tag, message, 1) for tag, message in zip(*polled, strict=True)]


def consumeFrom(queues: WorkQueues, topic: str, number: int = 1) -> list[QueueDelivery]:
    """Consume so many messages of a topic, none if it has no queue."""
    queue = queues.get(topic)
    return [] if queue is None else queue.consumeMany(number)


class World:
    """A clock with deadlines, and what was counted, what died and what failed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.errors: list[Exception] = []
        self.deadlines = Deadlines(self.clock, onError=self.errors.append)
        self.counts: Counter[str] = Counter()
        self.dead: list[tuple[str, Message]] = []
        self.topics = TopicTable(1000, lambda topic: None)
        self.stateLog = StateLog(MemoryJournal(), self.deadlines, lambda queue, delivery, kept: kept(None), lambda: 0)

    def counted(self, event: str, number: int) -> None:
        """Remember a count."""
        self.counts[event] += number

    def onDead(self, queue: Queue, delivery: LastDelivery) -> None:
        """Remember a dead letter."""
        self.dead.append((queue.name, delivery.message))

    def makeQueue(self, **settings: Any) -> QueueFactory:
        """Return what makes queues in this world; keywords are fields of it."""
        chosen: dict[str, Any] = {
            "deadlines": self.deadlines,
            "redelivery": RETRY,
            "maxMessages": 100,
            "maxBytes": 100_000,
            "counted": self.counted,
        }
        limit = DeliveryLimit(
            settings.pop("maxDeliveries", 3),
            settings.pop("onDead", self.onDead),
            settings.pop("withdrawLetter", None),
            self.errors.append,
        )
        return QueueFactory(**{**chosen, "limit": limit, **settings})


class QueueCase(SynchronousTestCase):
    """One queue on a clock that the test moves."""

    def setUp(self) -> None:
        self.world = World()
        self.queue = self.make()

    def make(self, **settings: Any) -> Queue:
        fields = {field.name for field in (*dataclasses.fields(QueueFactory), *dataclasses.fields(DeliveryLimit))}
        fields |= {"maxDeliveries"}
        known = {name: value for name, value in settings.items() if name in fields}
        others = {name: value for name, value in settings.items() if name not in fields}
        return self.world.makeQueue(**known)(**{"name": "t", **others})

    def put(self, names: str) -> None:
        self.queue.deliver(messages(names), len(names))

    def take(self, number: int, holder: object = None) -> str:
        return names([only(self.queue.takeMany(holder, 1)) for _ in range(number)])

    def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def tearDown(self) -> None:
        self.assertEqual(self.world.errors, [])
