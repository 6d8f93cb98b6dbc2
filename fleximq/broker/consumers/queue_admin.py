"""Operations on queues for an operator: purge a queue, return dead letters to their topic.

Both work in slices, one per reactor turn, since a queue may hold a million messages, partly on disk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.presence import OWN_MESSAGES
from fleximq.broker.publishing.publication_paths import OrderedPath
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import BrokerError, NotFound, NotKept
from fleximq.limits import DEAD

#: Messages dropped, and dead letters published, in one turn.
SLICE, LETTERS = 1000, 100
#: Attempts to read from the journal before a message is left in place.
MAX_READS = 3

#: Receives the number of messages, and the reason if the operation is incomplete.
Done = Callable[[int, str | None], None]


@dataclass(eq=False, repr=False)
class QueueAdmin:
    """Acts for an operator; ``broker`` is the publisher of returned dead letters."""

    _broker: ConnectedClient
    _topics: TopicTable
    _workQueues: WorkQueues
    _orderedPath: OrderedPath
    _deadlines: Deadlines

    def purge(self, queue: QueueOwner, done: Done) -> None:
        """Drop the messages waiting now; those in flight and those that arrive meanwhile remain."""
        self._discard(queue, queue.depth, 0, MAX_READS, done)

    def _discard(self, queue: QueueOwner, left: int, gone: int, patience: int, done: Done) -> None:
        thrown = queue.discard(min(left, SLICE))
        left, gone = left - thrown, gone + thrown
        if left > 0 and thrown:
            self._deadlines.callLater(0, partial(self._discard, queue, left, gone, MAX_READS, done))
        elif left > 0 and queue.preparing and patience:
            queue.whenPrepared(partial(self._discard, queue, left, gone, patience - 1, done))
        else:
            done(gone, "the rest cannot be read" if left > 0 and queue.preparing else None)

    def returnDeadLetters(self, topic: str, number: int, done: Done) -> None:
        """Publish up to ``number`` dead letters to their original topic, oldest first; remove those that were stored.

        A topic, named without its prefix, gets a work queue if it has no subscribers. After a crash in between, a
        letter may be in both queues. Raises NotFound without dead letters.
        """
        queue = self._workQueues.get(DEAD + topic)
        if queue is None:
            raise NotFound(f"there are no dead letters of {topic!r}")
        _DeadLetterReturn(self, queue, topic, min(number, queue.depth), self._deadlines, done).goOn()

    def publishAgain(
        self, topic: str, delivery: QueueDelivery, durable: bool, onDecided: Callable[[str | None], None]
    ) -> None:
        """Publish one dead letter; ``onDecided`` gets None if it is published, else the reason. Raises BrokerError."""
        found = self._topics.get(topic)
        if not self._topics.subscribers(found):
            self._workQueues.ensure(topic)
        envelope = Envelope(found, self._broker, OWN_MESSAGES, 1, durable)
        message = delivery.message._replace(offset=0)
        queue = self._workQueues.get(topic)
        refusal = None if queue is None else self._workQueues.refusal(queue, envelope, message, 1)
        if refusal is not None:
            raise NotKept(refusal)
        recorded = self._orderedPath.isRecorded(envelope)
        self._orderedPath.publish(envelope, message, 1, lambda reason, places: onDecided(reason))
        if not recorded:
            onDecided(None)


@dataclass(eq=False, repr=False)
class _DeadLetterReturn:
    """One operation, from its first letter to its last."""

    _admin: QueueAdmin
    _queue: WorkQueue
    _topic: str
    _left: int
    _deadlines: Deadlines
    _done: Done
    _given: int = 0
    _undecided: int = 0
    _patience: int = MAX_READS
    _reason: str | None = None

    def goOn(self) -> None:
        deliveries = self._queue.queue.takeMany(self, min(self._left, LETTERS)) if self._left else []
        if not deliveries and self._left and self._queue.preparing and self._patience:
            self._patience -= 1
            self._queue.whenPrepared(self.goOn)
            return
        self._left = self._left - len(deliveries) if deliveries else 0
        self._undecided = len(deliveries) + 1
        for delivery in deliveries:
            self._publish(delivery)
        self._oneDecided()

    def _publish(self, delivery: QueueDelivery) -> None:
        if self._reason is not None:
            self._oneDecided()
            return
        try:
            self._admin.publishAgain(self._topic, delivery, self._queue.durable, partial(self._decided, delivery))
        except BrokerError as error:
            self._decided(delivery, str(error))

    def _decided(self, delivery: QueueDelivery, reason: str | None) -> None:
        if reason is None:
            self._queue.forgetDelivery(delivery)
            self._given += 1
        else:
            self._reason = reason
        self._oneDecided()

    def _oneDecided(self) -> None:
        self._undecided -= 1
        if self._undecided:
            return
        if self._left and self._reason is None:
            self._deadlines.callLater(0, self.goOn)
        else:
            self._queue.queue.release(self)
            self._done(self._given, self._reason)
