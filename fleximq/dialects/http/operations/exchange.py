"""One request and its response."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.traffic import Traffic
from fleximq.dialects.connection.connection_rate import ConnectionRate
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.http.format.http_request import HttpRequest
from fleximq.dialects.http.format.responses import (
    JSON,
    errorBody,
    errorFields,
    jsonBody,
    response,
    responseHead,
    statusOf,
)
from fleximq.dialects.outbox import Outbox
from fleximq.errors import BrokerError


class HttpConversation(Protocol):
    """The session of the connection, as far as exchanges and routes need it.

    ``peer`` is None until a route makes the client one that accepts direct messages.
    """

    broker: Broker
    closesNext: bool
    context: ListenerContext
    outbox: Outbox
    peer: Any
    rate: ConnectionRate | None
    traffic: Traffic

    @property
    def joined(self) -> ConnectedClient:
        """The client of the broker."""

    def connectionField(self, request: HttpRequest) -> str:
        """Return the value of a response's field ``Connection``, "" to leave it out."""

    def counted(self, error: BrokerError) -> None:
        """Count and log an error."""

    def whenCut(self, call: Callable[[], None]) -> None:
        """Call if the connection is lost before all output so far is sent."""

    def rateWait(self) -> float:
        """Return the seconds after which the client is within its rates."""

    def answered(self, exchange: "Exchange") -> None:
        """Continue after a complete response."""


class Exchange:
    """A complete request that its route answers, at once or later, with :meth:`answer`, :meth:`fail`, or :meth:`begin`
    and :meth:`done`; after the end of the connection these are no-ops.

    ``whenGone``, if the route sets it, is called once when the client ends its input or its connection is lost before
    the answer: no answer is expected then, and the exchange is over. Without it, a client that has only ended its input
    is still answered. ``whenGone`` may answer.

    ``whenLost``, if the route sets it, is called with the names of subscriptions that the client has lost.
    """

    __slots__ = ("body", "hasBegun", "isOver", "request", "session", "whenGone", "whenLost")

    def __init__(self, session: HttpConversation, request: HttpRequest, body: bytes) -> None:
        self.session = session
        self.request = request
        self.body = body
        self.hasBegun = self.isOver = False
        self.whenGone: Callable[[], None] | None = None
        self.whenLost: Callable[[Sequence[str]], None] | None = None

    @property
    def broker(self) -> Broker:
        """The broker."""
        return self.session.broker

    @property
    def client(self) -> ConnectedClient:
        """The connection as a client of the broker."""
        return self.session.joined

    @property
    def name(self) -> str:
        """The topic, queue or client in the path."""
        return self.request.names[0]

    @property
    def arguments(self) -> Mapping[str, str]:
        """The arguments of the query and of header fields, by the names of the route's parameters."""
        return self.request.arguments

    def answer(self, value: Any, status: int = 200, fields: Sequence[str] = ()) -> None:
        """Answer with a value as JSON."""
        self.send(jsonBody(value), JSON, status, fields)

    def send(self, body: bytes, kind: str = JSON, status: int = 200, fields: Sequence[str] = ()) -> None:
        """Answer with a body of this content type, and further header fields as whole lines. An answer that has begun
        ends instead.
        """
        if self.hasBegun:
            self.gone()
        elif not self.isOver:
            request = self.request
            fields = (*request.corsFields, *fields) if request.corsFields or fields else ()
            connection = self.session.connectionField(request)
            self.session.outbox.take(response(status, body, kind, connection, fields, request.method != "HEAD"))
            self.done()

    def fail(self, error: BrokerError) -> None:
        """Answer with an error."""
        if not self.isOver:
            self.session.counted(error)
            status = statusOf(error)
            self.send(errorBody(str(error)), JSON, status, errorFields(status, self.session.rateWait()))

    def begin(self, kind: str, status: int = 200, fields: Sequence[str] = ()) -> None:
        """Send the head of a response whose body ends with the connection; the route writes it to the outbox."""
        request = self.request
        self.hasBegun = self.session.closesNext = True
        head = responseHead(status, kind, (*request.corsFields, *fields))
        self.session.outbox.take(head + b"Connection: close\r\n\r\n")

    def done(self) -> None:
        """The response is complete."""
        if not self.isOver:
            self.isOver = True
            self.whenGone = self.whenLost = None
            self.session.answered(self)

    def gone(self) -> bool:
        """End the exchange without an answer, as the client has left; return False if it must still be answered."""
        call, self.whenGone = self.whenGone, None
        if call is None:
            return False
        call()
        self.isOver = True
        self.whenLost = None
        return True
