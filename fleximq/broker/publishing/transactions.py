"""Transactions: staged records are published together, and delivered in order with other publications.

After the commit of a transaction the broker reads its records back from the journal, a few milliseconds for a thousand.
Runs that are committed meanwhile wait for their delivery, and so does the journal's next checkpoint. While they have
more than :data:`OVERLOAD_BYTES`, publishers should not be read. After :data:`IN_ROW` commits without a moment in which
all transactions are delivered, further records are staged at the next such moment only, so that a checkpoint can be
written. Meanwhile clients may commit records that were staged before; after :data:`MOST_IN_ROW` commits without such a
moment the further records are staged in any case.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IJournal
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD, cost
from fleximq.values.records import OnCommitted, OnStaged, PublishedRun, Run, StoredBatch

#: The bytes of records that are read at a time.
CHUNK_BYTES = 1 << 20
#: The least number of bytes that a read counts for each record.
_RECORD_BYTES = 64
#: Waiting bytes above which publishers should not be read.
OVERLOAD_BYTES = 32 << 20
#: The number of commits, without a moment in which all transactions are delivered, after which staging waits for one.
IN_ROW = 16
#: The number of such commits after which it waits no longer: clients may have staged any number before.
MOST_IN_ROW = 1_000
#: The number of queries of which the last batch is remembered.
_QUERIES = 10_000

Deliver = Callable[[Envelope, Any, int], None]


class RecordSource(MessageSource):
    """The source of runs read from the journal; the body of a run is a :class:`StoredBatch`."""

    def messages(self, body: StoredBatch) -> Sequence[Message]:
        return body.messages()

    def run(self, body: StoredBatch) -> Run:
        return Run(body.headers, body.payloads, body.contents)

    def pick(self, body: StoredBatch, places: Sequence[int]) -> StoredBatch:
        return body.pick(places)


_RECORDS = RecordSource()


class _Waiting(NamedTuple):
    """A delivery that waits while a transaction is read back; ``size`` is the approximate memory of a run in bytes."""

    deliver: Callable[[], None]
    size: int = 0


class Transactions:
    """Commits staged records and preserves the order of publications after them.

    ``reading`` is True while a transaction is read back, ``lags`` until all that waited for it is delivered too: each
    of these deliveries may begin a commit. ``overloaded`` is True while ``waitingBytes``, the bytes that wait for it,
    exceed :data:`OVERLOAD_BYTES`: then publishers should not be read. They exceed it by little more than the journal's
    own bound of pending bytes.

    :param deliver: delivers a committed run to its subscribers.
    :param unread: called when a transaction cannot be read back, so that its records were not delivered.
    :param onError: called with the exception of a delivery; the next ones follow.
    """

    def __init__(
        self,
        journal: IJournal,
        topics: TopicTable,
        deliver: Deliver,
        unread: Callable[[], None],
        onError: Callable[[Exception], None],
    ) -> None:
        self._journal = journal
        self._topics = topics
        self._deliver = deliver
        self._unread = unread
        self._onError = onError
        self.reading = self.lags = False
        self._lastBatches: dict[str, int] = {}
        self._waiting: deque[_Waiting] = deque()
        self._publishers: set[ConnectedClient] = set()
        self._onRelief: list[Callable[[], None]] = []
        self.waitingBytes = 0
        self.overloaded = False
        #: The number of commits since the last moment in which all had results, and all transactions were delivered.
        self._inRow = 0
        #: The callbacks of the commits that have no result yet.
        self._undecided: set[OnCommitted] = set()
        #: The arguments of the calls of :meth:`stage` that wait for such a moment.
        self._toStage: list[tuple[str, int, str, Sequence[PublishedRun], OnStaged]] = []

    def holds(self, publisher: ConnectedClient) -> bool:
        """Return whether publications of this client may wait here for their delivery."""
        return publisher in self._publishers

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once, as soon as this is not ``overloaded``; perhaps at once."""
        if self.overloaded:
            self._onRelief.append(call)
        else:
            call()

    def waits(self, call: Callable[[], None]) -> bool:
        """Call when the publications that wait here now are delivered; without any, return False and do not call."""
        if self.reading:
            self._waiting.append(_Waiting(call))
        return self.reading

    def deliver(self, envelope: Envelope, body: Any, count: int) -> None:
        """Deliver a committed run after the transactions committed before it."""
        if not self.reading:
            self._deliver(envelope, body, count)
            return
        size = OVERHEAD + (len(body) if isinstance(body, bytes | memoryview) else cost(envelope.source.messages(body)))
        self._waiting.append(_Waiting(partial(self._deliver, envelope, body, count), size))
        self.waitingBytes += size
        self.overloaded = self.waitingBytes > OVERLOAD_BYTES
        self._publishers.add(envelope.publisher)

    def stage(self, query: str, batch: int, part: str, runs: Sequence[PublishedRun], found: OnStaged) -> None:
        """Store records for a later commit, see :meth:`fleximq.interfaces.IJournal`: at once, or later, as the module
        says. Until then ``found`` is not called.
        """
        if self._inRow < IN_ROW:
            self._journal.stage(query, batch, part, runs, found)
        else:
            self._toStage.append((query, batch, part, runs, found))

    def abort(self, query: str, batch: int) -> None:
        """Delete the uncommitted staged records of a batch, also those that wait."""
        waiting, self._toStage = self._toStage, []
        for each in waiting:
            if each[:2] == (query, batch):
                each[-1](None, "the batch was aborted")
            else:
                self._toStage.append(each)
        self._journal.abortStaged(query, batch)

    def commit(self, query: str, batch: int, tokens: Sequence[str], committed: OnCommitted) -> None:
        """Publish the staged records of one batch of a query; a repeat only reports the result of the first commit.

        :param tokens: those that the journal returned when the records were staged.
        :param committed: called with the offset of the first record and None, or with 0 and the reason of a failure.
        :raises NotKept: the journal stores nothing at present.
        """
        before = self._journal.end

        def decided(offset: int, reason: str | None) -> None:
            self._undecided.discard(decided)
            end = self._journal.end
            # A repeated batch was delivered by the first commit, or by one before the broker was restarted.
            if reason is None and offset >= before and self._lastBatches.get(query) != batch:
                self._lastBatches.pop(query, None)
                self._lastBatches[query] = batch
                if len(self._lastBatches) > _QUERIES:
                    del self._lastBatches[next(iter(self._lastBatches))]
                if offset < end:
                    self.deliverTransaction(offset, end)
            try:
                committed(offset, reason)
            finally:
                self._stageNext()

        self._inRow += 1
        self._undecided.add(decided)
        try:
            self._journal.commitStaged(query, batch, tokens, decided)
        except Exception:
            self._undecided.discard(decided)
            self._stageNext()
            raise

    def _stageNext(self) -> None:
        """Stage what waited, if all transactions are delivered, or there were too many. If all are, a segment that is
        due begins with the next commit.
        """
        if (self._undecided or self.lags) and self._inRow < MOST_IN_ROW:
            return
        self._inRow = 0
        waiting, self._toStage = self._toStage, []
        for each in waiting:
            try:
                self._journal.stage(*each)
            except Exception as error:
                self._onError(error)
                each[-1](None, str(error))

    def deliverTransaction(self, offset: int, end: int) -> None:
        """Deliver the records of a committed transaction, after earlier ones.

        :param offset: of its first record.
        :param end: the offset after its last record.
        """
        if self.reading:
            self._waiting.append(_Waiting(partial(self._read, offset, end)))
        else:
            self._read(offset, end)

    def _read(self, offset: int, end: int) -> None:
        self.reading = self.lags = True
        # No records after the transaction: a read that takes long while many follow would fall further behind.
        most = min(CHUNK_BYTES, _RECORD_BYTES * (end - offset))
        self._journal.read(offset, lambda name: True, most, partial(self._found, offset, end))

    def _found(self, offset: int, end: int, batches: Sequence[StoredBatch], nextOffset: int) -> None:
        """Deliver the records that were read; after the last one, run the waiting deliveries.

        ``nextOffset`` is the offset to continue at.
        """
        for batch in batches:
            for run in _runs(batch.pick(range(bisect_left(batch.offsets, end)))):
                self._attempt(partial(self._deliver, self._envelopeOf(run), run, len(run)))
        if offset < nextOffset < end:
            self._read(nextOffset, end)
            return
        if nextOffset <= offset < end:
            self._unread()
        self.reading = False
        while self._waiting and not self.reading:
            waiting = self._waiting.popleft()
            self.waitingBytes -= waiting.size
            self.overloaded = self.waitingBytes > OVERLOAD_BYTES
            self._attempt(waiting.deliver)
        self.lags = self.reading
        if not self._waiting:
            self._publishers.clear()
        if not self.overloaded:
            calls, self._onRelief = self._onRelief, []
            for call in calls:
                self._attempt(call)
        self._stageNext()

    def _attempt(self, call: Callable[[], None]) -> None:
        """Call; report an exception, so that the next ones are called in any case."""
        try:
            call()
        except Exception as error:
            self._onError(error)

    def deliverRecords(self, batch: StoredBatch) -> None:
        """Deliver committed records after the transactions committed before them."""
        for run in _runs(batch):
            self.deliver(self._envelopeOf(run), run, len(run))

    def _envelopeOf(self, run: StoredBatch) -> Envelope:
        publisherId, name = run.publishers[run.publisherOf[0]]
        topic = self._topics.get(run.topics[run.topicOf[0]])
        publisher = ConnectedClient(publisherId, "fleximq", name)
        return Envelope(topic, publisher, _RECORDS, durable=True, offset=run.offsets[0])


def _runs(batch: StoredBatch) -> Iterator[StoredBatch]:
    """Divide a batch into runs: neighbouring records of one topic, publisher and priority with consecutive offsets."""
    start, number = 0, len(batch)
    offsets, priorities = batch.offsets, batch.priorities()
    if number and priorities is None and offsets[-1] - offsets[0] == number - 1:
        # Most batches have one topic and publisher.
        if all(list(column).count(column[0]) == number for column in (batch.topicOf, batch.publisherOf)):
            yield batch
            return
    keys = list(zip(batch.topicOf, batch.publisherOf, priorities or repeat(0), strict=False))
    for place in range(1, len(batch) + 1):
        if place == len(batch) or keys[place] != keys[start] or offsets[place] != offsets[place - 1] + 1:
            yield batch.pick(range(start, place))
            start = place
