"""The FlexiMQ dialect: what is answered to each message (specification: the FlexiMQ document and docs/dialects.rst).

Runs whose envelope is known go straight to the broker. Everything else takes the long way: its beginning is
checked, its header read by the rules of its type, and ``message_<TYPE>`` does the rest or raises.
"""

import time
from collections.abc import Callable
from typing import Any, ClassVar

import msgpack
from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from fleximq.broker.topics import Takers
from fleximq.broker.values import BROKER_ID, Client, Envelope
from fleximq.dialects.context import Context
from fleximq.dialects.direct_cache import DirectCache
from fleximq.dialects.envelope_cache import EnvelopeCache
from fleximq.dialects.fleximq_form import FLEXI_FORM, LAYOUT_B_FORM, FlexiSource
from fleximq.dialects.keepalive import KeepAlive
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.dialects.session import Session, State
from fleximq.dialects.stream import StreamFactory
from fleximq.errors import (
    BadRequest,
    BrokerError,
    ClientNotFound,
    Conflict,
    Forbidden,
    InvalidTopic,
    JoinRejected,
    NotImplementedByBroker,
    NotKept,
    SubscriptionFailed,
    Unauthorized,
)
from fleximq.interfaces import IForm, IPeer, ISubscriber
from fleximq.limits import KIBIBYTE
from fleximq.status import Status
from fleximq.wire.flexi_header import Entry, Header, peek, peekId, peekPath, readHeader, reportsError
from fleximq.wire.flexi_layouts import Layout, LayoutBScanner, LayoutScanner, toLayoutB
from fleximq.wire.flexi_message import (
    FIXED_BYTES,
    MessageType,
    encodeMessage,
    isStamped,
    payloadOf,
    readBeginning,
    restamped,
    words,
)
from fleximq.wire.flexi_positional import isPositional, withMap
from fleximq.wire.flexi_scanner import FlexiScanner, FrameTooLarge, singles

#: The longest payload of a REQ to the broker itself: reading MessagePack can cost a hundred times its bytes.
ARGUMENT_BYTES = 64 * KIBIBYTE
#: A PUB with one of these keys differs from message to message: its envelope is not worth remembering.
_PASSING = frozenset({"routing", "message_id", "correlation_id", "traceparent", "tracestate"})


