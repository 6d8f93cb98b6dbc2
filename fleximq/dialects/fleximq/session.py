"""The FlexiMQ dialect (specification: the FlexiMQ document and docs/reference/dialects.rst). Hot.

A session is composed of a scanner, with a transcoder before it for clients of other generations, the actions of each
message type (:mod:`fleximq.dialects.fleximq.messages`), the broker's answers (:mod:`fleximq.dialects.fleximq.replies`)
and a writer for the form that the client reads (:mod:`fleximq.dialects.fleximq.writers`).

Runs with a cached envelope are passed directly to subscribers or the broker, and requests and replies with a cached
header directly to their client. All other messages take the slow path: their fixed part is checked, their header parsed
by the rules of its type, and the action of the type acts or raises.

A message inside a run costs 0.2 us from the read to the sockets of its subscribers, a single one 0.6 us, a REQ or REP
2.8 us (``benchmarks/``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.broker.topics.topic_table import DeliverCalls, Topic
from fleximq.compiled import choice
from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.connection_rate import admittedSpans, overRate
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.envelope_cache import EnvelopeCache
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.direct_cache import DirectCache
from fleximq.dialects.fleximq.forms import FLEXI_FORM
from fleximq.dialects.fleximq.join import JoinRequest
from fleximq.dialects.fleximq.joining import Joining, announce
from fleximq.dialects.fleximq.messages import ACTIONS, FlexiMessages
from fleximq.dialects.fleximq.replies import FlexiReplies
from fleximq.dialects.fleximq.writers import AnyWriter, ArrayWriter, LayoutBWriter, Writer, fromLayoutB
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.dialects.session import NamedLogger, StreamSession
from fleximq.dialects.stream import StreamFactory
from fleximq.errors import (
    BadRequest,
    BrokerError,
    Conflict,
    Forbidden,
    NotImplementedByBroker,
    NotPermitted,
)
from fleximq.interfaces import IForm, IPeer, ISubscriber
from fleximq.rights import UNRESTRICTED, Action
from fleximq.security.principal import Admitted
from fleximq.values.header_pairs import SENDER, SENDER_BYTES, isForged
from fleximq.values.printable import shortened
from fleximq.wire.fleximq_array_header import openMapOrArrays
from fleximq.wire.fleximq_frame import BEGINNING_BYTES, NO_RESERVED, RESERVED, encodeFrame, readPrefix, withZeroReserved
from fleximq.wire.fleximq_header import (
    Header,
    MessageType,
    OpenHeader,
    checkHeader,
    openMap,
    peek,
    peekId,
    peekPath,
    reportsError,
    topicAlone,
)
from fleximq.wire.fleximq_layout_b import Layout, LayoutTranscoder
from fleximq.wire.fleximq_record_frame import headerWithSender, withHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES, FrameTooLarge, Span, singleFrames

#: A run of so many bytes, if it is more than half of its read, is passed as a view without copying.
_VIEWED_BYTES = 1 << 16
#: Seconds from the end of a client's input to PINGs, if an answer is pending for so long.
_PROBES = 1.0, 2.0
#: Types whose headers are remembered but for their id.
_DIRECT = frozenset({int(MessageType.REQ), int(MessageType.REP)})
_OPEN = ConnectionState.OPEN
_NO_RUNS: Iterator[Span] = iter(())


@implementer(ISubscriber, IPeer)
class FlexiSession(StreamSession):
    """One FlexiMQ client's conversation. ``deliver``, ``forward`` and ``receiveBroadcast`` are those of its writer."""

    __slots__ = (
        "_beginning", "_directs", "_envelopes", "_joining", "_layout", "_messages", "_open", "_pendingRuns",
        "_replies", "_scanner", "_sender", "_transcoder", "answers", "deliver", "forward", "receiveBroadcast",
    )  # fmt: skip

    _log = NamedLogger(__name__)
    dialect = "fleximq"
    mayFinish = True
    joinsFirst = True
    form: IForm = FLEXI_FORM

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        limit = context.settings.limits.message
        self._scanner = choice.FlexiScanner(limit)
        isStrict = context.settings.strictFleximq
        self._layout = Layout.A if isStrict else None
        self._transcoder = None if isStrict else LayoutTranscoder(limit, fromLayoutB)  # None in layout A
        self._open = openMap if isStrict else openMapOrArrays
        self.answers: Answers = Answers(outbox)
        writer = Writer(outbox)
        self._replies = FlexiReplies(self.answers, writer)
        self.use(writer)
        self._envelopes: EnvelopeCache[Envelope] = EnvelopeCache(context.envelopeBudget)
        self._directs = DirectCache(context.envelopeBudget)
        self._messages: FlexiMessages  # from the JOIN to the end
        self._beginning = b""  # of this client's PUB frames
        self._joining = Joining()
        self._sender = ""  # of this client's publications, if they name it
        self._pendingRuns = _NO_RUNS

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete frame."""
        transcoder = self._transcoder
        return self._scanner.buffered + (0 if transcoder is None else transcoder.buffered)

    def use(self, writer: AnyWriter) -> None:
        """Write in another form from now on."""
        self._replies.writer = writer
        self.deliver, self.forward, self.receiveBroadcast = writer.deliver, writer.forward, writer.receiveBroadcast
        self.outbox.messagesWithin = writer.framesWithin

    # -- input -------------------------------------------------------------------------------------

    def received(self, data: bytes, pending: Iterator[Span] | None = None) -> None:
        """Process a read run by run, or instead the ``pending`` runs after a JOIN."""
        known = self._envelopes.get
        publish = self.broker.publish
        # Envelopes that have only a topic need no cache entry, if there are too many for the cache.
        useTopics = self._envelopes.hasDropped and self.client is not None and self.client.rights in UNRESTRICTED
        alone = (self._beginning, self.broker.topics.find) if useTopics else None
        source = b""  # collected: consecutive runs for the same subscribers, of one or more topics
        begin = until = total = messages = 0
        deliverCalls: DeliverCalls = ()
        refusing = self.rate if self.rate is not None and self.rate.refuses else None
        isPlain = refusing is None and pending is None and not self._sender
        transcoder = self._transcoder
        if transcoder is not None and self._layout is Layout.B:
            whole = transcoder.wholeRead(data)
            if whole is not None:
                data, transcoder = whole, None
        if choice.deliverKnown and isPlain and self.state is _OPEN:
            # This delivers publications with cached envelopes and FlexiMQ subscribers only, and yields all others.
            if transcoder is None:
                spans = choice.deliverKnown(self._scanner, data, self._envelopes, FLEXI_FORM, self.traffic, alone)
            else:
                arguments = self._envelopes, FLEXI_FORM, self.traffic, alone
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
                spans = _spansWithSender(spans, self._sender)
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
                    if self.client is not None:
                        if count == 1 and bytesOfEnvelope[1] in _DIRECT:
                            if self._directs.forward(self.broker, self.client, bytesOfEnvelope, run):
                                continue
                        act = self._messages.repeated.get(bytesOfEnvelope)
                        if act is not None:
                            act(run, count)
                            continue
                    rest = self._unknown(bytesOfEnvelope, run, count)
                    if self.state is not ConnectionState.OPEN:
                        self._pendingRuns = chain(rest, spans)
                        return
                elif envelope.topic.needsOrder:
                    frames = read[start:end] if end - start < _VIEWED_BYTES else _large(read, start, end)
                    self._messages.publish(envelope, bytesOfEnvelope, frames, count)
                else:
                    publish(envelope, read[start:end], count)
        except FrameTooLarge as error:
            if total:
                messages += total
                _handOver(source, begin, until, deliverCalls, total)
                total = 0
            if self._layout is None:
                self._learnLayout()
            self.refused(error, error.envelope[1] if error.envelope else None, peek(error.envelope[FIXED_BYTES:]))
        finally:
            self.traffic.messagesIn += messages + total
            if total:
                _handOver(source, begin, until, deliverCalls, total)

    def resume(self) -> None:
        """Continue after the JOIN."""
        pending, self._pendingRuns = self._pendingRuns, _NO_RUNS
        if self.state is ConnectionState.OPEN:
            self.received(b"", pending)

    def _unknown(self, envelope: bytes, frames: bytes, count: int) -> Iterator[Span]:
        """Take the slow path, frame by frame. Returns the frames after a JOIN that is answered later."""
        if self._layout is None:
            self._learnLayout()
        head = len(envelope)
        opened = self._open(envelope)
        if self.state is ConnectionState.WAITING and opened.wasArray and opened.unreadable is None:
            self._writeArrays()
        done = 0
        for frame in (frames,) if count == 1 else singleFrames(frames, head):
            done += len(frame)
            try:
                self._message(opened, frame if opened.envelope is envelope else opened.envelope + frame[head:])
            except BrokerError as error:
                self.refused(error, envelope[1], opened.fields)
            if self.state is not ConnectionState.OPEN:
                rest = frames[done:]
                return iter([(envelope, rest, 0, len(rest), len(singleFrames(rest, head)))] if rest else ())
        return iter(())

    def _learnLayout(self) -> None:
        """Write in the layout of the client's first header as soon as that is known."""
        self._layout = None if self._transcoder is None else self._transcoder.layout
        if self._layout is Layout.A:
            self._transcoder = None
        elif self._layout is Layout.B:
            self.use(LayoutBWriter(Writer(self.outbox)))

    def _writeArrays(self) -> None:
        """Write for a client whose first header is an array."""
        writer = self._replies.writer
        if not isinstance(writer, ArrayWriter):
            self.use(ArrayWriter(writer))

    def _message(self, opened: OpenHeader, frame: bytes) -> None:
        envelope = opened.envelope
        _, kind, client_id = readPrefix(envelope)
        if self.state is ConnectionState.WAITING:
            self._joining.read(self, self._replies, kind, client_id, opened)
            return
        if kind == MessageType.JOIN:
            raise Conflict("this connection has joined already")
        if kind not in ACTIONS:
            raise NotImplementedByBroker(f"message type {kind} is not known")
        if client_id != self._replies.id:
            raise Forbidden(f"the client id is {client_id}, but this connection has {self._replies.id}")
        if opened.unreadable is not None:
            raise opened.unreadable
        fields = opened.fields
        header = checkHeader(MessageType(kind), fields)
        if (SENDER in fields or SENDER_BYTES in fields) and isForged(fields, self._sender):
            raise BadRequest(f"{SENDER!r} is set by the broker alone")
        act: Callable[[Header, bytes, bytes], None] = getattr(self._messages, ACTIONS[kind])
        act(header, envelope, frame if envelope[RESERVED] == NO_RESERVED else withZeroReserved(frame))

    def _overRate(self, envelope: bytes, count: int) -> None:
        fields = self._open(envelope).fields
        for _ in range(count):
            self.refused(overRate(), envelope[1], fields)

    # -- the JOIN ----------------------------------------------------------------------------------

    def joined(self, request: JoinRequest, admitted: Admitted) -> None:
        """Join the broker with the name of the request, and answer as soon as other nodes know the name."""
        name = request.name
        if name and admitted.rights not in UNRESTRICTED and not admitted.rights.may(Action.SERVE, name):
            raise NotPermitted(f"joining as {shortened(name)!r} is not permitted")
        me = self.letIn(admitted, peer=self)
        del self._joining  # a second JOIN is refused
        self._messages = FlexiMessages(self, self, me, self._replies, self._envelopes, self._directs)
        self._replies.id, self._replies.isNamed = me.id, name is not None
        self.broker.rename(me, name or "")
        self._sender = me.sender
        self._beginning = encodeFrame(MessageType.PUB, me.id)[:BEGINNING_BYTES]
        if name:
            announce(self, self._replies, partial(self._welcome, request.id))
        else:
            self._welcome(request.id)

    def _welcome(self, requestId: str | None) -> None:
        self._replies.sendSuccess(requestId)
        keepAlive = self.startKeepAlive()
        if self._layout is Layout.B:
            # Its revision of the document has no PING.
            keepAlive.mayBeSilent = True
            self.outbox.probe(max(1, int(keepAlive.interval)))

    # -- output ------------------------------------------------------------------------------------

    def requestFailed(self, requestId: str, path: str, status: int, reason: str) -> None:
        """Report that a request will not be answered."""
        self._replies.sendFailure(status, reason, path, requestId)

    def requestDone(self) -> None:
        """Close a connection whose input has ended, after its last answer and its pending PONGs."""
        if not self._inputEnded or self.state is ConnectionState.CLOSED:
            return
        if self.client is None or not (self._messages.questions or self.broker.openRequests(self.client)):
            self.whenDecided(lambda: self.end("client closed"))

    def refused(self, error: BrokerError, kind: int | None, fields: Mapping[Any, Any], topic: str = "") -> None:
        """Answer an error for a message with this type and header, unless it reports one itself."""
        if kind in (MessageType.REP, MessageType.NOTIF) and reportsError(fields):
            self.failed(error, silently=True)
        else:
            self.failed(error, requestId=peekId(fields), path=topic or peekPath(fields))

    def failed(self, error: BrokerError, requestId: str | None = None, path: str = "", silently: bool = False) -> None:
        """Answer a client's error; before the JOIN every error closes the connection."""
        joined = self.state is not ConnectionState.WAITING
        self.counted(error)
        if not silently:
            self.answerError(error, requestId, path)
        if error.closes or not joined:
            self.end(f"error {int(error.status)}")

    def answerError(self, error: BrokerError, requestId: str | None = None, path: str = "") -> None:
        """Send an error as a REP: with the broker's id after the JOIN, with client id 0 before it."""
        self._replies.sendError(error, path, requestId)

    def warn(self) -> None:
        """Send a NOTIF with status 503 from :data:`DRAINING`, unless the client has not joined."""
        if self.state is ConnectionState.OPEN:
            self.outbox.take(self._replies.warning())

    def ping(self) -> None:
        """Send a PING with the interval of the keep-alive."""
        self.outbox.take(self._replies.ping(0 if self.keepAlive is None else self.keepAlive.interval))

    def silent(self) -> None:
        """End, as the peer was silent for too long. Its unsettled deliveries return to their queues at once, since
        pending output may delay the end.
        """
        if self.client is not None:
            self._messages.inputEnded()
        super().silent()

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Clear cached envelopes, and answer for each lost subscription as for a refused one."""
        self._messages.rightsChanged(lost)

    # -- the end -----------------------------------------------------------------------------------

    def inputEnded(self) -> None:
        """Send pending answers, then close.

        The end of input does not say whether the peer still reads. If it does not, its system answers our next bytes
        with a reset, and those after it fail: PINGs find that out, and the client is not listed until an answer.
        """
        self._inputEnded = True
        if self.state is ConnectionState.OPEN and self.client is not None:
            self._messages.inputEnded()
        self.requestDone()
        for delay in _PROBES if self.state is ConnectionState.OPEN else ():
            self.broker.deadlines.callLater(delay, self._probe)

    def _probe(self) -> None:
        if self.state is ConnectionState.OPEN:
            self.ping()

    def left(self) -> None:
        """Drop caches and pending input."""
        if self.client is not None:
            self._messages.left()
            del self._messages  # a reference cycle
        self._pendingRuns = _NO_RUNS
        self._scanner = choice.FlexiScanner(self.context.settings.limits.message)
        self._transcoder = None


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


def _spansWithSender(spans: Iterable[Span], sender: str) -> Iterator[Span]:
    """Yield spans with the key of this sender in each PUB header. An invalid header stays, to be refused."""
    for span in spans:
        envelope, read, start, end, count = span
        header = headerWithSender(envelope[FIXED_BYTES:], sender) if envelope[1] == MessageType.PUB else b""
        if header:
            envelope, frames = withHeader(envelope, header, read[start:end])
            span = envelope, frames, 0, len(frames), count
        yield span


class FlexiFactory(StreamFactory):
    """Builds FlexiMQ connections on streams."""

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context, FlexiSession)
