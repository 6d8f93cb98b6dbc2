"""The two paths of a run to the subscribers of its topic: the direct one and the ordered one. Hot.

:class:`FanOut`, the direct path, delivers a run at once. It looks at the topic's routes once, renders the run once for
each form, and calls each subscriber once: 0.3 us with one form and one subscriber. :class:`OrderedPath` is for topics
that have guards, a durable run, or pending runs. It costs 2 us for a run, plus the journal's time.

A guard is a subscriber that must not lose messages, for example a queue with a maximum size. All guards of a topic are
asked before any subscriber receives a run; each counts the messages of earlier pending runs too. A durable run is
delivered after its commit. Volatile runs published to the same topic before that commit wait in ``pendingRuns``, in
order; other topics are not affected.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleximq.broker.clients import Clients
from fleximq.broker.envelope import ConnectedClient, Envelope, OnDecided
from fleximq.broker.observers import RecordWatchers
from fleximq.broker.publishing.transactions import Deliver, Transactions
from fleximq.broker.topics.topic_table import Topic, TopicTable
from fleximq.errors import NotKept, NotRecorded
from fleximq.interfaces import IJournal, IJournalAppend
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.header_pairs import runWithSender
from fleximq.values.message_cost import OVERHEAD, costOf

#: Pending volatile bytes above which their publishers should not be read.
OVERLOAD_BYTES = 32 << 20
#: Counted when the journal refuses messages.
REFUSED = CountedEvent(EventFamily.REFUSED_MESSAGES)


class FanOut:
    """The direct path: delivers runs at once, without asking guards."""

    def __init__(self, topics: TopicTable, clients: Clients) -> None:
        self._topics = topics
        self._clients = clients

    def present(self, envelope: Envelope) -> Envelope:
        """Return the envelope; if its topic was removed from the table, with the present topic of the same name."""
        return envelope._replace(topic=self._topics.get(envelope.topic.name)) if envelope.topic.gone else envelope

    def deliver(self, envelope: Envelope, body: Any, count: int) -> None:
        """Deliver a run of ``count`` messages to all subscribers of its topic."""
        topic = envelope.topic
        if topic.gone:
            envelope = self.present(envelope)
            topic = envelope.topic
        topic.published += count
        routes = topic.routes
        if routes is None:
            routes = self._topics.route(topic)
        for form, delivers in routes:
            rendered = form.render(envelope, body, count)
            for deliver in delivers:
                deliver(rendered, count)

    def deliverTo(self, audience: Iterable[int], envelope: Envelope, body: Any, count: int) -> None:
        """Deliver a run, whose topic is in the table, to subscribers with these ids that accept direct messages."""
        subscribers = self._topics.subscribers(envelope.topic)
        for clientId in audience:
            found = self._clients.peers.get(clientId)
            if found is not None and self._topics.isSubscribed(found[1], envelope.topic, subscribers):
                found[1].deliver(found[1].form.render(envelope, body, count), count)


@dataclass(slots=True, eq=False)
class _Run:
    """A run in a topic's ``pendingRuns``.

    ``number`` is the number of its messages, ``size`` their bytes. ``recorded``: the run was appended to the journal,
    at ``time``, and ``onDecided`` is called with the journal's decision and ``indexes``; other runs only wait for their
    turn.
    """

    envelope: Envelope
    body: Any
    number: int
    size: int
    recorded: bool
    deliver: Deliver
    onDecided: OnDecided | None = None
    indexes: Sequence[int] = ()
    time: int = 0


@dataclass(eq=False, repr=False)
class OrderedPath:
    """The ordered path: publishes runs that guards may refuse, that are durable, or that must wait for pending runs.

    ``current`` is the journal that stores runs at present, see :meth:`fleximq.interfaces.IJournal.tellCurrent`.

    :param transactions: deliver runs, after a transaction that is being read back from the journal.
    :param publishing: called with the publisher before its publications are delivered after a commit, and with None
        after that.
    """

    _journal: IJournal
    _topics: TopicTable
    _fanOut: FanOut
    _transactions: Transactions
    _counted: Callable[[str, int], None]
    _publishing: Callable[[ConnectedClient | None], None]
    _watchers: RecordWatchers
    #: True while a run is being appended: then its publisher is the client that the reactor reads at the moment, and
    #: ``publishing`` need not be called.
    _appending: bool = False
    _waiting: int = 0

    def __post_init__(self) -> None:
        self._onDisk: bool = self._journal.onDisk
        self._journal.tellCurrent(self._storeIn)
        self._deliver = self._fanOut.deliver

    def _storeIn(self, journal: IJournalAppend) -> None:
        self.current = journal

    def publish(self, envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None) -> None:
        """See :meth:`fleximq.broker.broker.Broker.publish`."""
        topic = envelope.topic
        if topic.gone:
            envelope = self._fanOut.present(envelope)
            topic = envelope.topic
        if not (topic.guards or self._onDisk):
            self._fanOut.deliver(envelope, body, count)
            return
        taken: Sequence[int] = range(count)
        refused: Sequence[int] = ()
        size = 0
        words = ""
        if (topic.guards or (topic.queues and self._onDisk)) and envelope.qos:
            size = envelope.source.size(body, count)
            if refusal(topic, count, size) is not None:
                taken, refused, size, words = _admitted(envelope, body)
                if taken and refused:
                    body = envelope.source.pick(body, taken)
        if taken:
            try:
                self.deliver(envelope, body, len(taken), size, onDecided, taken)
            except NotRecorded as error:
                raise NotRecorded(error.reason, range(count)) from error
        if refused:
            raise NotKept(words, refused)

    def narrowed(self, envelope: Envelope, body: Any, count: int, audience: Iterable[int]) -> None:
        """See :meth:`fleximq.broker.broker.Broker.publishNarrowed`."""
        envelope = self._fanOut.present(envelope)
        deliver = partial(self._fanOut.deliverTo, tuple(audience))
        if envelope.topic.pendingRuns:
            self._wait(envelope, body, count, deliver)
        else:
            deliver(envelope, body, count)

    def deliver(
        self,
        envelope: Envelope,
        body: Any,
        count: int,
        size: int,
        onDecided: OnDecided | None,
        indexes: Sequence[int] = (),
    ) -> None:
        """Append an accepted run to the journal, or deliver it after pending runs; raises NotRecorded.

        :param size: the bytes of its messages, 0 if no guard counts them.
        :param onDecided: called with None and ``indexes`` after a commit, otherwise with the reason and ``indexes``.
        """
        if self.isRecorded(envelope):
            self._append(envelope, body, count, size, onDecided, indexes)
        elif envelope.topic.pendingRuns:
            self._wait(envelope, body, count, self._transactions.deliver)
        else:
            self._transactions.deliver(envelope, body, count)

    def isRecorded(self, envelope: Envelope) -> bool:
        """Return whether the journal stores a run."""
        if not self._onDisk:
            return False
        topic = envelope.topic
        return envelope.durable or topic.alwaysDurable or bool(topic.durableQueues and envelope.qos)

    @property
    def overloaded(self) -> bool:
        """Whether so many bytes await the disk that publishers should not be read."""
        return self._waiting > OVERLOAD_BYTES or self.current.overloaded

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call when ``overloaded`` should be checked again."""
        if self._waiting > OVERLOAD_BYTES:
            self._journal.whenCommitted(call)
        else:
            self._journal.whenRelieved(call)

    def _append(
        self,
        envelope: Envelope,
        body: Any,
        count: int,
        size: int,
        onDecided: OnDecided | None,
        indexes: Sequence[int],
    ) -> None:
        """Append a run to the journal, and deliver it after its commit. Its topic must be in the table.

        :param size: the bytes of its messages, if guards are asked about pending bytes.
        :param onDecided: called with None and ``indexes`` after the commit, or with the reason of the refusal; perhaps
            before this returns.
        :raises NotRecorded: the journal stores nothing at present; the run is not published.
        """
        topic, publisher = envelope.topic, envelope.publisher
        line = topic.pendingRuns
        # The table has nothing to do for a durable topic with subscribers: it needs order in any case, and is not idle.
        if line == () or not (line or (topic.alwaysDurable and topic.members)):
            self._topics.beginPending(topic)
            line = topic.pendingRuns
        run = _Run(envelope, body, count, size, True, self._deliver, onDecided, indexes)
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
            topic.last = publisher.lastRun = self.current.append(
                topic.name, publisher.id, publisher.name, publisher.dialect, stored, partial(self._committed, run)
            )
            run.time = self.current.time
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

    def _wait(self, envelope: Envelope, body: Any, count: int, deliver: Deliver) -> None:
        """Call ``deliver`` with a volatile run after all earlier pending runs of its topic are decided."""
        topic = envelope.topic
        size = len(body) if isinstance(body, bytes | memoryview) else envelope.source.size(body, count)
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
                envelope.publisher.committed = offset
                run.onDecided(reason, run.indexes)

    def _resolve(self, topic: Topic, run: _Run) -> None:
        """Stop counting a decided run as pending, and deliver the volatile runs that waited for it."""
        if run.envelope.qos:
            topic.pendingCount -= run.number
            topic.pendingBytes -= run.size
        line = topic.pendingRuns
        while line and not line[0].recorded:
            nextRun = line.popleft()
            self._waiting -= nextRun.size
            if not self._appending:
                self._publishing(nextRun.envelope.publisher)
            nextRun.deliver(nextRun.envelope, nextRun.body, nextRun.number)
        if not (line or (topic.alwaysDurable and topic.members)):
            self._topics.endPending(topic)


def _admitted(envelope: Envelope, body: Any) -> tuple[list[int], list[int], int, str]:
    """Ask the guards about each message of a run.

    Returns the indexes of the accepted messages, those of the refused ones, the bytes of the accepted ones, and the
    reason for the last refusal, "" without one.
    """
    topic = envelope.topic
    taken: list[int] = []
    refused: list[int] = []
    words = ""
    size = 0
    for place, message in enumerate(envelope.source.messages(body)):
        more = size + costOf(message) - OVERHEAD
        reason = refusal(topic, len(taken) + 1, more)
        if reason is None:
            taken.append(place)
            size = more
        else:
            refused.append(place)
            words = reason
    return taken, refused, size, words


def refusal(topic: Topic, count: int, size: int) -> str | None:
    """Return the reason why a guard refuses ``count`` more messages with ``size`` bytes; None if all accept them."""
    count += topic.pendingCount
    size += topic.pendingBytes
    return next((no for guard in topic.guards.values() if (no := guard.admits(count, size)) is not None), None)
