"""Publications that await a commit, and later ones of the same topics.

A durable run is delivered after its commit. Volatile runs published to its topic meanwhile wait in ``pendingRuns``, in
order; other topics are not affected. A run costs 2 us here, plus the journal's time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.observers import RecordWatchers
from fleximq.broker.publishing.transactions import Deliver, Transactions
from fleximq.broker.topics.topic_table import Topic, TopicTable
from fleximq.errors import NotKept, NotRecorded
from fleximq.interfaces import IJournalAppend
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.header_pairs import runWithSender

#: Pending volatile bytes above which their publishers should not be read.
OVERLOAD_BYTES = 32 << 20
#: Counted when the journal refuses messages.
REFUSED = CountedEvent(EventFamily.REFUSED_MESSAGES)


@dataclass(slots=True, eq=False)
class _Run:
    """A run in a topic's ``pendingRuns``; ``onDecided`` is called with the journal's decision if the run is durable,
    and ``time`` is when the journal took it.
    """

    envelope: Envelope
    body: Any
    number: int
    size: int
    recorded: bool
    deliver: Deliver
    onDecided: Callable[[str | None], None] | None = None
    time: int = 0


@dataclass(eq=False, repr=False)
class PendingCommits:
    """Appends runs to the journal and delivers them after their commits.

    :param deliver: delivers a run to its topic's subscribers; ``transactions`` do while one of them is read back.
    :param publishing: called with the publisher before its publications are delivered after a commit, and with None
        after that.
    """

    _journal: IJournalAppend
    _topics: TopicTable
    _deliver: Deliver
    _transactions: Transactions
    _counted: Callable[[str, int], None]
    _publishing: Callable[[ConnectedClient | None], None]
    _watchers: RecordWatchers
    #: True while a run is appended: then its publisher is the client being read, and is not announced.
    _appending: bool = False
    _waiting: int = 0

    @property
    def overloaded(self) -> bool:
        """Whether so many bytes await the disk that publishers should not be read."""
        return self._waiting > OVERLOAD_BYTES or self._journal.overloaded

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call when ``overloaded`` should be checked again."""
        if self._waiting > OVERLOAD_BYTES:
            self._journal.whenCommitted(call)
        else:
            self._journal.whenRelieved(call)

    def append(
        self,
        envelope: Envelope,
        body: Any,
        count: int,
        size: int = 0,
        onDecided: Callable[[str | None], None] | None = None,
    ) -> None:
        """Append a run, whose topic must be in the table, to the journal, and deliver it after its commit.

        :param size: the bytes of its messages, if guards are asked about pending bytes.
        :param onDecided: called with None after the commit, or with the reason of the refusal; perhaps before this
            returns.
        :raises NotRecorded: the journal stores nothing at present; the run is not published.
        """
        topic, publisher = envelope.topic, envelope.publisher
        if not topic.pendingRuns:
            self._topics.beginPending(topic)
        line = topic.pendingRuns
        run = _Run(envelope, body, count, size, True, self._deliver, onDecided)
        line.append(run)
        if envelope.qos:
            topic.pendingCount += count
            topic.pendingBytes += size
        if self._watchers.present:
            self._watchers.appended(envelope, body, count)
        self._appending = True
        try:
            stored = envelope.source.run(body)
            if publisher.sender:
                stored = runWithSender(stored, publisher.sender)
            if len(stored.payloads) != count:
                raise ValueError(f"the source of a run of {count} found {len(stored.payloads)} messages")
            topic.last = publisher.lastRun = self._journal.append(
                topic.name, publisher.id, publisher.name, publisher.dialect, stored, partial(self._committed, run)
            )
            run.time = self._journal.time
        except Exception as error:
            line.pop()
            self._resolve(topic, run)
            if self._watchers.present:
                self._watchers.decided(envelope, body, count, str(error))
            if isinstance(error, NotKept):
                self._counted(REFUSED, count)
                raise NotRecorded(error.reason, range(count)) from error
            raise
        finally:
            self._appending = False

    def wait(self, envelope: Envelope, body: Any, count: int, deliver: Deliver) -> None:
        """Call ``deliver`` with a volatile run after all earlier pending runs of its topic are decided."""
        topic = envelope.topic
        size = len(body) if isinstance(body, bytes | memoryview) else envelope.source.size(body)
        topic.pendingRuns.append(_Run(envelope, body, count, size, False, deliver))
        self._waiting += size
        envelope.publisher.lastRun = max(envelope.publisher.lastRun, topic.last)

    def _committed(self, run: _Run, offset: int, reason: str | None) -> None:
        """Handle the journal's decision on a topic's first pending run; decisions arrive in the order of runs."""
        envelope = run.envelope
        envelope.topic.pendingRuns.popleft()
        if self._watchers.present:
            self._watchers.decided(envelope._replace(offset=offset), run.body, run.number, reason)
        if not self._appending:
            self._publishing(envelope.publisher)
        try:
            if reason is None:
                deliver = self._transactions.deliver if self._transactions.reading else self._deliver
                deliver(envelope._replace(offset=offset, time=run.time), run.body, run.number)
            else:
                self._counted(REFUSED, run.number)
        finally:
            self._resolve(envelope.topic, run)
            if not self._appending:
                self._publishing(None)
            if run.onDecided is not None:
                run.onDecided(reason)

    def _resolve(self, topic: Topic, run: _Run) -> None:
        """Remove a decided run, and deliver the volatile runs after it."""
        if run.envelope.qos:
            topic.pendingCount -= run.number
            topic.pendingBytes -= run.size
        line = topic.pendingRuns
        while line and not line[0].recorded:
            next = line.popleft()
            self._waiting -= next.size
            if not self._appending:
                self._publishing(next.envelope.publisher)
            next.deliver(next.envelope, next.body, next.number)
        if not line:
            self._topics.endPending(topic)
