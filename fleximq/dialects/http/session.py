"""The session of plain HTTP: requests on a connection that stays open, answered in order (docs/reference/dialects.rst,
"HTTP"). Hot.

One request is answered before the next one is read; input that arrives meanwhile is buffered up to a bound. A
connection has one identity, that of its first request, and is one client of the broker. A request that is not for this
session (of other credentials, for a page, or for a WebSocket) is handed back to a router, which decides about it as
about the first request of a connection. Each different head is parsed and checked once; a repeated one costs a look-up,
until the client's rights change.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from fleximq.broker.deadlines import Deadline
from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.connection.connection_rate import overRate
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.envelope_cache import EnvelopeCache
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.http.format.http_request import HttpRequest, allowedMethods, readRequest
from fleximq.dialects.http.format.request_head import HttpError, RequestHead
from fleximq.dialects.http.format.request_scanner import RequestScanner
from fleximq.dialects.http.format.responses import JSON, errorBody, errorFields, response, statusOf
from fleximq.dialects.http.operations.exchange import Exchange
from fleximq.dialects.http.operations.route_table import ROUTES
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.session import NamedLogger, StreamSession
from fleximq.errors import BrokerError, TooLarge, Unauthorized
from fleximq.interfaces import IConversation
from fleximq.security.principal import Admitted

#: Further input of a client that awaits an answer, in bytes; with more it is not read.
AHEAD_BYTES = 1 << 16
#: A request must arrive with so many bytes in each interval of the handshake deadline, or completely.
LEAST_BYTES = 10_240
#: An idle connection is closed after so many intervals of the option ``keepalive``, as a silent one of other dialects.
IDLE_INTERVALS = 3
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Gate(Protocol):
    """The router of the listener, as far as later requests of a connection need it."""

    def continues(self, head: RequestHead) -> bool:
        """Return whether this connection serves a request: it belongs to plain HTTP, and has the same credentials."""

    def corsFields(self, head: RequestHead) -> tuple[str, ...]:
        """Return the header fields by which a web page of another origin may read the response."""

    def preflightFields(self, head: RequestHead) -> tuple[str, ...]:
        """Return the fields of the answer to a web page that asks whether it may send a request."""


@implementer(IConversation)
class HttpSession(StreamSession):
    """One connection of plain HTTP.

    The protocol sets ``gate``; ``admitted``, None if the credentials are required and missing; ``onForeign``, called
    once with a request for the router; ``onReady``, called when input may be processed outside of a read; and
    ``onAhead``, called with whether the client has sent too much.
    """

    _log = NamedLogger(__name__)
    dialect: ClassVar[str] = "http"
    isLongLived = False
    gate: Gate

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self.scanner = RequestScanner()
        self.known: EnvelopeCache[HttpRequest] = EnvelopeCache(context.envelopeBudget)
        self.closesNext = False
        self.isForeign = False
        self.onForeign: Callable[[], None] = _nothing
        self.onReady: Callable[[], None] = _nothing
        self.onAhead: Callable[[bool], None] = lambda isAhead: None
        self.peer: Any = None
        #: The ends of answers in the output, and the calls if these are not sent.
        self._cuts: list[tuple[int, Callable[[], None]]] = []
        self._request: HttpRequest | None = None  # its body is incomplete
        self._exchange: Exchange | None = None
        self._isProceeding = False
        self._timer: Deadline | None = None
        self._isIdle = False
        self._answered = 0
        self._watched = (-1, 0)

    @property
    def joined(self) -> ConnectedClient:
        """The client of the broker."""
        client = self.client
        if client is None:
            raise Unauthorized("credentials are required")
        return client

    @property
    def isActive(self) -> bool:
        """Whether requests may be processed."""
        return self.state in _ACTIVE

    @property
    def buffered(self) -> int:
        """Bytes of incomplete requests, and of those that wait for their turn."""
        return self.scanner.buffered

    def opened(self) -> None:
        """Join with the credentials of the first request."""
        self._tick()
        admitted: Admitted | None = self.handshake.admitted
        if admitted is None:
            return
        try:
            self.letIn(admitted)
        except BrokerError as error:
            self.counted(error)
            self._refuse(HttpError(statusOf(error), str(error)))

    # -- input -------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Process a read."""
        if data:
            self.scanner.feed(data)
        self._proceed()
        if self._exchange is not None:
            if self.scanner.buffered > AHEAD_BYTES:
                self.onAhead(True)
        elif self._isIdle and self._isIncomplete:
            self._watch(self.context.settings.handshakeTimeout)

    def _proceed(self) -> None:
        """Process complete requests until one must wait for its answer."""
        if self._isProceeding:
            return
        self._isProceeding = True
        try:
            while self._exchange is None and not self.isForeign and self.isActive and not self.outbox.full:
                if not self._next():
                    break
        except HttpError as error:
            self._refuse(error, () if self._request is None else self._request.corsFields)
        finally:
            self._isProceeding = False

    def _next(self) -> bool:
        """Process one request; return False if it is incomplete, for the router, or answered without a route."""
        scanner, request = self.scanner, self._request
        if request is None:
            raw = scanner.head()
            if raw is None:
                return False
            request = self.known.get(raw)
            if request is None:
                request = self._opened(raw)
                if request is None:
                    return False
            self._request = request
            scanner.expect(request.length, request.limit)
            if request.expectsContinue and request.length and not scanner.buffered:
                self.outbox.take(_CONTINUE)
        body = scanner.body()
        if body is None:
            return False
        self._request = None
        self._act(request, body)
        return True

    def _opened(self, raw: bytes) -> HttpRequest | None:
        """Return the request of a new head, None if it is for the router or answered."""
        head = RequestHead.parse(raw)
        if not self.gate.continues(head):
            self.scanner.unread(raw)
            self.isForeign = True
            self.onForeign()
            return None
        corsFields = self.gate.corsFields(head)
        try:
            if head.method == "OPTIONS":
                self._options(head)
                return None
            if self.client is None:
                raise HttpError(401, "credentials are required")
            request = readRequest(head, ROUTES, self.context.settings.limits.message, corsFields)
        except HttpError as error:
            self._refuse(error, corsFields, withBody=head.method != "HEAD")
            return None
        if not request.isUnique and not corsFields:  # a reload may take back the admission of the origin
            self.known.remember(raw, request)
        return request

    def _options(self, head: RequestHead) -> None:
        """Answer with the methods of a path, and whether a web page may use them."""
        if "transfer-encoding" in head.fields or (head.only("content-length") or "0") != "0":
            raise HttpError(413, "OPTIONS takes no body")
        allowed = ", ".join(allowedMethods(ROUTES.find(head.path)[0]))
        fields = (f"Allow: {allowed}", *self.gate.preflightFields(head))
        isGuest = self.client is None  # it must not stay for longer than any other connection without credentials
        self.outbox.take(response(204, b"", "", "close" if isGuest else "", fields, withBody=False))
        self.traffic.messagesIn += 1
        if isGuest:
            self.end("client closed")
        else:
            self.onReady()

    def _act(self, request: HttpRequest, body: bytes) -> None:
        self.traffic.messagesIn += 1
        if self._cuts:
            self._cuts = [cut for cut in self._cuts if cut[0] > self.outbox.sent]
        exchange = self._exchange = Exchange(self, request, body)
        try:
            if self.rate is not None and self.rate.refuses and not self.rate.meter.admits(1, len(body)):
                raise overRate()
            request.route.act(exchange)
        except BrokerError as error:
            exchange.fail(error)
        except Exception:
            self._log.failure("http: a request could not be processed")
            exchange.send(errorBody("internal error"), status=500)
            if exchange.hasBegun:  # its head is sent, so that only the end of the connection is left
                self.end("internal error")

    # -- answers -----------------------------------------------------------------------------------

    def connectionField(self, request: HttpRequest) -> str:
        """Return the value of a response's field ``Connection``, "" to leave it out."""
        if not request.keepsAlive or self.closesNext or self.dismissed or self._inputEnded:
            self.closesNext = True
            return "close"
        return "" if request.isLatest else "keep-alive"

    def whenCut(self, call: Callable[[], None]) -> None:
        """Call if the connection is lost before all output so far is sent."""
        self._cuts.append((self.outbox.taken, call))

    def rateWait(self) -> float:
        """Return the seconds after which the client is within its rates."""
        return 1.0 if self.rate is None else self.rate.meter.wait()

    def answered(self, exchange: Exchange) -> None:
        """Continue with the next request, after a response is complete."""
        if self._exchange is exchange:
            self._exchange = None
            self._answered += 1
            if self.closesNext:
                self.end("client closed")
            elif not self._isProceeding:
                self.onAhead(False)
                self.onReady()

    def answerError(self, error: BrokerError) -> None:
        """Answer the pending request, if any, before the connection ends."""
        exchange = self._exchange
        if exchange is not None:
            self.closesNext = True
            status = statusOf(error)
            exchange.send(errorBody(str(error)), JSON, status, errorFields(status))

    def _refuse(self, error: HttpError, corsFields: tuple[str, ...] = (), withBody: bool = True) -> None:
        """Answer a request that cannot be read or served, and close: the end of its body may be uncertain."""
        if error.code == 413:
            self.counted(TooLarge(str(error)))
        else:
            self.broker.observers.counted(f"error: {error.code}", 1)
        fields = (*corsFields, *errorFields(error.code), *error.fields)
        self.outbox.take(response(error.code, errorBody(str(error)), JSON, "close", fields, withBody))
        self.outbox.linger()
        self.end(f"error {error.code}")

    # -- time and the end --------------------------------------------------------------------------

    @property
    def _isIncomplete(self) -> bool:
        return self._request is not None or self.scanner.buffered > 0

    def _watch(self, seconds: float, isIdle: bool = False) -> None:
        """Look at the connection again after so many seconds, and not before."""
        if self._timer is not None:
            self._timer.cancel()
        self._isIdle = isIdle
        self._timer = self.broker.deadlines.callLater(seconds, self._tick)

    def _tick(self) -> None:
        """Close a connection that is idle, or on which a request arrives too slowly."""
        watched, self._watched = self._watched, (self._answered, self.traffic.bytesIn)
        settings = self.context.settings
        if self._exchange is not None or not self.listening:
            self._watched = (-1, 0)
        elif self._isIncomplete:
            if watched[0] == self._answered and self.traffic.bytesIn - watched[1] < LEAST_BYTES:
                self._refuse(HttpError(408, "the request did not arrive in time"))
                return
        else:
            left = self.receivedAt + IDLE_INTERVALS * settings.keepalive - self.context.clock.seconds()
            if left <= 0:
                self.end("idle")
            else:
                self._watch(left, isIdle=True)
            return
        self._watch(settings.handshakeTimeout)

    def inputEnded(self) -> None:
        """Answer the pending request, unless its route ends it, then close."""
        self._inputEnded = True
        exchange = self._exchange
        if exchange is not None and not exchange.gone():
            self.closesNext = True
        else:
            self.end("client closed")

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Check each request again from now on, also one whose body has not arrived yet."""
        self.known.clear()
        if self._request is not None:
            self._request.prepared = None
        exchange = self._exchange
        if lost and exchange is not None and exchange.whenLost is not None:
            exchange.whenLost(lost)

    @property
    def isStreaming(self) -> bool:
        """Whether the head of the pending answer is sent, and its body is not complete."""
        return self._exchange is not None and self._exchange.hasBegun

    def abort(self, reason: str) -> None:
        """Close now; pending output is dropped."""
        self._noteCut()
        super().abort(reason)

    def lost(self, inOrder: bool = False) -> None:
        """The connection is closed."""
        self._noteCut()
        super().lost(inOrder)

    def _noteCut(self) -> None:
        cuts, self._cuts = self._cuts, []
        for end, call in cuts:
            if end > self.outbox.sent:
                call()

    def left(self) -> None:
        """Release what the connection holds."""
        self.known.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        exchange, self._exchange, self._request, self.peer = self._exchange, None, None, None
        if exchange is not None:
            exchange.gone()
            exchange.isOver = True
        self.onForeign = self.onReady = _nothing
        self.onAhead = lambda isAhead: None


_ACTIVE = ConnectionState.WAITING, ConnectionState.OPEN


def _nothing() -> None:
    pass
