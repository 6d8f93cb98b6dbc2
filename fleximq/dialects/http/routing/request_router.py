"""Routes HTTP connections: WebSockets to their dialect, requests of plain HTTP to theirs, all others to the web site.

Refuses peers without access, and passes on the connection and all its bytes except credentials. The next protocol
receives the result in ``admitted`` and the rule in ``admission``, if it has these attributes.
docs/reference/dialects.rst, "Credentials", "Identity" and "One port for all".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from twisted.cred.credentials import ICredentials
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IProtocolFactory, ISSLTransport
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.broker.deadlines import Clock, Deadlines
from fleximq.dialects.connection.credential_check import certificateOf
from fleximq.dialects.connection.handover import Handover, HandoverFactory
from fleximq.dialects.http.format.request_head import (
    CHALLENGES,
    HEAD_BYTES,
    HttpError,
    RequestHead,
    challengesFor,
    credentialsIn,
    webSocketDialect,
    withoutCredentials,
)
from fleximq.dialects.http.format.responses import JSON, errorBody, response, statusOf
from fleximq.dialects.http.format.routes import isServed
from fleximq.dialects.http.routing.origins import Origins
from fleximq.errors import BrokerError, Unauthorized
from fleximq.interfaces import IAdmission
from fleximq.security.anonymous_access import nameProxy
from fleximq.security.credentials import UNTRUSTED
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import Admitted
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.log_limit import LogLimits
from fleximq.values.unadmitted_budget import BufferCharge, UnadmittedBudget

_log = Logger()

_END = b"\r\n\r\n"


class RequestRouter(Handover):
    """Reads one request head and passes the connection on."""

    factory: "RequestRouterFactory"

    def __init__(self, factory: "RequestRouterFactory", address: IAddress | None) -> None:
        self.factory = factory
        self._address = address
        self.connectedAt = factory.clock.seconds()
        self._received = bytearray()
        self._charge = BufferCharge(factory.unadmitted)
        self._method = ""
        self._isPlain = False
        self._fields: tuple[str, ...] = ()
        self._challenges = CHALLENGES
        self._check: Deferred[None] | None = None
        self._inputOver = False

    def connectionMade(self) -> None:
        """Start the deadline, or continue the one of the connection."""
        left = self.connectedAt + self.factory.deadline - self.factory.clock.seconds()
        self._timer = self.factory.clock.callLater(max(0.0, left), self._tooSlow)

    def dataReceived(self, data: bytes) -> None:
        """Search for the end of the head, in linear time. Input after an error response is dropped."""
        if self._timer is None:
            return
        searched = max(0, len(self._received) - len(_END) + 1)
        self._received += data
        if not self._charge.change(len(self._received)):
            self._refuse(HttpError(503, "too many requests are received at once"))
            return
        if self._check is not None:
            return
        end = self._received.find(_END, searched, HEAD_BYTES)
        if end >= 0:
            self._decide(bytes(self._received[:end]))
        elif len(self._received) >= HEAD_BYTES:
            self._refuse(HttpError(431, f"the head of a request may have {HEAD_BYTES} bytes"))

    def readConnectionLost(self) -> None:
        """The peer ended its input: close, unless a complete request awaits its credential check."""
        self._inputOver = True
        if self._check is None:
            super().readConnectionLost()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop the deadline and the check."""
        self._stopClock()
        self._drop()
        self._charge.change(0)

    def _decide(self, raw: bytes) -> None:
        try:
            head = RequestHead.parse(raw)
            self._method, self._isPlain = head.method, isServed(head.path)
            self._challenges = challengesFor(head)
            inTls = ISSLTransport.providedBy(self.transport)
            request = UpgradeRequest(head, credentialsIn(head), self._peer(), inTls)
            factory = self.factory.factoryOf(request)
            inner = factory.buildProtocol(self._address)
        except HttpError as error:
            self._refuse(error)
            return
        self._isPlain = factory is self.factory.plain
        if self._isPlain:
            inner.router, inner.first = self.factory, request
            self._fields = self.factory.origins.corsFields(head.only("origin"))
        else:
            self._received[: len(raw)] = withoutCredentials(raw)
        if hasattr(inner, "admission"):
            inner.admission = self.factory.admissionOf(request)
        if request.credentials is None and getattr(inner, "joinsLater", False):
            self._enter(inner, None)
        else:
            self._ask(request, inner)

    def _ask(self, request: "UpgradeRequest", inner: Any) -> None:
        transport: Any = self.transport
        certificate = certificateOf(transport)
        if certificate and not certificate.isTrusted:
            self._refuse(HttpError(401, UNTRUSTED))
            return
        credentials = request.credentials or certificate
        outcome: list[Admitted | Failure] = []
        check = maybeDeferred(self.factory.admissionOf(request).admit, credentials, request.peer)
        check.addBoth(outcome.append)
        if not outcome:
            self._check = check
            transport.pauseProducing()
        mayLack = credentials is None and hasattr(inner, "admitted") and not request.head.isUpgrade
        mayLack = mayLack and not (self._isPlain and request.head.method != "OPTIONS")
        check.addCallback(lambda ignored: self._answered(mayLack, inner, outcome[0]))
        check.addErrback(lambda failure: _log.failure("a request could not be admitted", failure))

    def _answered(self, mayLackCredentials: bool, inner: Any, outcome: "Admitted | Failure") -> None:
        """Continue with the identity of a request; without one if the site may answer to lacking credentials."""
        if self._timer is None:
            return  # too late, or the connection is closed
        if self._check is not None:
            self._check = None
            transport: Any = self.transport
            transport.resumeProducing()
        if not isinstance(outcome, Failure):
            self._enter(inner, outcome)
        elif isinstance(outcome.value, Unauthorized) and mayLackCredentials:
            self._enter(inner, None)
        else:
            self._refuse(_httpErrorOf(outcome, self._challenges))

    def _enter(self, inner: Any, admitted: Admitted | None) -> None:
        self._stopClock()
        received, self._received = bytes(self._received), bytearray()
        self._charge.change(0)
        if hasattr(inner, "admitted"):
            inner.admitted = admitted
        receiver = self.handOver(inner, received)
        if self._inputOver:
            receiver.readConnectionLost()

    def _tooSlow(self) -> None:
        self._timer = None
        self._drop()
        if not self._received:
            event = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "said nothing before the handshake deadline")
            self.factory.counted(event, 1)
            more = self.factory.logLimits["silent"].ending(self.factory.clock.seconds())
            if more is not None:
                peer = peerAddress(self._peer())
                _log.debug("{peer} said nothing before the handshake deadline{more}", peer=peer, more=more)
            self._endAll()
        elif self._method:
            self._refuse(HttpError(503, "the credentials could not be checked in time"))
        else:
            self._refuse(HttpError(408, "the head of the request did not arrive in time"))

    def _drop(self) -> None:
        check, self._check = self._check, None
        if check is not None:
            check.cancel()

    def _refuse(self, error: HttpError) -> None:
        self._stopClock()
        self._drop()
        self.factory.counted(CountedEvent(EventFamily.REFUSED_CONNECTIONS, f"HTTP {error.code}"), 1)
        if error.code in (401, 403):
            reason = f"{error.code} {error}"
            self.factory.audit("refused", address=peerAddress(self._peer()), dialect="http", reason=reason)
        more = self.factory.logLimits[f"HTTP {error.code}"].ending(self.factory.clock.seconds())
        if more is not None:
            _log.warn(
                "Refusing HTTP from {peer} with {code}: {sentence}{more}",
                peer=peerAddress(self._peer()), code=error.code, sentence=error, more=more,
            )  # fmt: skip
        transport: Any = self.transport
        transport.write(_response(error, self._isPlain, self._fields, withBody=self._method != "HEAD"))
        self._endAll()


