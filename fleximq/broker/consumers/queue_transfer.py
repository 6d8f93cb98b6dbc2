"""Takes messages out of a queue for an operator: returns dead letters into the queues in which their messages died,
without the story and as if never delivered; moves waiting messages into another queue; deletes dead letters.

Other subscribers do not receive them again: they are published to ``$queue/`` and the name of the queue, which feeds
this queue alone, or to ``$subscription/`` and the id of a BlipMQ subscription. A letter of a subscription that has
ended is published to its topic.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fleximq.broker.consumers.letter_filter import LetterFilter, deathOf
from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.polled_subscriptions import PolledSubscriptions
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.presence import OWN_MESSAGES
from fleximq.broker.publishing.publication_paths import OrderedPath
from fleximq.broker.queues.queue import Queue
from fleximq.broker.topics.topic_table import Topic, TopicTable
from fleximq.errors import BrokerError, NotKept
from fleximq.limits import FEED, SUBSCRIPTION_FEED
from fleximq.values.death import returnedPairs
from fleximq.values.message import Message
from fleximq.values.publication_head import headOf
from fleximq.values.records import headerOf

#: Messages looked at in one turn, and in one operation: they are hidden meanwhile.
LETTERS, LOOKED_AT = 100, 100_000
#: Attempts to read from the journal before a message is left in place.
MAX_READS = 3

#: Receives the number of messages, and the reason if the operation is incomplete.
Done = Callable[[int, str | None], None]


class Receiver(Protocol):
    """Receives single messages of a queue."""

    def publish(self, name: str, letter: Message, durable: bool, onDecided: Callable[[str | None], None]) -> None:
        """Take a message for the queue ``name``; ``onDecided`` gets None if it has it, else the reason. Raises
        BrokerError.
        """

    def end(self) -> None:
        """Clean up after the last message."""


class Deletion:
    """Deletes the messages that it receives."""

    def publish(self, name: str, letter: Message, durable: bool, onDecided: Callable[[str | None], None]) -> None:
        """See :class:`Receiver`."""
        onDecided(None)

    def end(self) -> None:
        """See :class:`Receiver`."""


@dataclass(eq=False, repr=False)
class LetterPublisher:
    """Publishes single messages again, as ``broker``; dead letters without their story."""

    _broker: ConnectedClient
    _topics: TopicTable
    _workQueues: WorkQueues
    _subscriptions: PolledSubscriptions
    _orderedPath: OrderedPath
    _fed: dict[str, WorkQueue | PolledSubscription] = field(default_factory=dict)

    def publish(self, name: str, letter: Message, durable: bool, onDecided: Callable[[str | None], None]) -> None:
        """See :class:`Receiver`."""
        death = deathOf(letter)
        topic = self._topicOf(name, 0 if death is None else death.subscription)
        pairs = returnedPairs(headerOf(letter), name if death is None else death.topic or name)
        message = letter._replace(offset=0, head=headOf(topic.name, pairs, BROKER_ID))
        envelope = Envelope(topic, self._broker, OWN_MESSAGES, 1, durable)
        queue = self._workQueues.get(name) if topic.queues else None
        refusal = None if queue is None else self._workQueues.refusal(queue, envelope, message, 1)
        if refusal is not None:
            raise NotKept(refusal)
        recorded = self._orderedPath.isRecorded(envelope)
        self._orderedPath.publish(envelope, message, 1, lambda reason, places: onDecided(reason))
        if not recorded:
            onDecided(None)

    def _topicOf(self, name: str, subscriptionId: int) -> Topic:
        """Return the topic that feeds the queue in which a message died."""
        if not subscriptionId:
            return self._feed(FEED + name, self._workQueues.ensure(name))
        subscription = self._subscriptions.get(subscriptionId)
        if subscription is not None and subscription.topic == name:
            return self._feed(f"{SUBSCRIPTION_FEED}{subscriptionId}", subscription)
        found = self._topics.get(name)
        if not self._topics.subscribers(found):
            self._workQueues.ensure(name)
        return found

    def _feed(self, name: str, target: WorkQueue | PolledSubscription) -> Topic:
        if name not in self._fed:
            self._fed[name] = target
            isQueue = isinstance(target, WorkQueue)
            guard = target if isinstance(target, PolledSubscription) else None
            self._topics.subscribe(target, name, guard=guard, queue=isQueue, durable=target.durable)
        return self._topics.get(name)

    def end(self) -> None:
        """Unsubscribe the queues that were fed, after the last letter is published."""
        for name, target in self._fed.items():
            self._topics.unsubscribe(target, name, queue=isinstance(target, WorkQueue))
        self._fed.clear()


@dataclass(eq=False, repr=False)
class QueueTransfer:
    """One operation, from its first message to its last: takes up to ``left`` messages that a filter accepts.

    :param receiver: receives them, for the queue ``name``.
    :param queue: the queue with the messages, and ``lane`` those of one priority in it.
    """

    _receiver: Receiver
    _queue: WorkQueue
    _lane: Queue
    _name: str
    _left: int
    _wanted: LetterFilter
    _deadlines: Deadlines
    _done: Done
    _unseen: int = LOOKED_AT
    _given: int = 0
    _undecided: int = 0
    _patience: int = MAX_READS
    _reason: str | None = None

    def goOn(self) -> None:
        """Take the next messages, and pass on those that are wanted."""
        number = min(self._unseen, LETTERS) if self._left else 0
        deliveries = self._lane.takeMany(self, number, ofAnyKey=True) if number else []
        if not deliveries and number and self._lane.preparing and self._patience:
            self._patience -= 1
            self._lane.whenPrepared(self.goOn)
            return
        self._unseen = self._unseen - len(deliveries) if deliveries else 0
        wanted = [each for each in deliveries if self._wanted.accepts(each.message)][: self._left]
        self._left -= len(wanted)
        self._undecided = len(wanted) + 1
        for delivery in wanted:
            self._publish(delivery)
        self._oneDecided()

    def _publish(self, delivery: QueueDelivery) -> None:
        if self._reason is not None:
            self._oneDecided()
            return
        decided = partial(self._decided, delivery)
        try:
            self._receiver.publish(self._name, delivery.message, self._queue.durable, decided)
        except BrokerError as error:
            self._decided(delivery, str(error))

    def _decided(self, delivery: QueueDelivery, reason: str | None) -> None:
        if reason is None:
            self._queue.forgetDelivery(self._lane, delivery)
            self._given += 1
        else:
            self._reason = reason
        self._oneDecided()

    def _oneDecided(self) -> None:
        self._undecided -= 1
        if self._undecided:
            return
        if self._left and self._unseen and self._reason is None:
            self._deadlines.callLater(0, self.goOn)
        else:
            self._lane.release(self)
            self._receiver.end()
            self._done(self._given, self._reason)
