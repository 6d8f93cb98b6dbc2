"""Where HTTP connections come in: WebSockets go to their dialect, everything else to the web site.

Reads the head of the first request within a bound and a deadline, keeps out who may not come (remote peers, pages
of foreign origins, wrong credentials), and hands the connection with all its bytes on, but for the credentials. What it
is handed to is told who comes in its ``admitted``, and by which rule in its ``admission``, if it has attributes of
these names.
docs/dialects.rst, "Credentials", "Identity" and "One port".
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IProtocolFactory, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.dialects.connection.credential_check import certificateOf
from fleximq.dialects.connection.handover import Handover
from fleximq.dialects.http.origins import Origins
from fleximq.dialects.http.request_head import (
    CHALLENGES,
    HEAD_BYTES,
    HttpError,
    RequestHead,
    ShownCredentials,
    credentialsIn,
    webSocketDialect,
    withoutCredentials,
)
from fleximq.errors import AuthenticationFailed, BrokerError, JoinRejected, NoCapacity, TooManyRequests, Unauthorized
from fleximq.interfaces import IAdmission
from fleximq.security.anonymous_access import nameProxy
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import Admitted
from fleximq.values.counted_event import CountedEvent, EventFamily

_log = Logger("fleximq.dialects.http_door")

_END = b"\r\n\r\n"


class RequestRouter(Handover):
    """Reads one request head and steps aside."""

    factory: "RequestRouterFactory"

    def __init__(self, address: IAddress | None, now: float) -> None:
        self._address = address
        self.connectedAt = now
        self._received = bytearray()
        self._method = ""
        self._check: Deferred[None] | None = None
        self._inputOver = False

    def connectionMade(self) -> None:
        """Start the clock, or go on with the time that the connection has left."""
        left = self.connectedAt + self.factory.deadline - self.factory.clock.seconds()
        self._timer = self.factory.clock.callLater(max(0.0, left), self._tooSlow)

    def dataReceived(self, data: bytes) -> None:
        """Look for the end of the head, in linear time. What comes after an answer is dropped."""
        if self._timer is None:
            return
        searched = max(0, len(self._received) - len(_END) + 1)
        self._received += data
        if self._check is not None:
            return
        end = self._received.find(_END, searched, HEAD_BYTES)
        if end >= 0:
            self._decide(bytes(self._received[:end]))
        elif len(self._received) >= HEAD_BYTES:
            self._refuse(HttpError(431, f"the head of a request may have {HEAD_BYTES} bytes"))

    def readConnectionLost(self) -> None:
        """The peer said all it will say: close, unless its request is whole and its credentials are being checked."""
        self._inputOver = True
        if self._check is None:
            super().readConnectionLost()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection."""
        self._stopClock()
        self._drop()

    def _decide(self, raw: bytes) -> None:
        try:
            head = RequestHead.parse(raw)
            self._method = head.method
            request = UpgradeRequest(head, credentialsIn(head), self._peer())
            inner = self.factory.factoryOf(request).buildProtocol(self._address)
        except HttpError as error:
            self._refuse(error)
            return
        self._received[: len(raw)] = withoutCredentials(raw)
        if hasattr(inner, "admission"):
            inner.admission = self.factory.admissionOf(request)
        if request.shown.credentials is None and getattr(inner, "joinsLater", False):
            self._enter(inner, None)
        else:
            self._ask(request, inner)

    def _ask(self, request: "UpgradeRequest", inner: Any) -> None:
        """Have the credentials checked, and read nothing more if that takes its time."""
        transport: Any = self.transport
        credentials = request.shown.credentials or certificateOf(transport)
        outcome: list[Admitted | Failure] = []
        check = self.factory.admissionOf(request).admit(credentials, request.peer)
        check.addBoth(outcome.append)
        if not outcome:
            self._check = check
            transport.pauseProducing()
        check.addCallback(lambda ignored: self._answered(request, credentials is None, inner, outcome[0]))
        check.addErrback(lambda failure: _log.failure("a request could not be let in", failure))

    def _answered(
        self, request: "UpgradeRequest", lacksCredentials: bool, inner: Any, outcome: "Admitted | Failure"
    ) -> None:
        if self._timer is None:
            return  # it was too late, or the connection is gone
        if self._check is not None:
            self._check = None
            transport: Any = self.transport
            transport.resumeProducing()
        try:
            self._enter(
                inner, self.factory.admittedOf(request, lacksCredentials and hasattr(inner, "admitted"), outcome)
            )
        except HttpError as error:
            self._refuse(error)

    def _enter(self, inner: Any, admitted: Admitted | None) -> None:
        """Hand the connection over."""
        self._stopClock()
        received, self._received = bytes(self._received), bytearray()
        if hasattr(inner, "admitted"):
            inner.admitted = admitted
        self.handOver(inner, received)
        if self._inputOver:
            self.readConnectionLost()  # which is the other's by now

    def _tooSlow(self) -> None:
        self._timer = None
        self._drop()
        if not self._received:
            self.factory.counted(
                CountedEvent(EventFamily.REFUSED_CONNECTIONS, "said nothing before the handshake deadline"), 1
            )
            _log.debug("{peer} said nothing before the handshake deadline", peer=peerAddress(self._peer()))
            self._endAll()
        elif self._method:
            self._refuse(HttpError(503, "the credentials could not be checked in time"))
        else:
            self._refuse(HttpError(408, "the head of the request did not arrive in time"))

    def _drop(self) -> None:
        """Wait for no check any more."""
        check, self._check = self._check, None
        if check is not None:
            check.cancel()

    def _refuse(self, error: HttpError) -> None:
        """Answer with an error and close."""
        self._stopClock()
        self.factory.counted(CountedEvent(EventFamily.REFUSED_CONNECTIONS, f"HTTP {error.code}"), 1)
        _log.warn(
            "Refusing HTTP from {peer} with {code}: {sentence}",
            peer=peerAddress(self._peer()),
            code=error.code,
            sentence=error,
        )
        transport: Any = self.transport
        transport.write(_response(error, withBody=self._method != "HEAD"))
        self._endAll()


