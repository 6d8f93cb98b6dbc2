"""Operations on queues for an operator: purge or move a queue, return or delete dead letters.

All work in slices, one per reactor turn, since a queue may hold a million messages, partly on disk.
"""

from dataclasses import dataclass
from functools import partial

from fleximq.broker.consumers.letter_filter import ALL_LETTERS, LetterFilter
from fleximq.broker.consumers.polled_subscriptions import PolledSubscriptions
from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.consumers.queue_transfer import (
    MAX_READS,
    Deletion,
    Done,
    LetterPublisher,
    QueueTransfer,
    Receiver,
)
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.publishing.publication_paths import OrderedPath
from fleximq.broker.queues.queue import Queue
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import NotFound
from fleximq.limits import DEAD

#: Messages dropped in one turn.
SLICE = 1000


@dataclass(eq=False, repr=False)
class QueueAdmin:
    """Acts for an operator; ``broker`` is the publisher of returned dead letters."""

    _broker: ConnectedClient
    _topics: TopicTable
    _workQueues: WorkQueues
    _subscriptions: PolledSubscriptions
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

    def returnDeadLetters(self, name: str, number: int, done: Done, wanted: LetterFilter = ALL_LETTERS) -> None:
        """Return up to ``number`` wanted dead letters into the queue ``name``, in which they died, oldest first; remove
        those that were stored.

        Of more than :data:`~fleximq.broker.consumers.queue_transfer.LOOKED_AT` letters only the oldest are looked at.
        After a crash in between, a letter may be in both queues. Raises NotFound without dead letters.
        """
        self._transferLetters(self._publisher(), name, number, done, wanted)

    def deleteDeadLetters(self, name: str, number: int, done: Done, wanted: LetterFilter = ALL_LETTERS) -> None:
        """Delete up to ``number`` wanted dead letters of the queue ``name``, as :meth:`returnDeadLetters` returns
        them.
        """
        self._transferLetters(Deletion(), name, number, done, wanted)

    def _transferLetters(self, receiver: Receiver, name: str, number: int, done: Done, wanted: LetterFilter) -> None:
        queue, topic = self._workQueues.get(DEAD + name), self._workQueues.letterTopic(name)
        if queue is None:
            other = "" if topic.startswith(DEAD) else f": they are messages of {topic!r}, which any client may move"
            raise NotFound(f"there are no dead letters of {name!r}{other}")
        number = min(number, queue.depth)
        QueueTransfer(receiver, queue, queue.queue, name, number, wanted, self._deadlines, done).goOn()

    def _publisher(self) -> LetterPublisher:
        return LetterPublisher(self._broker, self._topics, self._workQueues, self._subscriptions, self._orderedPath)

    def move(self, queue: WorkQueue, to: str, number: int, done: Done) -> None:
        """Move up to ``number`` of the messages that wait in a queue into the queue ``to``, made if need be: those of
        the highest priority first, each with its priority and as if never delivered; dead letters without their story.
        """
        lanes = [lane for lane in queue.lanes if lane.stored.depth]
        self._moveLane(queue, lanes, to, number, 0, None, done)

    def _moveLane(
        self, queue: WorkQueue, lanes: list[Queue], to: str, left: int, moved: int, reason: str | None, done: Done
    ) -> None:
        if not (lanes and left) or reason is not None:
            done(moved, reason)
            return

        def laneDone(given: int, reason: str | None) -> None:
            self._moveLane(queue, lanes[1:], to, left - given, moved + given, reason, done)

        lane, publisher = lanes[0], self._publisher()
        number = min(left, lane.stored.depth)
        QueueTransfer(publisher, queue, lane, to, number, ALL_LETTERS, self._deadlines, laneDone, number).goOn()
