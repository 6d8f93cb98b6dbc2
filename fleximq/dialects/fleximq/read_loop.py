"""The read loop of a FlexiMQ client: from its bytes to the subscribers, the broker, or the session. Hot.

A read passes the scanner, with a transcoder before it for clients of other generations. Runs with a cached envelope are
passed directly to subscribers or the broker, and requests and replies with a cached header directly to their client.
All other messages go to the session one by one, which reads their headers.

A message inside a run costs 0.2 us from the read to the sockets of its subscribers, a single one 0.6 us, a REQ or REP
2.8 us (``benchmarks/``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.topics.topic_table import DeliverCalls, Topic
from fleximq.broker.traffic import Traffic
from fleximq.compiled import choice
from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.connection_rate import ConnectionRate, admittedSpans, overRate
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.envelope_cache import CacheBudget, EnvelopeCache
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.direct_cache import DirectCache
from fleximq.dialects.fleximq.forms import FLEXI_FORM
from fleximq.dialects.fleximq.queue_messages import RepeatedRun
from fleximq.dialects.fleximq.replies import FlexiReplies
from fleximq.dialects.fleximq.writers import AnyWriter, ArrayWriter, LayoutBWriter, Writer, fromLayoutB
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.errors import BrokerError, NotKept, NotRecorded
from fleximq.rights import UNRESTRICTED
from fleximq.wire.fleximq_array_header import openMapOrArrays
from fleximq.wire.fleximq_frame import BEGINNING_BYTES, encodeFrame, words
from fleximq.wire.fleximq_header import MessageType, OpenHeader, openMap, peek, topicAlone
from fleximq.wire.fleximq_layout_b import Layout, LayoutTranscoder
from fleximq.wire.fleximq_record_frame import spansWithSender
from fleximq.wire.fleximq_scanner import FIXED_BYTES, FrameTooLarge, Span, singleFrames

#: A run of so many bytes, if it is more than half of its read, is passed as a view without copying.
_VIEWED_BYTES = 1 << 16
#: Types whose headers are remembered but for their id.
_DIRECT = frozenset({int(MessageType.REQ), int(MessageType.REP)})
_OPEN = ConnectionState.OPEN
_NO_RUNS: Iterator[Span] = iter(())
# A cache of its own would take 200 bytes of each connection that has no queues.
_NONE_REPEATED: EnvelopeCache[RepeatedRun] = EnvelopeCache(CacheBudget(0))


class Conversation(Protocol):
    """The session whose input is read."""

    answers: Answers
    broker: Broker
    client: ConnectedClient | None
    context: ListenerContext
    outbox: Outbox
    rate: ConnectionRate | None
    state: ConnectionState
    traffic: Traffic

    def counted(self, error: BrokerError) -> None:
        """Count and log an error."""

    def refused(self, error: BrokerError, kind: int | None, fields: Mapping[Any, Any], topic: str = "") -> None:
        """Answer an error for a message with this type and header."""

    def passOn(self, frames: Chunk) -> None:
        """Send messages to the owner of the journal."""

    def use(self, writer: AnyWriter) -> None:
        """Write in another form from now on."""


class ReadLoop:
    """Reads the input of one client. Chooses the writer too, as the first header tells the client's generation.

    ``layout`` is the client's, None until its first header. ``envelopes`` and ``directs`` are the caches of
    publications and of direct messages; ``repeated`` has a function for each envelope of other runs.

    :param join: processes the messages before :meth:`joined`: called with a header and its frame, raises BrokerError.
    """

    __slots__ = (
        "_act", "_beginning", "_open", "_pendingRuns", "_replies", "_scanner", "_sender", "_session", "_transcoder",
        "directs", "envelopes", "layout", "repeated",
    )  # fmt: skip

    def __init__(self, session: Conversation, replies: FlexiReplies, join: Callable[[OpenHeader, bytes], None]) -> None:
        context = session.context
        limit = context.settings.limits.message
        isStrict = context.settings.strictFleximq
        self._session = session
        self._replies = replies
        self._act = join
        self._scanner = choice.FlexiScanner(limit)
        self._transcoder = None if isStrict else LayoutTranscoder(limit, fromLayoutB)  # None in layout A
        self._open = openMap if isStrict else openMapOrArrays
        self.layout = Layout.A if isStrict else None
        self.envelopes: EnvelopeCache[Envelope] = EnvelopeCache(context.envelopeBudget)
        self.directs = DirectCache(context.envelopeBudget)
        self.repeated = _NONE_REPEATED
        self._beginning = b""  # of this client's PUB frames
        self._sender = ""  # of this client's publications, if they name it
        self._pendingRuns = _NO_RUNS

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete frame."""
        transcoder = self._transcoder
        return self._scanner.buffered + (0 if transcoder is None else transcoder.buffered)

    def joined(self, client: ConnectedClient, act: Callable[[OpenHeader, bytes], None]) -> None:
        """Read as this client from now on: its publications name it if they need a sender; ``act`` processes messages
        that no cache knows.
        """
        self._act = act
        self._sender = client.sender
        self._beginning = encodeFrame(MessageType.PUB, client.id)[:BEGINNING_BYTES]

    def received(self, data: bytes, pending: Iterator[Span] | None = None) -> None:
        """Process a read run by run, or instead the ``pending`` runs after a JOIN."""
        session = self._session
        known = self.envelopes.get
        publish = session.broker.publish
        # Envelopes that have only a topic need no cache entry, if there are too many for the cache.
        useTopics = self.envelopes.hasDropped and session.client is not None and session.client.rights in UNRESTRICTED
        alone = (self._beginning, session.broker.topics.find) if useTopics else None
        source = b""  # collected: consecutive runs for the same subscribers, of one or more topics
        begin = until = total = messages = 0
        deliverCalls: DeliverCalls = ()
        refusing = session.rate if session.rate is not None and session.rate.refuses else None
        isPlain = refusing is None and pending is None and not self._sender
        transcoder = self._transcoder
        if transcoder is not None and self.layout is Layout.B:
            whole = transcoder.wholeRead(data)
            if whole is not None:
                data, transcoder = whole, None
        if choice.deliverKnown and isPlain and session.state is _OPEN:
            # This delivers publications with cached envelopes and FlexiMQ subscribers only, and yields all others.
            if transcoder is None:
                spans = choice.deliverKnown(self._scanner, data, self.envelopes, FLEXI_FORM, session.traffic, alone)
            else:
                arguments = self.envelopes, FLEXI_FORM, session.traffic, alone
                pieces = transcoder.feed(data)
                spans = chain.from_iterable(choice.deliverKnown(self._scanner, each, *arguments) for each in pieces)
            alone = None  # none is collected here
        else:
            if pending is not None:
                spans = pending
            elif transcoder is None:
                spans = self._scanner.spans(data)
            else:
                spans = chain.from_iterable(map(self._scanner.spans, transcoder.feed(data)))
            if refusing is not None:
                spans = admittedSpans(refusing.meter, spans, self._overRate)
            if self._sender:
                spans = spansWithSender(spans, self._sender)
        try:
            for bytesOfEnvelope, read, start, end, count in spans:
                envelope = known(bytesOfEnvelope)
                topic = envelope.topic if envelope is not None else alone and _topicAlone(bytesOfEnvelope, *alone)
                if topic is not None and topic.onlyForm is FLEXI_FORM:
                    topic.published += count
                    if start == until and topic.deliverCalls is deliverCalls and read is source:
                        until = end
                        total += count
                        continue
                    if total:
                        messages += total
                        _handOver(source, begin, until, deliverCalls, total)
                    deliverCalls = topic.deliverCalls or ()
                    source, begin, until, total = read, start, end, count
                    continue
                messages += count
                if total:
                    messages += total
                    _handOver(source, begin, until, deliverCalls, total)
                    total = 0
                    deliverCalls = ()
                if envelope is None:
                    run = read[start:end]
                    if session.client is not None:
                        if count == 1 and bytesOfEnvelope[1] in _DIRECT:
                            if self.directs.forward(session.broker, session.client, bytesOfEnvelope, run):
                                continue
                        act = self.repeated.get(bytesOfEnvelope)
                        if act is not None:
                            act(run, count)
                            continue
                    rest = self._unknown(bytesOfEnvelope, run, count)
                    if session.state is not ConnectionState.OPEN:
                        self._pendingRuns = chain(rest, spans)
                        return
                elif envelope.topic.needsOrder:
                    frames = read[start:end] if end - start < _VIEWED_BYTES else _large(read, start, end)
                    self.publish(envelope, bytesOfEnvelope, frames, count)
                else:
                    publish(envelope, read[start:end], count)
        except FrameTooLarge as error:
            if total:
                messages += total
                _handOver(source, begin, until, deliverCalls, total)
                total = 0
            if self.layout is None:
                self._learnLayout()
            session.refused(error, error.envelope[1] if error.envelope else None, peek(error.envelope[FIXED_BYTES:]))
        finally:
            session.traffic.messagesIn += messages + total
            if total:
                _handOver(source, begin, until, deliverCalls, total)

    def resume(self) -> None:
        """Continue after the JOIN."""
        pending, self._pendingRuns = self._pendingRuns, _NO_RUNS
        if self._session.state is ConnectionState.OPEN:
            self.received(b"", pending)

    def _unknown(self, envelope: bytes, frames: bytes, count: int) -> Iterator[Span]:
        """Take the slow path, frame by frame. Returns the frames after a JOIN that is answered later."""
        session = self._session
        if self.layout is None:
            self._learnLayout()
        head = len(envelope)
        opened = self._open(envelope)
        if session.state is ConnectionState.WAITING and opened.wasArray and opened.unreadable is None:
            self._writeArrays()
        done = 0
        for frame in (frames,) if count == 1 else singleFrames(frames, head):
            done += len(frame)
            try:
                self._act(opened, frame if opened.envelope is envelope else opened.envelope + frame[head:])
            except BrokerError as error:
                session.refused(error, envelope[1], opened.fields)
            if session.state is not ConnectionState.OPEN:
                rest = frames[done:]
                return iter([(envelope, rest, 0, len(rest), len(singleFrames(rest, head)))] if rest else ())
        return iter(())

    def _learnLayout(self) -> None:
        """Write in the layout of the client's first header as soon as that is known."""
        self.layout = None if self._transcoder is None else self._transcoder.layout
        if self.layout is Layout.A:
            self._transcoder = None
        elif self.layout is Layout.B:
            self._session.use(LayoutBWriter(Writer(self._session.outbox)))

    def _writeArrays(self) -> None:
        """Write for a client whose first header is an array."""
        writer = self._replies.writer
        if not isinstance(writer, ArrayWriter):
            self._session.use(ArrayWriter(writer))

    def _overRate(self, envelope: bytes, count: int) -> None:
        fields = self._open(envelope).fields
        for _ in range(count):
            self._session.refused(overRate(), envelope[1], fields)

    # -- publications ------------------------------------------------------------------------------

    def publish(
        self, parsed: Envelope, envelope: bytes, frames: Chunk, count: int, ids: Sequence[str] | None = None
    ) -> None:
        """Publish a run, and answer its refused messages, possibly later."""
        onDecided = partial(self.reportRefused, parsed.topic.name)
        broker = self._session.broker
        try:
            if ids is None:
                broker.publish(parsed, frames, count, onDecided)
            else:
                broker.publishOnce(parsed, frames, ids, onDecided)
        except NotKept as error:
            if isinstance(error, NotRecorded) and not broker.ownsJournal:
                self._session.passOn(frames)
            else:
                self.reportNotKept(parsed.topic.name, envelope, error)

    def reportNotKept(self, topic: str, envelope: bytes, error: NotKept) -> None:
        """Report messages that were refused at once, with the bytes of their envelope."""
        if isinstance(error, NotRecorded):
            self.reportRefused(topic, error.reason, error.refused, inOrder=True)
            return
        fields = peek(envelope[FIXED_BYTES:])
        for each in error.each():
            self._session.refused(each, MessageType.PUB, fields, topic)

    def reportRefused(self, topic: str, reason: str | None, indexes: Sequence[int], inOrder: bool = False) -> None:
        """Report messages refused by the journal, before the PONG that awaits the commit or in the order of answers."""
        if reason is None:
            return
        error = NotRecorded(reason)
        say = self._session.answers.take if inOrder else self._session.outbox.take
        for _ in indexes:
            self._session.counted(error)
            say(self._replies.error(error.status, words(str(error)), topic))

    # -- the end -----------------------------------------------------------------------------------

    def forget(self) -> None:
        """Clear the caches."""
        self.envelopes.clear()
        self.directs.clear()
        self.repeated.clear()

    def left(self) -> None:
        """Drop caches and pending input after the end of the connection."""
        self.forget()
        self.repeated = _NONE_REPEATED
        self._pendingRuns = _NO_RUNS
        self._scanner = choice.FlexiScanner(self._session.context.settings.limits.message)
        self._transcoder = None
        del self._act  # a reference cycle


def _topicAlone(envelope: bytes, beginning: bytes, find: Callable[[str], Topic | None]) -> Topic | None:
    """Return the topic of a PUB frame whose header has only a topic, if it exists and is not the broker's own."""
    name = topicAlone(envelope, beginning)
    return None if name is None or name.startswith("$") else find(name)


def _handOver(source: bytes, begin: int, until: int, deliverCalls: DeliverCalls, count: int) -> None:
    """Deliver consecutive runs to FlexiMQ subscribers unchanged, as one chunk."""
    size = until - begin
    chunk = source[begin:until] if size < _VIEWED_BYTES or size == len(source) else _large(source, begin, until)
    for deliver in deliverCalls:
        deliver(chunk, count)


def _large(source: bytes, begin: int, until: int) -> Chunk:
    return memoryview(source)[begin:until] if (until - begin) * 2 > len(source) else source[begin:until]
