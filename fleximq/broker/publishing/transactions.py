"""What was staged and is committed: published all at once, and brought to subscribers in its place in the order.

The broker does not hold what is staged. So after a commit it is read back, which takes a moment, and what is committed
behind it waits for so long. That moment is a few milliseconds for a thousand records. For the longer ones there is a
bound on what waits: beyond it those who publish are not read.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.queues.waiting_messages import OVERHEAD, cost
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IJournal, IRunSource
from fleximq.values.message import Message
from fleximq.values.records import Run, StoredBatch

#: So many bytes are read at a time.
PORTION = 1 << 20
#: When runs of so many bytes wait, those who publish such should not be read.
OVERLOAD_BYTES = 32 << 20
#: Of so many queries the last batch is remembered.
_QUERIES = 10_000

Deliver = Callable[[Envelope, Any, int], None]


@implementer(IRunSource)
class RecordSource:
    """The source of records that were read back: a body is a batch of them."""

    def messages(self, body: StoredBatch) -> Sequence[Message]:
        """Return the records as messages."""
        return body.messages()

    def run(self, body: StoredBatch) -> Run:
        """Return the records as they were kept."""
        return Run(body.headers, body.payloads, body.contents)

    def pick(self, body: StoredBatch, places: Sequence[int]) -> StoredBatch:
        """Return the records at these places."""
        return body.pick(places)


class _Waiting(NamedTuple):
    """A run, or a transaction, that was committed at this offset and is to be brought; 0: whoever waits for that.

    ``size`` is what it takes in memory, about.
    """

    offset: int
    bring: Callable[[], None]
    size: int = 0


class Transactions:
    """Commits what was staged, and keeps the order behind it.

    ``reading`` is True while a transaction is read back. ``overloaded`` says that so much waits for it that those who
    publish should not be read. They have one read each before they notice, and what is on its way to the disk then
    comes as well; so ``held``, the bytes that wait, is never much more than :data:`OVERLOAD_BYTES` and what the journal
    lets wait.

    :param deliver: brings a run that was committed to those who subscribe.
    :param unread: called when a transaction cannot be read back, so that nobody gets it now.
    """

    def __init__(self, journal: IJournal, topics: TopicTable, deliver: Deliver, unread: Callable[[], None]) -> None:
        self._journal = journal
        self._topics = topics
        self._deliver = deliver
        self._unread = unread
        self._source = RecordSource()
        self.reading = False
        self._brought: dict[str, int] = {}
        self._waiting: deque[_Waiting] = deque()
        self._publishers: set[ConnectedClient] = set()
        self._room: list[Callable[[], None]] = []
        self.held = 0
        self.overloaded = False

    def holds(self, publisher: ConnectedClient) -> bool:
        """Tell whether something that a client published may wait here."""
        return publisher in self._publishers

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once it is not ``overloaded``; at once if it is not."""
        if self.overloaded:
            self._room.append(call)
        else:
            call()

    def waits(self, call: Callable[[], None]) -> bool:
        """Tell whether something that was committed is still to be brought, and call when it was."""
        if self.reading:
            self._waiting.append(_Waiting(0, call))
        return self.reading

    def deliver(self, envelope: Envelope, body: Any, count: int) -> None:
        """Bring a run that was committed, behind the transactions that were committed before it."""
        if not self.reading:
            self._deliver(envelope, body, count)
            return
        size = _sizeOf(envelope, body)
        self._waiting.append(_Waiting(envelope.offset, partial(self._deliver, envelope, body, count), size))
        self.held += size
        self.overloaded = self.held > OVERLOAD_BYTES
        self._publishers.add(envelope.publisher)

    def commit(
        self, query: str, batch: int, tokens: Sequence[str], committed: Callable[[int, str | None], None]
    ) -> None:
        """Publish what these tokens stand for; a repeat for the same query and batch is told the same, and no more.

        :param committed: given the offset of the first record, or 0 and why it cannot be.
        :raises NotKept: the journal takes nothing at present.
        """
        behind = self._journal.end

        def told(offset: int, reason: str | None) -> None:
            # A repeat was brought before, or has an offset from before the broker was started.
            if reason is None and offset >= behind and self._brought.get(query) != batch:
                self._brought.pop(query, None)
                self._brought[query] = batch
                if len(self._brought) > _QUERIES:
                    del self._brought[next(iter(self._brought))]
                self._bring(offset)
            committed(offset, reason)

        self._journal.commitStaged(query, batch, tokens, told)

    def _bring(self, offset: int) -> None:
        end = self._journal.end
        if self.reading:
            self._waiting.append(_Waiting(offset, partial(self._begin, offset, end)))
        else:
            self._begin(offset, end)

    def _begin(self, offset: int, end: int) -> None:
        self.reading = True
        self._read(offset, end)

    def _read(self, offset: int, end: int) -> None:
        self._journal.read(offset, lambda name: True, PORTION, partial(self._found, offset, end))

    def _found(self, offset: int, end: int, batches: Sequence[StoredBatch], next: int) -> None:
        """Bring what was read; it ends where what was committed behind it begins."""
        until = self._until(end)
        for batch in batches:
            for run in _runs(batch.pick(range(bisect_left(batch.offsets, until)))):
                self._bringRun(run)
        if offset < next < until:
            self._read(next, end)
            return
        if next <= offset < until:
            self._unread()
        self.reading = False
        while self._waiting and not self.reading:
            waiting = self._waiting.popleft()
            self.held -= waiting.size
            self.overloaded = self.held > OVERLOAD_BYTES
            waiting.bring()
        self._makeRoom()

    def _makeRoom(self) -> None:
        if not self._waiting:
            self._publishers.clear()
        if not self.overloaded:
            calls, self._room = self._room, []
            for call in calls:
                call()

    def _until(self, end: int) -> int:
        """Return the offset of the first that waits, at most ``end``; they wait in their order."""
        return next((min(waiting.offset, end) for waiting in self._waiting if waiting.offset), end)

    def _bringRun(self, run: StoredBatch) -> None:
        id, name = run.publishers[run.publisherOf[0]]
        topic = self._topics.get(run.topics[run.topicOf[0]])
        publisher = ConnectedClient(id, "fleximq", name)
        self._deliver(Envelope(topic, publisher, self._source, durable=True, offset=run.offsets[0]), run, len(run))


def _sizeOf(envelope: Envelope, body: Any) -> int:
    """Return about how many bytes a run takes while it waits."""
    return OVERHEAD + (len(body) if isinstance(body, bytes) else cost(envelope.source.messages(body)))


def _runs(batch: StoredBatch) -> Iterator[StoredBatch]:
    """Yield neighbouring records of one topic and publisher, with offsets that follow one another."""
    start, number = 0, len(batch)
    offsets = batch.offsets
    if number and offsets[-1] - offsets[0] == number - 1:
        # Most are of one topic and publisher.
        if all(list(column).count(column[0]) == number for column in (batch.topicOf, batch.publisherOf)):
            yield batch
            return
    keys = list(zip(batch.topicOf, batch.publisherOf, strict=True))
    for place in range(1, len(batch) + 1):
        if place == len(batch) or keys[place] != keys[start] or offsets[place] != offsets[place - 1] + 1:
            yield batch.pick(range(start, place))
            start = place