@implementer(ISubscriber, IPeer)
class FlexiSession(Session):
    """One FlexiMQ client's conversation."""

    dialect = "fleximq"
    _messages: ClassVar[dict[int, str]] = {kind: f"message_{kind.name}" for kind in MessageType}

    def __init__(self, context: Context, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self.form: IForm = FLEXI_FORM
        self.deliver = outbox.deliver
        self.hear: Callable[[bytes], None] = outbox.deliver
        self.forward: Callable[[bytes], None] = outbox.take
        self._me: Client  # there from the JOIN on
        outbox.cut = FLEXI_FORM.cut
        self.id = 0
        self._strict = context.settings.strictFleximq
        self._scanner: FlexiScanner | LayoutScanner | LayoutBScanner
        self._scanner = (FlexiScanner if self._strict else LayoutScanner)(context.settings.limits.message)
        self._omitsOk = False
        self._named = False
        self._envelopes = EnvelopeCache(context.envelopes)
        self._directs = DirectCache()
        self._keepAlive: KeepAlive | None = None
        self._inputEnded = False

    # -- the way in --------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Work through what was read, run by run."""
        known = self._envelopes.get
        publish = self.broker.publish
        takers: Takers = ()
        alone: list[Chunk] = []  # neighbouring frames of their own for these takers, whatever their topics
        try:
            for bytesOfEnvelope, frames, count in self._scanner.feed(data):
                envelope = known(bytesOfEnvelope)
                if envelope is not None and envelope.topic.only is FLEXI_FORM:
                    topic = envelope.topic
                    topic.published += count
                    if topic.takers is not takers:
                        alone = _handOver(alone, takers)
                        takers = topic.takers or ()
                    if count == 1:
                        alone.append(frames)
                        continue
                    alone = _handOver(alone, takers)
                    for deliver in takers:
                        deliver(frames, count)
                    continue
                alone = _handOver(alone, takers)
                run = bytes(frames)
                if envelope is None:
                    if count == 1 and self._knownDirect(bytesOfEnvelope, run):
                        continue
                    self._unknown(bytesOfEnvelope, run)
                    if self.state is State.ENDING:
                        return
                else:
                    try:
                        publish(envelope, run, count)
                    except NotKept as error:
                        for _ in error.refused:
                            self._refused(error, bytesOfEnvelope)
        except FrameTooLarge as error:
            alone = _handOver(alone, takers)
            self._settleLayout()
            self._refused(error, error.envelope)
        finally:
            _handOver(alone, takers)

    def _knownDirect(self, envelope: bytes, frame: bytes) -> bool:
        """Forward a REQ or REP whose header is known but for its id; False: it has to go the long way."""
        found = self._directs.find(envelope)
        if found is None:
            return False
        known, id = found
        try:
            if known.kind == MessageType.REQ:
                self.broker.request(self._me, known.target, id, known.path, frame)
            else:
                self.broker.reply(self._me, known.target, id, frame)
        except BrokerError:
            return False
        return True

    def _rememberDirect(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Remember a header that may come again with another id, unless the frame was changed on its way."""
        if isStamped(envelope) and frame.startswith(envelope):
            target, path = header.routing[0]
            self._directs.remember(envelope, target, path or "", header.id or "")

    def _unknown(self, envelope: bytes, frames: bytes) -> None:
        """Take the long way, frame by frame."""
        self._settleLayout()
        head = len(envelope)
        positional = not self._strict and isPositional(envelope)
        if positional:
            envelope = withMap(envelope)
        for frame in singles(frames, head):
            try:
                self._message(envelope, envelope + frame[head:] if positional else frame, positional)
            except BrokerError as error:
                self._refused(error, envelope)
            if self.state is State.ENDING:
                return

    def _settleLayout(self) -> None:
        """Speak the layout that the client's first header was in, as soon as that is known."""
        scanner = self._scanner
        if not isinstance(scanner, LayoutScanner):
            return
        if scanner.layout is Layout.B:
            outbox = self.outbox
            self.form = LAYOUT_B_FORM
            self.forward = lambda frame: outbox.take(toLayoutB(frame))
            self.hear = lambda frame: outbox.deliver(toLayoutB(frame))
            outbox.cut = LAYOUT_B_FORM.cut
        if scanner.settled is not None:
            self._scanner = scanner.settled

    def _message(self, envelope: bytes, frame: bytes, positional: bool) -> None:
        beginning = readBeginning(envelope)
        if self.state is State.WAITING:
            self._omitsOk = positional
            self._join(beginning.type, beginning.client_id, envelope)
            return
        if beginning.type == MessageType.JOIN:
            raise Conflict("this connection has joined already")
        name = self._messages.get(beginning.type)
        if name is None:
            raise NotImplementedByBroker(f"message type {beginning.type} is not known")
        if beginning.client_id != self.id:
            raise Forbidden(f"the client id is {beginning.client_id}, but this connection has {self.id}")
        header = readHeader(MessageType(beginning.type), envelope[FIXED_BYTES:])
        act: Callable[[Header, bytes, bytes], None] = getattr(self, name)
        act(header, envelope, frame if isStamped(envelope) else restamped(frame))

    def _join(self, kind: int, client_id: int, envelope: bytes) -> None:
        refusal = self.refusal()
        if kind != MessageType.JOIN:
            raise Unauthorized("the first message must be a JOIN")
        if refusal is not None:
            raise JoinRejected(refusal)
        if client_id != 0:
            raise BadRequest("the client id of a JOIN must be 0")
        header = readHeader(MessageType.JOIN, envelope[FIXED_BYTES:])
        self._me = self.letIn(peer=self)
        self.id = self._me.id
        self._named = "client_name" in header.fields
        status = {} if self._omitsOk else {"status": int(Status.OK)}
        self._say(MessageType.REP, status | _correlation(header.id), sender=self.id)
        self._keepAlive = KeepAlive(
            self.context.clock, self.context.settings.keepalive, self.lastHeard, self._ping, self._silent
        )

    # -- what each message type does ---------------------------------------------------------------

    def message_REQ(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Forward a request, or answer it where the broker itself is asked."""
        target, path = header.routing[0]
        if target == BROKER_ID:
            self._answer(header, path or "", payloadOf(frame, len(envelope)))
        else:
            self.broker.request(self._me, target, header.id or "", path or "", frame)
            self._rememberDirect(header, envelope, frame)

    def _answer(self, header: Header, path: str, payload: bytes) -> None:
        if len(payload) > ARGUMENT_BYTES:
            raise BadRequest(f"a request to the broker has at most {ARGUMENT_BYTES} bytes of payload")
        try:
            arguments = msgpack.unpackb(payload, strict_map_key=False, timestamp=1) if payload else None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise BadRequest("the payload is not MessagePack") from None
        value = self.broker.ask(path, arguments)
        routing = self._routing({"client_id": self.id, "path": path})
        fields = {"status": int(Status.OK), "routing": routing} | _correlation(header.id)
        self._say(MessageType.REP, fields, msgpack.packb(value))

    def message_REP(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Forward an answer to its requester; one that is not there is reported by a NOTIF 600."""
        entry = header.routing[0]
        if entry.client_id == BROKER_ID:
            return
        try:
            self.broker.reply(self._me, entry.client_id, header.id or "", frame)
        except ClientNotFound:
            self._reportLost(header, entry)
        else:
            self._rememberDirect(header, envelope, frame)

    def message_NOTIF(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Send a copy to every known target, then report each unknown entry by a NOTIF 600."""
        lost = [
            entry
            for entry in header.routing
            if entry.client_id != BROKER_ID and not self.broker.takesDirect(entry.client_id)
        ]
        self.broker.notify((entry.client_id for entry in header.routing), frame)
        for entry in lost:
            self._reportLost(header, entry)

    def message_BCAST(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Send a copy to everybody else."""
        self.broker.broadcast(self._me, frame)

    def message_PUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Publish, and remember the envelope where it is likely to come again."""
        topic = self.broker.topicFor(self._me, header.topic)
        found = Envelope(topic, self._me, FlexiSource(len(envelope), header))
        audience = [entry.client_id for entry in header.routing if entry.client_id != BROKER_ID]
        if audience:
            self.broker.publishNarrowed(found, frame, 1, dict.fromkeys(audience))
            return
        if isStamped(envelope) and _PASSING.isdisjoint(header.fields):
            self._envelopes.remember(envelope, found)
        self.broker.publish(found, frame, 1)

    def message_SUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Subscribe to a topic or pattern."""
        try:
            self.broker.subscribe(self._me, self, header.topic)
        except InvalidTopic as error:
            raise SubscriptionFailed(str(error)) from error

    def message_UNSUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """End a subscription, named as it was made; one that does not exist is no error."""
        self.broker.unsubscribe(self._me, header.topic)

    def message_PING(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Answer with a PONG once all that was published before is safe."""
        if header.interval is not None and self._keepAlive is not None:
            self._keepAlive.suggest(header.interval)
        fields = {"keepalive": {"timestamp": header.timestamp}}
        self.broker.whenSafe(lambda: self._say(MessageType.PONG, fields))

    def message_PONG(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Nothing to do: that it came is what counts."""

    # -- what the broker says ----------------------------------------------------------------------

    def _say(self, kind: MessageType, fields: dict[str, Any], payload: bytes = b"", sender: int = BROKER_ID) -> None:
        self.forward(encodeMessage(kind, sender, fields, payload))

    def _routing(self, entry: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the routing of a message from the broker, as this client can read it."""
        return [entry | {"client_name": ""} if self._named else entry]

    def requestFailed(self, id: str, path: str, status: int, reason: str) -> None:
        """Tell that a request will not be answered."""
        self._sayError(status, reason, path, id)

    def requestDone(self) -> None:
        """End a connection that only waited for its last answer, behind the PONGs that are still due."""
        if self._inputEnded and (self.client is None or not self.broker.waiting(self.client)):
            self.broker.whenSafe(lambda: self.end("client closed"))

    def _sayError(self, status: int, reason: str, path: str, id: str | None) -> None:
        routing = self._routing({"client_id": self.id, "path": path})
        fields = {"status": int(status), "routing": routing} | _correlation(id)
        self._say(MessageType.REP, fields, words(reason))

    def _reportLost(self, header: Header, entry: Entry) -> None:
        """A NOTIF or REP that reports an error itself is never answered."""
        if not reportsError(header.fields):
            fields = {"status": int(Status.CLIENT_NOT_FOUND), "routing": self._routing(entry.asSent())}
            self._say(MessageType.NOTIF, fields, words(f"there is no client {entry.client_id}"))

    def _refused(self, error: BrokerError, envelope: bytes) -> None:
        """Answer an error to the message with this envelope, unless that reports one itself."""
        fields = peek(envelope[FIXED_BYTES:])
        kind = envelope[1] if envelope else None
        if kind in (MessageType.REP, MessageType.NOTIF) and reportsError(fields):
            self.failed(error, silently=True)
            return
        self.failed(error, id=peekId(fields), path=peekPath(fields))

    def failed(self, error: BrokerError, id: str | None = None, path: str = "", silently: bool = False) -> None:
        """Answer what a client did wrong; before the JOIN every error ends the connection."""
        joined = self.state is not State.WAITING
        self.counted(error)
        if not silently and joined:
            self._sayError(error.status, str(error), path, id)
        elif not silently:
            self._say(MessageType.REP, {"status": int(error.status)} | _correlation(id), words(str(error)), sender=0)
        if error.closes or not joined:
            self.end(f"error {int(error.status)}")

    # -- keep-alive and the end --------------------------------------------------------------------

    def _ping(self) -> None:
        keepalive = {"timestamp": time.time_ns() // 1_000_000}
        if self._keepAlive is not None and self._keepAlive.interval >= 1:
            keepalive["interval"] = int(self._keepAlive.interval)
        self._say(MessageType.PING, {"keepalive": keepalive})

    def _silent(self) -> None:
        self.end("keep-alive")

    def inputEnded(self) -> None:
        """Wait for the answers that are due, then close."""
        self._inputEnded = True
        self.requestDone()

    def left(self) -> None:
        """Stop the keep-alive, and forget."""
        self._envelopes.clear()
        if self._keepAlive is not None:
            self._keepAlive.stop()
            self._keepAlive = None


def _handOver(frames: list[Chunk], takers: Takers) -> list[Chunk]:
    """Deliver frames, which FlexiMQ subscribers take verbatim, as one chunk; return an empty list to go on with."""
    if frames:
        chunk = frames[0] if len(frames) == 1 else b"".join(frames)
        for deliver in takers:
            deliver(chunk, len(frames))
        return []
    return frames


def _correlation(id: str | None) -> dict[str, Any]:
    return {} if id is None else {"reqrep": {"type": "correlation", "id": id}}


class FlexiFactory(StreamFactory):
    """Builds FlexiMQ connections on streams."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, FlexiSession)
