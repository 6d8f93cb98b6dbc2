"""The FlexiMQ dialect: input (specification: the FlexiMQ document and docs/reference/dialects.rst). Hot.

Runs with a cached envelope are passed directly to subscribers or the broker, and requests and replies with a cached
header directly to their client. All other messages take the slow path: their fixed part is checked, their header parsed
by the rules of its type, and :mod:`fleximq.dialects.fleximq.messages` acts or raises.
:mod:`fleximq.dialects.fleximq.replies` sends the output.

A message inside a run costs 0.2 us from the read to the sockets of its subscribers, a single one 0.6 us, a REQ or REP
2.8 us (``benchmarks/``).
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import msgpack
from twisted.internet.interfaces import IAddress

from fleximq.broker.topics.topic_table import DeliverCalls, Topic
from fleximq.compiled import choice
from fleximq.dialects.connection.connection_rate import admittedSpans, overRate
from fleximq.dialects.context import Context
from fleximq.dialects.fleximq.forms import FLEXI_FORM, LAYOUT_B_FORM
from fleximq.dialects.fleximq.messages import FlexiMessages
from fleximq.dialects.fleximq.replies import correlation
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.dialects.session import ConnectionState, NamedLogger
from fleximq.dialects.stream import StreamFactory
from fleximq.errors import (
    BadRequest,
    BrokerError,
    Conflict,
    Forbidden,
    JoinRejected,
    NotImplementedByBroker,
    NotPermitted,
    Unauthorized,
)
from fleximq.rights import UNRESTRICTED, Action
from fleximq.security.credentials import ApiKey, Password, Signature, Token
from fleximq.security.principal import Admitted
from fleximq.status import Status
from fleximq.values.header_pairs import SENDER, SENDER_BYTES, isForged
from fleximq.values.printable import shortened
from fleximq.wire.fleximq_array_header import isArrayHeader, withInnerMaps, withMapHeader
from fleximq.wire.fleximq_frame import BEGINNING_BYTES, encodeFrame, hasZeroReserved, readPrefix, withZeroReserved
from fleximq.wire.fleximq_header import Header, MessageType, checkHeader, openHeader, peek, topicAlone
from fleximq.wire.fleximq_layout_b import Layout, LayoutBScanner, LayoutDetector, asSpans
from fleximq.wire.fleximq_record_frame import headerWithSender, withHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES, FlexiScanner, FrameTooLarge, Span, singleFrames

#: Maximum length of the name that a client joins with.
CLIENT_NAME_CHARACTERS = 256
#: A run of so many bytes, if it is more than half of its read, is passed as a view without copying.
_LARGE = 1 << 16


#: The forms of subscribers to whom the compiled scanner delivers by itself.
_DELIVERED_FORMS = FLEXI_FORM, LAYOUT_B_FORM

#: Types whose headers are remembered but for their id.
_DIRECT = frozenset({int(MessageType.REQ), int(MessageType.REP)})


class FlexiSession(FlexiMessages):
    """One FlexiMQ client's conversation."""

    __slots__ = (
        "_beginning", "_challenge", "_layoutUndecided", "_omitsStatusOk", "_pendingRuns", "_scanner", "_sender",
        "_strict",
    )  # fmt: skip

    _log = NamedLogger(__name__)
    joinsFirst = True
    _messages: ClassVar[dict[int, str]] = {kind: f"message_{kind.name}" for kind in MessageType}

    def __init__(self, context: Context, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self._strict = context.settings.strictFleximq
        self._scanner: FlexiScanner | LayoutDetector | LayoutBScanner
        scanner = choice.FlexiScanner if self._strict else choice.LayoutDetector
        self._scanner = scanner(context.settings.limits.message)
        self._layoutUndecided = not self._strict
        self._omitsStatusOk = False  # for clients with array headers, which know a status in errors only
        self._beginning = b""  # of this client's PUB frames
        self._challenge = ""
        self._sender = ""  # of this client's publications, if they name it
        self._pendingRuns: Iterator[Span] = iter(())

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete frame."""
        return self._scanner.buffered

    def received(self, data: bytes, pending: Iterator[Span] | None = None) -> None:
        """Process a read run by run, or instead the ``pending`` runs after a JOIN."""
        known = self._envelopes.get
        publish = self.broker.publish
        # Envelopes that have only a topic need no cache entry, if there are too many for the cache.
        useTopics = self._envelopes.hasDropped and self._me.rights in UNRESTRICTED
        alone = (self._beginning, self.broker.topics.find) if useTopics else None
        source = b""  # collected: consecutive runs for the same subscribers, of one or more topics
        begin = until = total = messages = 0
        deliverCalls: DeliverCalls = ()
        refusing = self.rate if self.rate is not None and self.rate.refuses else None
        isPlain = refusing is None and pending is None and not self._sender
        if choice.deliverKnown and isPlain and self.state is ConnectionState.OPEN:
            # This delivers publications with cached envelopes and FlexiMQ subscribers only, and yields all others.
            spans = choice.deliverKnown(self._scanner, data, self._envelopes, _DELIVERED_FORMS, self.traffic, alone)
            alone = None  # none is collected here
        else:
            spans = self._scanner.spans(data) if pending is None else pending
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
                    if count == 1 and bytesOfEnvelope[1] in _DIRECT and self._knownDirect(bytesOfEnvelope, run):
                        continue
                    rest = self._unknown(bytesOfEnvelope, run, count)
                    if self.state is not ConnectionState.OPEN:
                        self._pendingRuns = chain(rest, spans)
                        return
                elif envelope.topic.needsOrder:
                    frames = read[start:end] if end - start < _LARGE else _large(read, start, end)
                    self._publish(envelope, bytesOfEnvelope, frames, count)
                else:
                    publish(envelope, read[start:end], count)
        except FrameTooLarge as error:
            if total:
                messages += total
                _handOver(source, begin, until, deliverCalls, total)
                total = 0
            self._detectLayout()
            self._refused(error, error.envelope[1] if error.envelope else None, peek(error.envelope[FIXED_BYTES:]))
        finally:
            self.traffic.messagesIn += messages + total
            if total:
                _handOver(source, begin, until, deliverCalls, total)

    def _knownDirect(self, envelope: bytes, frame: bytes) -> bool:
        """Forward a REQ or REP with a cached header; False if it must take the slow path."""
        result = self._directs.find(envelope)
        if result is None:
            return False
        known, id = result
        try:
            if known.kind == MessageType.REQ:
                self.broker.request(self._me, known.target, id, known.path, frame)
            else:
                self.broker.reply(self._me, known.target, id, frame, known.path)
        except BrokerError:
            return False
        return True

    def _overRate(self, envelope: bytes, count: int) -> None:
        positional = not self._strict and isArrayHeader(envelope)
        fields = withMapHeader(envelope)[1] if positional else peek(envelope[FIXED_BYTES:])
        for _ in range(count):
            self._refused(overRate(), envelope[1], fields)

    def resume(self) -> None:
        """Continue after the JOIN."""
        pending, self._pendingRuns = self._pendingRuns, iter(())
        if self.state is ConnectionState.OPEN:
            self.received(b"", pending)

    def _unknown(self, envelope: bytes, frames: bytes, count: int) -> Iterator[Span]:
        """Take the slow path, frame by frame. Returns the frames after a JOIN that is answered later."""
        if self._layoutUndecided:
            self._detectLayout()
        asRead = envelope
        head = len(envelope)
        positional = not self._strict and isArrayHeader(envelope)
        if positional:
            envelope, fields, unreadable = withMapHeader(envelope)
        else:
            fields, unreadable = openHeader(envelope[FIXED_BYTES:])
        if self.state is ConnectionState.WAITING and positional and unreadable is None and not self._omitsStatusOk:
            self._omitsStatusOk = True
            self.nameStatuses()
        if not self._strict and not positional and fields:
            envelope, fields = withInnerMaps(envelope, fields)
            positional = envelope is not asRead
        done = 0
        for frame in (frames,) if count == 1 else singleFrames(frames, head):
            done += len(frame)
            try:
                self._message(envelope, envelope + frame[head:] if positional else frame, fields, unreadable)
            except BrokerError as error:
                self._refused(error, envelope[1], fields)
            if self.state is not ConnectionState.OPEN:
                rest = frames[done:]
                return asSpans(iter([(asRead, rest, len(singleFrames(rest, head)))] if rest else ()))
        return iter(())

    def _detectLayout(self) -> None:
        """Use the layout of the client's first header as soon as it is known."""
        scanner = self._scanner
        if not isinstance(scanner, LayoutDetector):
            return
        self._layoutUndecided = scanner.settled is None
        if scanner.layout is Layout.B:
            self.speakLayoutB()
        if scanner.settled is not None:
            self._scanner = scanner.settled

    def _message(self, envelope: bytes, frame: bytes, fields: Mapping[Any, Any], unreadable: BadRequest | None) -> None:
        _, kind, client_id = readPrefix(envelope)
        if self.state is ConnectionState.WAITING:
            self._join(kind, client_id, fields, unreadable)
            return
        if kind == MessageType.JOIN:
            raise Conflict("this connection has joined already")
        name = self._messages.get(kind)
        if name is None:
            raise NotImplementedByBroker(f"message type {kind} is not known")
        if client_id != self.id:
            raise Forbidden(f"the client id is {client_id}, but this connection has {self.id}")
        if unreadable is not None:
            raise unreadable
        header = checkHeader(MessageType(kind), fields)
        if (SENDER in fields or SENDER_BYTES in fields) and isForged(fields, self._sender):
            raise BadRequest(f"{SENDER!r} is set by the broker alone")
        act: Callable[[Header, bytes, bytes], None] = getattr(self, name)
        act(header, envelope, frame if hasZeroReserved(envelope) else withZeroReserved(frame))

    def _join(self, kind: int, client_id: int, fields: Mapping[Any, Any], unreadable: BadRequest | None) -> None:
        refusal = self.refusal()
        if kind != MessageType.JOIN:
            raise Unauthorized("the first message must be a JOIN")
        if refusal is not None:
            raise JoinRejected(refusal)
        if client_id != 0:
            raise BadRequest("the client id of a JOIN must be 0")
        if unreadable is not None:
            raise unreadable
        header = checkHeader(MessageType.JOIN, fields)
        auth = header.fields.get("auth", {})
        if auth.get("type") == "public_key" and "signature" not in auth:
            self._sendChallenge(header)
            return
        credentials = credentialsIn(header.fields, self._challenge)
        # No more than this of the header is held while the credentials are checked.
        name = (fields["client_name"] or "") if "client_name" in fields else None
        if name is not None and (not isinstance(name, str) or len(name) > CLIENT_NAME_CHARACTERS):
            raise BadRequest(f"'client_name' must be a string of at most {CLIENT_NAME_CHARACTERS} characters")
        joined = partial(self._joined, header.id, name)
        if credentials is None and self.admitted is not None:
            joined(self.admission.renewed(self.admitted))
        else:
            refused = partial(self.failed, id=header.id)
            self.admit(credentials or self.certificate(), joined, refused)

    def _sendChallenge(self, header: Header) -> None:
        """Ask for a second JOIN, with a signature; once on a connection."""
        if self._challenge:
            raise Unauthorized("this connection has got a challenge already")
        self._challenge = secrets.token_urlsafe(32)
        payload = msgpack.packb({"error": "sign the challenge in another JOIN", "challenge": self._challenge})
        self._send(MessageType.REP, {"status": int(Status.UNAUTHORIZED)} | correlation(header.id), payload, sender=0)

    def _joined(self, id: str | None, name: str | None, admitted: Admitted) -> None:
        if name and admitted.rights not in UNRESTRICTED and not admitted.rights.may(Action.SERVE, name):
            raise NotPermitted(f"joining as {shortened(name)!r} is not permitted")
        self._me = self.letIn(admitted, peer=self)
        self.broker.rename(self._me, name or "")
        self.id, self._sender = self._me.id, self._me.sender
        self._beginning = encodeFrame(MessageType.PUB, self.id)[:BEGINNING_BYTES]
        self._named = name is not None
        if name:
            self._announce(partial(self._welcome, id))
        else:
            self._welcome(id)

    def _announce(self, welcome: Callable[[], None]) -> None:
        """Call when all nodes of a mesh know the client's name. Until then its input and its messages wait."""
        forward, receiveBroadcast = self.forward, self.receiveBroadcast
        waiting: list[Callable[[], None]] = []
        isKnown = False

        def known() -> None:
            nonlocal isKnown
            isKnown = True
            if self.state is not ConnectionState.CHECKING:  # at once, or the connection has ended
                return
            self.state = ConnectionState.OPEN
            self.charge.change(0)
            self.forward, self.receiveBroadcast = forward, receiveBroadcast
            welcome()
            for call in waiting:
                call()
            self.checking(False)

        self.broker.announce(None, known)
        if isKnown:
            welcome()
            return
        self.forward = lambda frame: waiting.append(partial(forward, frame))
        self.receiveBroadcast = lambda frame: waiting.append(partial(receiveBroadcast, frame))
        self.state = ConnectionState.CHECKING
        self.checking(True)

    def _welcome(self, id: str | None) -> None:
        status = {} if self._omitsStatusOk else {"status": int(Status.OK)}
        self._send(MessageType.REP, status | correlation(id), sender=self.id)
        self.keepAlive()
        if self.form is LAYOUT_B_FORM and self._keepAlive is not None:
            # Its revision of the document has no PING.
            self._keepAlive.mayBeSilent = True
            self.outbox.probe(max(1, int(self._keepAlive.interval)))

    def left(self) -> None:
        """Drop pending input."""
        super().left()
        self._pendingRuns = iter(())
        self._scanner = choice.FlexiScanner(self.context.settings.limits.message)


def credentialsIn(fields: Mapping[Any, Any], challenge: str) -> Token | Password | ApiKey | Signature | None:
    """Return the credentials in a checked JOIN (FlexiMQ document 5.2), None without any.

    :param challenge: the challenge that this connection was sent, "" without one.
    """
    auth = fields.get("auth")
    if auth is None:
        return None
    if auth["type"] == "token":
        return Token(auth["token"])
    if auth["type"] == "basic":
        return Password(auth["username"], auth["password"])
    if auth["type"] == "public_key":
        return Signature(auth["public_key"], challenge, auth["signature"])
    return ApiKey(auth["api_key"])


def _topicAlone(envelope: bytes, beginning: bytes, find: Callable[[str], Topic | None]) -> Topic | None:
    """Return the topic of a PUB frame whose header has only a topic, if it exists and is not the broker's own."""
    name = topicAlone(envelope, beginning)
    return None if name is None or name.startswith("$") else find(name)


def _handOver(source: bytes, begin: int, until: int, deliverCalls: DeliverCalls, count: int) -> None:
    """Deliver consecutive runs to FlexiMQ subscribers unchanged, as one chunk."""
    chunk = source[begin:until] if until - begin < _LARGE else _large(source, begin, until)
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

    def __init__(self, context: Context) -> None:
        super().__init__(context, FlexiSession)
