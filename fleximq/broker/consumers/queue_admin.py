"""Operations on queues for an operator: purge a queue, return dead letters.

Both work in slices, one per reactor turn, since a queue may hold a million messages, partly on disk.
"""

from dataclasses import dataclass
from functools import partial

from fleximq.broker.consumers.dead_letter_return import MAX_READS, DeadLetterReturn, Done, LetterPublisher
from fleximq.broker.consumers.letter_filter import ALL_LETTERS, LetterFilter
from fleximq.broker.consumers.polled_subscriptions import PolledSubscriptions
from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.publishing.publication_paths import OrderedPath
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

        Of more than :data:`~fleximq.broker.consumers.dead_letter_return.LOOKED_AT` letters only the oldest are looked
        at. After a crash in between, a letter may be in both queues. Raises NotFound without dead letters.
        """
        queue, topic = self._workQueues.get(DEAD + name), self._workQueues.letterTopic(name)
        if queue is None:
            other = "" if topic.startswith(DEAD) else f": they are messages of {topic!r}, which any client may move"
            raise NotFound(f"there are no dead letters of {name!r}{other}")
        publisher = LetterPublisher(
            self._broker, self._topics, self._workQueues, self._subscriptions, self._orderedPath
        )
        DeadLetterReturn(publisher, queue, name, min(number, queue.depth), wanted, self._deadlines, done).goOn()