class UpgradeRequest(NamedTuple):
    """A request, its credentials, the address of the peer, and whether its connection is one of TLS."""

    head: RequestHead
    credentials: ICredentials | None
    peer: Any
    inTls: bool

    @property
    def secure(self) -> bool:
        """Whether it was sent inside TLS, perhaps to a proxy."""
        return self.inTls or "https" in self.head.listed("x-forwarded-proto")


@dataclass(eq=False, repr=False)
class RequestRouterFactory(HandoverFactory):
    """Builds the routers of a listener. ``audit`` records refusals, see :class:`fleximq.broker.broker.Broker`.

    :param webSockets: the factory of each dialect served over WebSocket, by name; ``site`` receives other requests.
    :param plain: the factory of plain HTTP, for the paths of its :mod:`routes`; None: not served.
    :param behindProxy: replaces ``admission`` for requests through a proxy.
    :param deadline: seconds from the start of the connection to the end of the request head.
    :param counted: called with the reason and 1 for every refused request.
    :param path: the only path of WebSockets, "" for all.
    :param unadmitted: charged for heads, and for input while their credentials are checked.
    """

    webSockets: Mapping[str, IProtocolFactory]
    site: IProtocolFactory
    admission: IAdmission
    behindProxy: IAdmission
    origins: Origins
    clock: Clock | Deadlines
    deadline: float
    counted: Callable[[str, int], object] = lambda event, number: None
    path: str = ""
    logLimits: LogLimits = field(default_factory=LogLimits)
    unadmitted: UnadmittedBudget = field(default_factory=UnadmittedBudget)
    audit: Callable[..., None] = lambda event, **fields: None
    plain: IProtocolFactory | None = None

    def __post_init__(self) -> None:
        """Start and stop the factories with this one."""
        super().__init__((self.site, *self.webSockets.values()))

    def buildProtocol(self, addr: IAddress | None) -> RequestRouter:
        """Return a router for a new connection."""
        return RequestRouter(self, addr)

    def admissionOf(self, request: "UpgradeRequest") -> IAdmission:
        """Return the rule for this request."""
        return self.behindProxy if nameProxy(request.head.fields) else self.admission

    def factoryOf(self, request: "UpgradeRequest") -> Any:
        """Return the factory that serves this request.

        :raises HttpError: 403 for a peer, page or ``Host`` without access, 403 or 404 for a dialect not served here.
        """
        head = request.head
        refusal = self.admissionOf(request).refusal(request.peer)
        if refusal is not None:
            raise HttpError(403, refusal)
        self._checkPage(request)
        if not head.isUpgrade:
            if self.plain is not None and isServed(head.path):
                return self.plain
            head.checkBody()
            return self.site
        if self.path not in ("", head.path):
            raise HttpError(404, "there are no WebSockets on this path")
        return self.webSockets[webSocketDialect(head, frozenset(self.webSockets))]

    def continues(self, first: "UpgradeRequest", head: RequestHead) -> bool:
        """Return whether a later request of a connection of plain HTTP belongs to it, as its ``first`` one did: it has
        the same credentials, and a path of plain HTTP.
        """
        request = first._replace(head=head, credentials=credentialsIn(head))
        try:
            return (
                request.credentials == first.credentials
                and self.admissionOf(request) is self.admissionOf(first)
                and self.factoryOf(request) is self.plain
            )
        except HttpError:
            return False  # a router refuses it

    def _checkPage(self, request: "UpgradeRequest") -> None:
        """Refuse a web page that must not use this broker, whatever its credentials."""
        head = request.head
        host = head.only("host")
        isPlain = self.plain is not None and isServed(head.path)  # such a read is a subscription, or a take
        changing = isPlain or head.method not in ("GET", "HEAD")
        if head.isUpgrade or changing:
            site = head.only("sec-fetch-site") or "none"
            if not self.origins.admit(head.only("origin"), host, request.secure, changing, site):
                raise HttpError(403, "pages of this origin are not admitted, see --allowed-origin")
        if not head.isUpgrade and not self.origins.admitHost(host):
            raise HttpError(403, "ask by an address or as localhost: other names are not trusted here")


def _httpErrorOf(failure: Failure, challenges: tuple[str, ...]) -> HttpError:
    error = failure.value
    if not isinstance(error, BrokerError) or statusOf(error) == 500:
        _log.failure("credentials could not be checked", failure)
        return HttpError(500, "internal error")
    code = statusOf(error)
    return HttpError(code, str(error), challenges if code == 401 else ())


def _response(error: HttpError, isPlain: bool, fields: tuple[str, ...], withBody: bool) -> bytes:
    body = errorBody(str(error)) if isPlain else f"{error}\n".encode()
    kind = JSON if isPlain else "text/plain; charset=utf-8"
    challenges = [f"WWW-Authenticate: {challenge}" for challenge in error.challenges]
    return response(error.code, body, kind, "close", (*challenges, *error.fields, *fields), withBody)