class UpgradeRequest(NamedTuple):
    """A request, what it shows, and the address that it comes from."""

    head: RequestHead
    shown: ShownCredentials
    peer: Any


class RequestRouterFactory(Factory[RequestRouter]):
    """Makes the doors of a listener.

    :param webSockets: the factory of each dialect that is served over WebSocket here, by the dialect's name.
    :param site: takes every request that asks for no WebSocket.
    :param admission: says who may come.
    :param behindProxy: says it of peers for which a proxy speaks.
    :param origins: says which web pages may come.
    :param clock: the reactor's time.
    :param deadline: how many seconds after its begin a connection must have sent the head of its request.
    :param counted: called with the reason and 1 for every request that is refused here.
    :param path: the only path on which there are WebSockets, "" for all.
    """

    noisy = False

    def __init__(
        self,
        webSockets: Mapping[str, IProtocolFactory],
        site: IProtocolFactory,
        admission: IAdmission,
        behindProxy: IAdmission,
        origins: Origins,
        clock: IReactorTime,
        deadline: float,
        counted: Callable[[str, int], object] = lambda event, number: None,
        path: str = "",
    ) -> None:
        self._webSockets = dict(webSockets)
        self._site = site
        self._admission = admission
        self._behindProxy = behindProxy
        self._origins = origins
        self.clock = clock
        self.deadline = deadline
        self.counted = counted
        self._path = path

    def buildProtocol(self, addr: IAddress | None) -> RequestRouter:
        """Return the door for one connection."""
        door = RequestRouter(addr, self.clock.seconds())
        door.factory = self
        return door

    def admissionOf(self, request: "UpgradeRequest") -> IAdmission:
        """Return what decides on this request."""
        return self._behindProxy if nameProxy(request.head.fields) else self._admission

    def factoryOf(self, request: "UpgradeRequest") -> Any:
        """Return the factory that takes this request.

        :raises HttpError: 403 for a peer or an origin that may not come, 403 or 404 for a dialect not served here.
        """
        head = request.head
        refusal = self.admissionOf(request).refusal(request.peer)
        if refusal is not None:
            raise HttpError(403, refusal)
        if not head.isUpgrade:
            return self._site
        if not request.shown.knownToPage:
            self._checkOrigin(head)
        if self._path not in ("", head.path):
            raise HttpError(404, "there are no WebSockets on this path")
        return self._webSockets[webSocketDialect(head, frozenset(self._webSockets))]

    def admittedOf(
        self, request: "UpgradeRequest", mayLackCredentials: bool, outcome: "Admitted | Failure"
    ) -> Admitted | None:
        """Return who a request comes from; None for who had to show something, and has not.

        :raises HttpError: 401, 403 or 503 where it is not let in; 403 if its page knows of nobody's credentials.
        """
        if isinstance(outcome, Failure):
            if mayLackCredentials and not request.head.isUpgrade and isinstance(outcome.value, Unauthorized):
                return None
            raise _httpErrorOf(outcome)
        if request.head.isUpgrade and outcome.principal is None:
            self._checkOrigin(request.head)
        return outcome

    def _checkOrigin(self, head: RequestHead) -> None:
        if not self._origins.admit(head.only("origin"), head.only("host")):
            raise HttpError(403, "pages of this origin are not admitted, see --allowed-origin")

    def startFactory(self) -> None:
        """Start the factories behind the door with the first port."""
        for factory in (self._site, *self._webSockets.values()):
            factory.doStart()

    def stopFactory(self) -> None:
        """Stop the factories behind the door with the last port."""
        for factory in (self._site, *self._webSockets.values()):
            factory.doStop()


#: What is answered for each kind of error; anything else is 500.
_CODES: tuple[tuple[type[BrokerError], int], ...] = (
    (Unauthorized, 401),
    (AuthenticationFailed, 401),
    (JoinRejected, 403),
    (TooManyRequests, 429),
    (NoCapacity, 503),
)


def _httpErrorOf(failure: Failure) -> HttpError:
    code = next((code for kind, code in _CODES if isinstance(failure.value, kind)), None)
    if code is None:
        _log.failure("credentials could not be checked", failure)
        return HttpError(500, "internal error")
    return HttpError(code, str(failure.value), CHALLENGES if code == 401 else ())


def _response(error: HttpError, withBody: bool) -> bytes:
    body = f"{error}\n".encode()
    head = (
        f"HTTP/1.1 {error.code} {HTTPStatus(error.code).phrase}\r\n"
        + "".join(f"WWW-Authenticate: {challenge}\r\n" for challenge in error.challenges)
        + f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if withBody else b"")
