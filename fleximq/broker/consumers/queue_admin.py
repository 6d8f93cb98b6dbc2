"""What an operator does to queues: throws away what waits in one, or gives dead letters another try.

Both work in portions, a few messages in each turn, for a queue may hold a million and some of it may be on disk.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from fleximq.broker.consumers.work_queue_access import WorkQueueAccess
from fleximq.broker.consumers.work_queues import WorkQueue
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.presence import OwnMessages
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import BrokerError, NotFound, NotKept
from fleximq.limits import DEAD

#: So many messages are thrown away, or so many dead letters published, in one turn.
SLICE, LETTERS = 1000, 100
#: So often the journal may give nothing back before a message is left where it is.
MAX_READS = 3

#: Is given how many messages it was, and why it were not more, if that was not all.
Done = Callable[[int, str | None], None]


class Purged(Protocol):
    """A queue, or a subscription that has one."""

    @property
    def depth(self) -> int:
        """How many messages wait."""

    @property
    def loading(self) -> bool:
        """Whether the next one has to be read first."""

    def whenLoaded(self, call: Callable[[], object]) -> None:
        """Call when it was."""

    def discard(self, number: int) -> int:
        """Throw the oldest away, and return how many those were."""


class QueueAdmin:
    """Acts for an operator.

    :param broker: who publishes dead letters once more.
    """

    def __init__(
        self,
        broker: ConnectedClient,
        topics: TopicTable,
        workQueues: WorkQueueAccess,
        publishing: SlowPath,
        deadlines: Deadlines,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._workQueues = workQueues
        self._publishing = publishing
        self._deadlines = deadlines
        self._source = OwnMessages()

    def purge(self, queue: Purged, done: Done) -> None:
        """Throw away what waits in a queue now; what is in flight stays, and so does what comes meanwhile."""
        self._discard(queue, queue.depth, 0, MAX_READS, done)

    def _discard(self, queue: Purged, left: int, gone: int, patience: int, done: Done) -> None:
        thrown = queue.discard(min(left, SLICE))
        left, gone = left - thrown, gone + thrown
        if left > 0 and thrown:
            self._deadlines.call(0, partial(self._discard, queue, left, gone, MAX_READS, done))
        elif left > 0 and queue.loading and patience:
            queue.whenLoaded(partial(self._discard, queue, left, gone, patience - 1, done))
        else:
            done(gone, "the rest cannot be read" if left > 0 and queue.loading else None)

    def returnDeadLetters(self, topic: str, number: int, done: Done) -> None:
        """Publish dead letters to the topic that they were for, oldest first, and take those away that were kept there.

        Where nobody subscribes to it, it gets a work queue. A crash in between leaves a letter in both places.

        :param topic: without what stands before the names of dead-letter topics.
        :param number: at most so many; those that come meanwhile are not among them.
        :raises NotFound: there are none of this topic.
        """
        queue = self._workQueues.queues.get(DEAD + topic)
        if queue is None:
            raise NotFound(f"there are no dead letters of {topic!r}")
        _DeadLetterReturn(self, queue, topic, min(number, queue.depth), self._deadlines, done).goOn()

    def publishAgain(
        self, topic: str, delivery: QueueDelivery, durable: bool, onDecided: Callable[[str | None], None]
    ) -> None:
        """Publish one dead letter; ``onDecided`` is given None when it is kept, as far as it is to be, or why it is
        not.

        :raises BrokerError: it is not taken at all.
        """
        found = self._topics.get(topic)
        if not self._topics.subscribers(found):
            self._workQueues.ensure(topic)
        envelope = Envelope(found, self._broker, self._source, 1, durable)
        message = delivery.message._replace(offset=0)
        queue = self._workQueues.queues.get(topic)
        refusal = None if queue is None else self._workQueues.refusal(queue, envelope, message, 1)
        if refusal is not None:
            raise NotKept(refusal)
        recorded = self._publishing.isRecorded(envelope)
        self._publishing.publish(envelope, message, 1, lambda reason, places: onDecided(reason))
        if not recorded:
            onDecided(None)


class _DeadLetterReturn:
    """One such act, from its first letter to its last."""

    def __init__(
        self, admin: QueueAdmin, queue: WorkQueue, topic: str, number: int, deadlines: Deadlines, done: Done
    ) -> None:
        self._admin = admin
        self._queue = queue
        self._topic = topic
        self._left = number
        self._deadlines = deadlines
        self._done = done
        self._given = self._untold = 0
        self._patience = MAX_READS
        self._reason: str | None = None

    def goOn(self) -> None:
        """Publish the next few."""
        deliveries = self._queue.takeForOperator(self, min(self._left, LETTERS)) if self._left else []
        if not deliveries and self._left and self._queue.loading and self._patience:
            self._patience -= 1
            self._queue.whenLoaded(self.goOn)
            return
        self._left = self._left - len(deliveries) if deliveries else 0
        self._untold = len(deliveries) + 1
        for delivery in deliveries:
            self._publish(delivery)
        self._oneDecided()

    def _publish(self, delivery: QueueDelivery) -> None:
        if self._reason is not None:
            self._oneDecided()
            return
        try:
            self._admin.publishAgain(self._topic, delivery, self._queue.durable, partial(self._kept, delivery))
        except BrokerError as error:
            self._reason = str(error)
            self._oneDecided()

    def _kept(self, delivery: QueueDelivery, reason: str | None) -> None:
        if reason is None:
            self._queue.forgetDelivery(delivery)
            self._given += 1
        else:
            self._reason = reason
        self._oneDecided()

    def _oneDecided(self) -> None:
        self._untold -= 1
        if self._untold:
            return
        if self._left and self._reason is None:
            self._deadlines.call(0, self.goOn)
        else:
            self._queue.returnAll(self)
            self._done(self._given, self._reason)
