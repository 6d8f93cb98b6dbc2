"""Messages from the broker to a FlexiMQ client: answers, errors and notifications."""

import time
from collections.abc import Mapping
from typing import Any

import msgpack

from fleximq.broker.envelope import BROKER_ID
from fleximq.dialects.answers import Answers
from fleximq.dialects.fleximq.writers import AnyWriter
from fleximq.errors import BrokerError, ConsumerEnded, NoLongerKept, UnknownDeliveries
from fleximq.status import Status
from fleximq.wire.fleximq_frame import words
from fleximq.wire.fleximq_header import Header, MessageType, RoutingEntry, reportsError

#: The path of the NOTIF sent when the broker stops.
DRAINING = "/broker/draining"


class FlexiReplies:
    """Makes the broker's messages to one client, and sends those that are answers in their order.

    ``id`` is the client id, 0 before the JOIN; ``isNamed``: the client joined with a name, and reads an empty one in
    each routing entry of the broker.
    """

    __slots__ = ("_answers", "id", "isNamed", "writer")

    def __init__(self, answers: Answers, writer: AnyWriter) -> None:
        self._answers = answers
        self.writer = writer
        self.id = 0
        self.isNamed = False

    def send(self, kind: MessageType, fields: dict[str, Any], payload: bytes = b"", sender: int = BROKER_ID) -> None:
        """Send an answer."""
        self._answers.take(self.writer.encoded(kind, fields, payload, sender))

    def sendSuccess(self, requestId: str | None) -> None:
        """Answer a JOIN."""
        self.send(MessageType.REP, {**self.writer.success, **correlation(requestId)}, sender=self.id)

    def sendValue(self, path: str, requestId: str | None, value: Any) -> None:
        """Answer a request to the broker."""
        fields = {"status": int(Status.OK), "routing": self._routing(path)} | correlation(requestId)
        for chunk in self.writer.reply(fields, value):
            self._answers.take(chunk)

    def sendError(self, error: BrokerError, path: str = "", requestId: str | None = None) -> None:
        """Answer with an error; before the JOIN it has the sender 0 and no routing."""
        if self.id:
            self._answers.take(self.error(error.status, errorPayload(error), path, requestId))
        else:
            self.send(
                MessageType.REP, {"status": int(error.status)} | correlation(requestId), words(str(error)), sender=0
            )

    def sendFailure(self, status: int, reason: str, path: str, requestId: str) -> None:
        """Answer a request that its responder will not answer."""
        self._answers.take(self.error(status, words(reason), path, requestId))

    def sendLost(self, header: Header, entry: RoutingEntry) -> None:
        """Report an unknown target by a NOTIF 600, unless the message is an error report itself."""
        if not reportsError(header.fields):
            routing = [self._readable(entry.asSent())]
            fields = {"status": int(Status.CLIENT_NOT_FOUND), "routing": routing}
            self.send(MessageType.NOTIF, fields, words(f"there is no client {entry}"))

    def error(self, status: int, payload: bytes, path: str, requestId: str | None = None) -> bytes:
        """Return an error after the JOIN."""
        fields = {"status": int(status), "routing": self._routing(path)} | correlation(requestId)
        return self.writer.encoded(MessageType.REP, fields, payload)

    def warning(self) -> bytes:
        """Return the NOTIF that the broker stops."""
        fields = {"status": int(Status.SERVICE_UNAVAILABLE), "routing": self._routing(DRAINING)}
        return self.writer.encoded(MessageType.NOTIF, fields, words("the broker is stopping"))

    def ping(self, interval: float) -> bytes:
        """Return a PING with the interval of the keep-alive in seconds; without one if it is below 1."""
        keepalive = {"timestamp": time.time_ns() // 1_000_000} | ({"interval": int(interval)} if interval >= 1 else {})
        return self.writer.encoded(MessageType.PING, {"keepalive": keepalive})

    def _routing(self, path: str) -> list[Mapping[str, Any]]:
        return [self._readable({"client_id": self.id, "path": path})]

    def _readable(self, entry: dict[str, Any]) -> dict[str, Any]:
        return entry | {"client_name": ""} if self.isNamed else entry


def errorPayload(error: BrokerError) -> bytes:
    """Return the payload of an error: a sentence, or a map with it and the ``first`` retained offset, the ``queue``
    and ``tags`` of deliveries, or the ``queue`` of a consumer.
    """
    if isinstance(error, NoLongerKept):
        return msgpack.packb({"error": str(error), "first": error.first})  # type: ignore[no-any-return]
    if isinstance(error, UnknownDeliveries):
        return msgpack.packb({"error": str(error), "queue": error.queue, "tags": error.tags})  # type: ignore[no-any-return]
    if isinstance(error, ConsumerEnded):
        return msgpack.packb({"error": str(error), "queue": error.queue})  # type: ignore[no-any-return]
    return words(str(error))


def correlation(requestId: str | None) -> dict[str, Any]:
    """Return the header field with the id of the answered request; empty without an id."""
    return {} if requestId is None else {"reqrep": {"type": "correlation", "id": requestId}}
