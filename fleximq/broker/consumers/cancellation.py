"""Cancels a message that waits in a work queue, by its id: in memory, on disk, or delayed for a retry.

Messages on disk are read in portions, oldest first, since the queue does not know their ids.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice

from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.durable_backlog import DurableBacklog
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.broker.queues.message_reads import READ_BYTES
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_reader import READ_MESSAGES
from fleximq.interfaces import IJournalRead
from fleximq.values.message import Message

#: Receives whether the message was cancelled.
Done = Callable[[bool], None]


class Cancellation:
    """One request; a message that a consumer has, or that does not exist, is not cancelled."""

    __slots__ = ("_done", "_id", "_journal", "_queue", "_unread")

    def __init__(self, journal: IJournalRead, queue: WorkQueue, messageId: str, done: Done) -> None:
        self._journal = journal
        self._queue = queue
        self._id = messageId
        self._done = done
        self._unread: Iterator[tuple[Queue, int]] = iter(())

    def begin(self) -> None:
        """Look in memory, then on disk."""
        lanes = [*self._queue.lanes]
        if any(self._removeReturned(lane) or self._removeFromMemory(lane) for lane in lanes):
            self._done(True)
            return
        self._unread = chain.from_iterable(map(self._onDisk, lanes))
        self._read()

    def _isIt(self, message: Message) -> bool:
        return message.message_id == self._id

    def _removeReturned(self, lane: Queue) -> bool:
        """Remove a message that was delivered and waits again."""
        wanted = self._id
        found = next((each for each in lane.stored.waitingAgain() if each.message.message_id == wanted), None)
        return found is not None and self._removeDelivery(lane, found)

    def _removeDelivery(self, lane: Queue, delivery: QueueDelivery) -> bool:
        lane.stored.moved(delivery, True)
        return lane.acknowledge(delivery.tag)

    def _removeFromMemory(self, lane: Queue) -> bool:
        found = lane.stored.backlog.find(self._id)
        return found is not None and lane.withdraw(lane.stored.arrived, found.offset, self._isIt)

    @staticmethod
    def _onDisk(lane: Queue) -> Iterator[tuple[Queue, int]]:
        """Return the offsets of messages that are only on disk; some may leave meanwhile."""
        again = [each.message for each in lane.stored.waitingAgain()]
        offsets = sorted([each.offset for each in again if each.payload is ONLY_IN_JOURNAL])
        backlog = lane.stored.backlog
        unread = backlog.unread() if isinstance(backlog, DurableBacklog) else ()
        return ((lane, offset) for offset in chain(offsets, unread))

    def _read(self) -> None:
        portion = list(islice(self._unread, READ_MESSAGES))
        if not portion:
            self._done(False)
            return
        lanes = {offset: lane for lane, offset in portion}
        self._journal.fetch(sorted(lanes), READ_BYTES, partial(self._areRead, lanes))

    def _areRead(self, lanes: dict[int, Queue], messages: Sequence[Message]) -> None:
        for message in messages:
            if self._isIt(message) and self._removeAt(lanes[message.offset], message.offset):
                self._done(True)
                return
        until = messages[-1].offset if messages else max(lanes)
        rest = [(lane, offset) for offset, lane in sorted(lanes.items()) if offset > until]
        self._unread = chain(rest, self._unread)
        self._read()

    def _removeAt(self, lane: Queue, offset: int) -> bool:
        """Remove the message at this offset, wherever it waits by now."""
        found = next((each for each in lane.stored.waitingAgain() if each.message.offset == offset), None)
        if found is not None:
            return self._removeDelivery(lane, found)
        return lane.withdraw(0, offset, self._isIt)
