"""Requests by HTTP to other clients, so that a service of FlexiMQ is an endpoint of the web.

A connection becomes a peer of the broker with its first request. It accepts answers only; a request to it is answered
as one to a client of any other dialect without direct messages.
"""

from collections.abc import Callable
from secrets import token_urlsafe
from typing import Any

import msgspec
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.broker.deadlines import Deadline
from fleximq.broker.envelope import BROKER_ID, ConnectedClient
from fleximq.dialects.fleximq.forms import FLEXI_FORM
from fleximq.dialects.http.format.http_request import BodyKind
from fleximq.dialects.http.format.responses import JSON, errorBody
from fleximq.dialects.http.format.routes import Parameter
from fleximq.dialects.http.operations.arguments import SHORTEST, seconds
from fleximq.dialects.http.operations.bodies import payloadsOf
from fleximq.dialects.http.operations.exchange import Exchange
from fleximq.errors import BadRequest, BrokerError, ClientNotFound, TooLarge
from fleximq.interfaces import IForm, IPeer
from fleximq.status import FIRST_ERROR, Status
from fleximq.values.message import Content, Message
from fleximq.wire.fleximq_frame import encodeMessage, payloadOf, readPrefix, words
from fleximq.wire.fleximq_header import MessageType, peek, peekId, peekPath
from fleximq.wire.fleximq_scanner import FIXED_BYTES
from fleximq.wire.messagepack_json import toJson
from fleximq.wire.payload_conversion import JSON_BYTES, JSON_VALUES, toBytes

#: Seconds until an answer, by default and at most.
TIMEOUT, MOST_TIMEOUT = 30.0, 3600.0
PARAMETERS = (Parameter("timeout", "number", f"seconds to wait for the answer; {TIMEOUT:g} without it"),)
_NIL = b"\xc0"
_HEADER_BYTES = slice(FIXED_BYTES - 4, FIXED_BYTES)
_MESSAGEPACK = "application/msgpack"


def ask(exchange: Exchange) -> None:
    """Send the body as a request to a client, and answer with its answer."""
    target, path = exchange.request.names[0], f"/{exchange.request.names[1]}"
    to: int | str = int(target) if target.isascii() and target.isdecimal() and len(target) <= 10 else target
    if to == BROKER_ID:
        raise ClientNotFound("the broker itself is asked at /api/")
    if exchange.request.kind is BodyKind.LINES:
        raise BadRequest("a request has a single value")
    payload = payloadsOf(exchange.request.kind, exchange.body)[0] if exchange.body else _NIL
    timeout = seconds(exchange.arguments, "timeout", TIMEOUT, SHORTEST, MOST_TIMEOUT)
    session = exchange.session
    if session.peer is None:
        session.peer = AnswerReceiver(exchange.broker, exchange.client)
        exchange.broker.receiveDirect(exchange.client, session.peer)
    receiver: AnswerReceiver = session.peer
    receiver.begin(exchange, to, path, payload, timeout)


