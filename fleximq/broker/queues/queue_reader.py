"""Reads the messages of one durable queue from the journal: the next ones of its backlog, and those that returned."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.durable_backlog import DurableBacklog
from fleximq.broker.queues.key_order import keyOf
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.broker.queues.message_reads import readMessages
from fleximq.broker.queues.queue import Queue
from fleximq.interfaces import IJournal
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.message import Message
from fleximq.values.message_cost import costOf

#: Counted when the journal cannot return a message.
LOST = CountedEvent(EventFamily.LOST, "damaged journal")
#: Messages read at once.
READ_MESSAGES = 4096
_new = tuple.__new__


class QueueReader:
    """Runs one read at a time for ``queue``.

    :param withIds: returns messages with the ids that they had.
    :param gone: called with the offsets of lost messages.
    """

    __slots__ = ("_backlog", "_gone", "_journal", "_reading", "_withIds", "queue")

    queue: Queue

    def __init__(
        self,
        journal: IJournal,
        backlog: DurableBacklog,
        withIds: Callable[[Sequence[Message]], Sequence[Message]],
        gone: Callable[[Iterable[int]], None],
    ) -> None:
        self._journal = journal
        self._backlog = backlog
        self._withIds = withIds
        self._gone = gone
        self._reading = False

    def load(self) -> None:
        """Read the next messages of the queue if they are not in memory, unless a read is running."""
        queue = self.queue
        if self._reading or queue.closed:
            return
        order = queue.stored.order
        if order is not None and order.unread:
            offsets = sorted(order.unread.values())[:READ_MESSAGES]
            self._read(offsets, partial(self._keysRead, offsets))
            return
        again = queue.stored.returned.first() if queue.stored.returned else None
        if again is not None and again.message.payload is ONLY_IN_JOURNAL:
            firsts = queue.stored.returned.firsts(READ_MESSAGES)
            places = [each for each in firsts if each.message.payload is ONLY_IN_JOURNAL]
            self._read([each.message.offset for each in places], partial(self._returnedRead, places))
        elif self._backlog.isShort:
            wanted = self._backlog.wanted(READ_MESSAGES)
            if wanted:
                self._read(wanted, partial(self._backlogRead, wanted))
            else:
                self._done()

    def _read(self, offsets: Sequence[int], call: Callable[[Sequence[Message]], None]) -> None:
        self._reading = True
        readMessages(self._journal, self.queue, offsets, call)

    def _keysRead(self, offsets: Sequence[int], messages: Sequence[Message]) -> None:
        self._reading = False
        order = self.queue.stored.order
        if self.queue.closed:
            return
        if order is not None:
            until = messages[-1].offset if messages else offsets[-1]
            order.read({message.offset: keyOf(message) for message in messages}, until)
        self._done()

    def _returnedRead(self, places: Sequence[QueueDelivery], messages: Sequence[Message]) -> None:
        queue = self.queue
        self._reading = False
        if queue.closed:
            return
        found = {message.offset: message for message in self._withIds(messages)}
        until = messages[-1].offset if messages else places[-1].message.offset
        for place in places:
            message = found.get(place.message.offset)
            before = queue.stored.returned.get(place.tag)  # by now it may have its id
            if before is None:
                continue
            if message is not None:
                queue.stored.returned.replace(_new(QueueDelivery, (place.tag, message, place.attempts)))
                queue.stored.size += costOf(message) - costOf(before.message)
            elif place.message.offset <= until:
                queue.stored.returned.remove(place.tag)
                queue.stored.size -= costOf(before.message)
                queue.stored.moved(before, True)
                queue.stored.ended([place.tag])
                self._lost([place.message.offset])
        self._done()

    def _backlogRead(self, wanted: Sequence[int], messages: Sequence[Message]) -> None:
        self._reading = False
        if self.queue.closed:
            return
        size, lost = self._backlog.addRead(wanted, self._withIds(messages))
        self.queue.stored.size += size
        self._lost(lost)
        self._done()

    def _lost(self, offsets: Sequence[int]) -> None:
        if offsets:
            self.queue.stored.counted(LOST, len(offsets))
            self._gone(offsets)

    def _done(self) -> None:
        self.load()
        self.queue.prepared()
