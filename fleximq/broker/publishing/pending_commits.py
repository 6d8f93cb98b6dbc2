"""Publications on their way to the disk, and what waits behind them.

What goes through the journal is delivered when it is committed, not before. All else that is published to the same
topic meanwhile stands in the topic's line behind it, so that a topic keeps its order; a line is empty most of the time,
and other topics do not know of it. A run costs 2 us here besides what the journal takes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.observers import RecordWatchers
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.queues.waiting_messages import weigh
from fleximq.broker.topics.topic_table import Topic, TopicTable
from fleximq.errors import NotKept, NotRecorded
from fleximq.interfaces import IJournalAppend
from fleximq.values.counted_event import CountedEvent, EventFamily

#: When so many bytes wait that are not recorded themselves, those who publish them should not be read.
OVERLOAD_BYTES = 32 << 20
#: What the journal refused is counted under this name.
REFUSED = CountedEvent(EventFamily.REFUSED_MESSAGES)

Deliver = Callable[[Envelope, Any, int], None]


class _Run(NamedTuple):
    """A run in a topic's line; ``told`` is called with what became of it, where it goes through the journal."""

    envelope: Envelope
    body: Any
    number: int
    size: int
    recorded: bool
    bring: Deliver
    told: Callable[[str | None], None] | None = None


class PendingCommits:
    """The way of publications through the journal.

    :param deliver: brings a run to its topic's subscribers.
    :param counted: is told what is worth counting.
    :param publishing: is told whose publications are brought while nobody is read, and None behind them.
    :param watchers: look on.
    """

    def __init__(
        self,
        journal: IJournalAppend,
        topics: TopicTable,
        deliver: Deliver,
        transactions: Transactions,
        counted: Callable[[str, int], None],
        publishing: Callable[[ConnectedClient | None], None],
        watchers: RecordWatchers,
    ) -> None:
        self._journal = journal
        self._topics = topics
        self._deliver = deliver
        self._transactions = transactions
        self._counted = counted
        self._publishing = publishing
        self._watchers = watchers
        #: True while the journal is given a run: who publishes then is who is read.
        self._appending = False
        self._waiting = 0

    @property
    def overloaded(self) -> bool:
        """Whether so much waits for the disk that those who publish should not be read."""
        return self._waiting > OVERLOAD_BYTES or self._journal.overloaded

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call when it is worth looking again whether it is crowded."""
        if self._waiting > OVERLOAD_BYTES:
            self._journal.whenCommitted(call)
        else:
            self._journal.whenRelieved(call)

    def keep(
        self, envelope: Envelope, body: Any, count: int, size: int = 0, told: Callable[[str | None], None] | None = None
    ) -> None:
        """Give a run to the journal and deliver it when it is committed. Its topic is in the table.

        :param size: the bytes in its messages, if anybody will ask how many are to come.
        :param told: called with None then, or with the reason why it is not kept; perhaps before this returns.
        :raises NotRecorded: nothing is kept at present; nothing was published.
        """
        topic = envelope.topic
        line = topic.line
        if not line:
            self._topics.hold(topic)
        run = _Run(envelope, body, count, size, True, self._deliver, told)
        line.append(run)
        if envelope.qos:
            topic.owed += count
            topic.owedBytes += size
        if self._watchers.present:
            self._watchers.appended(envelope, body, count)
        self._appending = True
        try:
            topic.last = number = self._journal.append(envelope, body, count, partial(self._committed, run))
        except Exception as error:
            line.pop()
            self._settle(topic, run)
            if self._watchers.present:
                self._watchers.decided(envelope, body, count, str(error))
            if isinstance(error, NotKept):
                self._counted(REFUSED, count)
                raise NotRecorded(error.reason, range(count)) from error
            raise
        finally:
            self._appending = False
        envelope.publisher.lastRun = number

    def wait(self, envelope: Envelope, body: Any, count: int, bring: Deliver) -> None:
        """Let ``bring`` have a run that is not kept when all before it in its topic's line was decided."""
        topic = envelope.topic
        size = len(body) if isinstance(body, bytes) else weigh(envelope.source.messages(body))
        topic.line.append(_Run(envelope, body, count, size, False, bring))
        self._waiting += size
        envelope.publisher.lastRun = max(envelope.publisher.lastRun, topic.last)

    def _committed(self, run: _Run, offset: int, reason: str | None) -> None:
        """The journal's word on the first run in a line; in a topic as in the journal, runs are in order."""
        envelope = run.envelope
        envelope.topic.line.popleft()
        if self._watchers.present:
            self._watchers.decided(envelope._replace(offset=offset), run.body, run.number, reason)
        if not self._appending:
            self._publishing(envelope.publisher)
        try:
            if reason is None:
                deliver = self._transactions.deliver if self._transactions.reading else self._deliver
                deliver(envelope._replace(offset=offset), run.body, run.number)
            else:
                self._counted(REFUSED, run.number)
        finally:
            self._settle(envelope.topic, run)
            if not self._appending:
                self._publishing(None)
            if run.told is not None:
                run.told(reason)

    def _settle(self, topic: Topic, run: _Run) -> None:
        """A run is decided: bring what waited for nothing else."""
        if run.envelope.qos:
            topic.owed -= run.number
            topic.owedBytes -= run.size
        line = topic.line
        while line and not line[0].recorded:
            next = line.popleft()
            self._waiting -= next.size
            if not self._appending:
                self._publishing(next.envelope.publisher)
            next.bring(next.envelope, next.body, next.number)
        if not line:
            self._topics.release(topic)