@implementer(IPeer)
class AnswerReceiver:
    """A connection as a peer: it has one open request at most."""

    form: IForm = FLEXI_FORM

    def __init__(self, broker: Broker, client: ConnectedClient) -> None:
        self._broker = broker
        self._client = client
        self._exchange: Exchange | None = None
        self._id = ""
        self._deadline: Deadline | None = None

    def begin(self, exchange: Exchange, target: int | str, path: str, payload: bytes, timeout: float) -> None:
        """Send a request once all nodes of a mesh know this client; its answer ends the exchange."""
        entry = {"client_id" if isinstance(target, int) else "client_name": target, "path": path}
        self._exchange, self._id = exchange, requestId = exchange, token_urlsafe(12)
        fields = {"routing": [entry], "reqrep": {"type": "request", "id": requestId}}
        frame = encodeMessage(MessageType.REQ, self._client.id, fields, payload)
        most = exchange.session.context.settings.limits.message
        if len(frame) > most:
            raise TooLarge(f"the message has {len(frame)} bytes, but at most {most} are allowed")
        exchange.whenGone = self._forget
        self._deadline = self._broker.deadlines.callLater(timeout, lambda: self._late(timeout))

        def send() -> None:
            if self._id == requestId:
                self._attempt(lambda: self._broker.request(self._client, target, requestId, path, frame))

        self._broker.announce(None, send)

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BrokerError as error:
            exchange = self._exchange
            self._forget()
            if exchange is not None:
                exchange.fail(error)

    def _late(self, timeout: float) -> None:
        self._failed(Status.GATEWAY_TIMEOUT, f"no answer within {timeout:g} seconds")

    def _forget(self) -> None:
        """Ignore a later answer."""
        if self._exchange is not None:
            self._broker.forgetRequest(self._client, self._id)
        self._over()

    def _over(self) -> Exchange | None:
        exchange, self._exchange, self._id = self._exchange, None, ""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        return exchange

    def _failed(self, status: int, sentence: str) -> None:
        exchange = self._exchange
        self._forget()
        if exchange is not None:
            exchange.send(errorBody(sentence), JSON, status)

    # -- IPeer -------------------------------------------------------------------------------------

    def deliver(self, rendered: Any, count: int) -> None:
        """Ignore a run: this peer has no subscriptions."""

    def receiveBroadcast(self, message: Any) -> None:
        """Ignore a broadcast."""

    def requestDone(self) -> None:
        """Ignored: the answer itself ends a request."""

    def requestFailed(self, requestId: str, path: str, status: int, words: str) -> None:
        if requestId == self._id:
            self._failed(status, words)

    def forward(self, message: Any) -> None:
        frame = bytes(message)
        _, kind, sender = readPrefix(frame)
        end = FIXED_BYTES + int.from_bytes(frame[_HEADER_BYTES], "big")
        fields = peek(frame[FIXED_BYTES:end])
        if kind == MessageType.REQ:
            self._broker.deadlines.callLater(0, lambda: self._refuse(sender, fields))
        elif kind == MessageType.REP and peekId(fields) == self._id:
            exchange = self._over()
            if exchange is not None:
                _answer(exchange, fields.get("status", Status.OK), payloadOf(frame, end))

    def _refuse(self, sender: int, fields: Any) -> None:
        """Answer a request to this client: there is none that takes it."""
        requestId, path = peekId(fields) or "", peekPath(fields)
        header = {
            "routing": [{"client_id": sender, "path": path}],
            "reqrep": {"type": "correlation", "id": requestId},
            "status": int(Status.CLIENT_NOT_FOUND),
        }
        sentence = words(f"there is no client {self._client.id} that takes this message")
        frame = encodeMessage(MessageType.REP, self._client.id, header, sentence)
        self._attempt(lambda: self._broker.reply(self._client, sender, requestId, frame, path))


def _answer(exchange: Exchange, status: Any, payload: bytes) -> None:
    """Send the answer of a service: JSON, bytes as they are, or MessagePack if the client asks for it."""
    if not isinstance(status, int):
        status = Status.OK
    if status >= FIRST_ERROR:
        code = status if status < 600 else 404 if status == Status.CLIENT_NOT_FOUND else 502
        exchange.send(errorBody(_sentence(payload) or "the service answered with an error"), JSON, code)
    elif _MESSAGEPACK in exchange.request.accept:
        exchange.send(payload, _MESSAGEPACK)
    elif payload[:1] in (b"\xc4", b"\xc5", b"\xc6"):
        exchange.send(toBytes(Message(payload, Content.MESSAGEPACK)), "application/octet-stream")
    else:
        body = _jsonOf(payload)
        if body is None:
            sentence = f"the answer cannot be shown as JSON; it can with Accept: {_MESSAGEPACK}"
            exchange.send(errorBody(sentence), JSON, 502)
        else:
            exchange.send(body + b"\n")


def _jsonOf(payload: bytes) -> bytes | None:
    if len(payload) > JSON_BYTES:
        return None
    try:
        return toJson(payload or _NIL, JSON_VALUES)
    except ValueError:
        return None


def _sentence(payload: bytes) -> str:
    """Return the words in the payload of an error: a string, or a map's ``error``."""
    try:
        value = msgspec.msgpack.decode(payload)
    except (ValueError, RecursionError):
        return ""
    value = value.get("error") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""
