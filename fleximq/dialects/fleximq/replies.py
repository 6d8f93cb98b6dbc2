"""Messages from the broker to a FlexiMQ client: answers, errors and notifications, in the client's layout."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgpack
from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from fleximq.broker.envelope import BROKER_ID, ConnectedClient
from fleximq.compiled import choice
from fleximq.dialects.answers import Answers
from fleximq.dialects.context import Context
from fleximq.dialects.fleximq.forms import FLEXI_FORM, LAYOUT_B_FORM
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.session import ConnectionState, StreamSession
from fleximq.errors import BrokerError, NoLongerKept, NotRecorded
from fleximq.interfaces import IForm, IPeer, ISubscriber
from fleximq.status import Status
from fleximq.wire.fleximq_array_header import named, withStatusName
from fleximq.wire.fleximq_frame import encodeFrameHead, encodeMessage, words
from fleximq.wire.fleximq_header import Header, MessageType, RoutingEntry, peekId, peekPath, reportsError
from fleximq.wire.fleximq_layout_b import framesWithinLayoutB
from fleximq.wire.fleximq_scanner import framesWithin
from fleximq.wire.large_value import packLarge

#: Seconds from the end of a client's input to PINGs, if an answer is pending for so long.
_PROBES = 1.0, 2.0
#: The path of the NOTIF sent when the broker stops.
DRAINING = "/broker/draining"


# These convert a frame once for all its receivers.
_sharedLayoutB = lru_cache(maxsize=1)(choice.toLayoutB)
_sharedStatusName = lru_cache(maxsize=1)(withStatusName)


@implementer(ISubscriber, IPeer)
class FlexiReplies(StreamSession):
    """The output half of a FlexiMQ session. ``id`` is the client id, 0 before the JOIN."""

    __slots__ = (
        "_fields", "_me", "_named", "_requests", "_shaped", "deliver", "form", "forward", "id", "receiveBroadcast"
    )  # fmt: skip
    dialect = "fleximq"
    mayFinish = True

    def __init__(self, context: Context, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self.form: IForm = FLEXI_FORM
        self.deliver = outbox.deliver
        self.receiveBroadcast: Callable[[bytes], None] = outbox.deliver
        self.forward: Callable[[bytes], None] = outbox.take
        outbox.cut = framesWithin
        self.answers: Answers = Answers(outbox)
        self._shaped: Callable[[bytes], bytes] = bytes
        self._fields: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
        self.id = 0
        self._me: ConnectedClient  # set by the JOIN
        self._named = False
        self._requests = 0  # unanswered requests to the broker itself

    def speakLayoutB(self) -> None:
        """Send all messages in layout B from now on."""
        outbox = self.outbox
        self.form = LAYOUT_B_FORM
        self._shaped = choice.toLayoutB
        self.forward = lambda frame: outbox.take(_sharedLayoutB(frame))
        self.receiveBroadcast = lambda frame: outbox.deliver(_sharedLayoutB(frame))
        outbox.cut = framesWithinLayoutB

    def _send(self, kind: MessageType, fields: dict[str, Any], payload: bytes = b"", sender: int = BROKER_ID) -> None:
        self.answers.take(self._encoded(kind, fields, payload, sender))

    def _sendValue(self, fields: dict[str, Any], value: Any) -> None:
        """Answer with a value; a large view at its end is sent without copying, as a separate chunk."""
        head, rest = packLarge(value)
        if not rest or self._shaped is not bytes:
            self._send(MessageType.REP, fields, b"".join((head, rest)))
        else:
            size = len(head) + len(rest)
            self.answers.take(encodeFrameHead(MessageType.REP, BROKER_ID, self._fields(fields), size) + head)
            self.answers.take(rest)

    def nameStatuses(self) -> None:
        """Send statuses by name from now on, for a client that cannot read the numbers."""
        self._fields = named
        forward, receiveBroadcast = self.forward, self.receiveBroadcast
        self.forward = lambda frame: forward(_sharedStatusName(frame))
        self.receiveBroadcast = lambda frame: receiveBroadcast(_sharedStatusName(frame))

    def _encoded(
        self, kind: MessageType, fields: Mapping[str, Any], payload: bytes = b"", sender: int = BROKER_ID
    ) -> bytes:
        return self._shaped(encodeMessage(kind, sender, self._fields(fields), payload))

    def _routing(self, entry: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the routing of a message from the broker, in a form that this client can read."""
        return [entry | {"client_name": ""} if self._named else entry]

    def requestFailed(self, id: str, path: str, status: int, reason: str) -> None:
        """Report that a request will not be answered."""
        self.answers.take(self._error(status, words(reason), path, id))

    def requestDone(self) -> None:
        """Close a connection whose input has ended, after its last answer and its pending PONGs."""
        if self._inputEnded and not self._requests and (self.client is None or not self.broker.waiting(self.client)):
            self.whenDecided(lambda: self.end("client closed"))

    def _sendError(self, error: BrokerError, path: str, id: str | None = None) -> None:
        self.answers.take(self._error(error.status, errorPayload(error), path, id))

    def _error(self, status: int, payload: bytes, path: str, id: str | None = None) -> bytes:
        routing = self._routing({"client_id": self.id, "path": path})
        fields = {"status": int(status), "routing": routing} | correlation(id)
        return self._encoded(MessageType.REP, fields, payload)

    def _reportRefused(self, topic: str, reason: str | None, indexes: Sequence[int], inOrder: bool = False) -> None:
        """Report messages refused by the journal, before the PONG that awaits the commit or in the order of answers."""
        if reason is None:
            return
        error = NotRecorded(reason)
        say = self.answers.take if inOrder else self.outbox.take
        for _ in indexes:
            self.counted(error)
            say(self._error(error.status, words(str(error)), topic))

    def _reportLost(self, header: Header, entry: RoutingEntry) -> None:
        if not reportsError(header.fields):
            fields = {"status": int(Status.CLIENT_NOT_FOUND), "routing": self._routing(entry.asSent())}
            self._send(MessageType.NOTIF, fields, words(f"there is no client {entry}"))

    def _refused(self, error: BrokerError, kind: int | None, fields: Mapping[Any, Any], topic: str = "") -> None:
        """Answer an error for a message with this type and header, unless it reports one itself."""
        if kind in (MessageType.REP, MessageType.NOTIF) and reportsError(fields):
            self.failed(error, silently=True)
            return
        self.failed(error, id=peekId(fields), path=topic or peekPath(fields))

    def failed(self, error: BrokerError, id: str | None = None, path: str = "", silently: bool = False) -> None:
        """Answer a client's error; before the JOIN every error closes the connection."""
        joined = self.state is not ConnectionState.WAITING
        self.counted(error)
        if not silently:
            self.answerError(error, id, path)
        if error.closes or not joined:
            self.end(f"error {int(error.status)}")

    def answerError(self, error: BrokerError, id: str | None = None, path: str = "") -> None:
        """Send an error as a REP: with the broker's id after the JOIN, with client id 0 before it."""
        if self.state is ConnectionState.WAITING:
            self._send(MessageType.REP, {"status": int(error.status)} | correlation(id), words(str(error)), sender=0)
        else:
            self._sendError(error, path, id)

    def warn(self) -> None:
        """Send a NOTIF with status 503 from :data:`DRAINING`, unless the client has not joined."""
        if self.state is ConnectionState.OPEN:
            routing = self._routing({"client_id": self.id, "path": DRAINING})
            fields = {"status": int(Status.SERVICE_UNAVAILABLE), "routing": routing}
            self.outbox.take(self._encoded(MessageType.NOTIF, fields, words("the broker is stopping")))

    def ping(self) -> None:
        """Send a PING with the interval of the keep-alive."""
        keepalive = {"timestamp": time.time_ns() // 1_000_000}
        if self._keepAlive is not None and self._keepAlive.interval >= 1:
            keepalive["interval"] = int(self._keepAlive.interval)
        self.outbox.take(self._encoded(MessageType.PING, {"keepalive": keepalive}))

    def inputEnded(self) -> None:
        """Send pending answers, then close.

        The end of input does not say whether the peer still reads. If it does not, its system answers our next bytes
        with a reset, and those after it fail: PINGs find that out, and the client is not listed until an answer.
        """
        self._inputEnded = True
        self.requestDone()
        for delay in _PROBES if self.state is ConnectionState.OPEN else ():
            self.broker.deadlines.callLater(delay, self._probe)

    def _probe(self) -> None:
        if self.state is ConnectionState.OPEN:
            self.ping()


def errorPayload(error: BrokerError) -> bytes:
    """Return the payload of an error: a sentence, or a map with it and the ``first`` retained offset."""
    if isinstance(error, NoLongerKept):
        return msgpack.packb({"error": str(error), "first": error.first})  # type: ignore[no-any-return]
    return words(str(error))


def correlation(id: str | None) -> dict[str, Any]:
    """Return the header field with the id of the answered request; empty without an id."""
    return {} if id is None else {"reqrep": {"type": "correlation", "id": id}}
