"""The web site: one request for each connection, within a deadline and a budget."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.server import Request, Site

from fleximq.rights import EVERYTHING
from fleximq.security.principal import Admitted
from fleximq.security.web_sessions import WebSessions
from fleximq.values.unadmitted_budget import BufferCharge, UnadmittedBudget
from fleximq.web.request import Page, Pages
from fleximq.web.static_files import StaticPages
from fleximq.web.welcome_page import WelcomeEntry, WelcomePage

#: Seconds from the connection to the end of its request, unless the site is given others.
DEADLINE = 10.0
#: Seconds that a peer has to read its answer, and to close after an error.
TIMEOUT, LINGER = 60.0, 5.0


class OneRequestChannel(HTTPChannel):
    """Answers one request and closes: the next request may be for a WebSocket, which the request router handles.

    ``admitted`` is the principal of its connection, set at the handover; None without required credentials. The request
    must be complete before the deadline, which counts from ``connectedAt``, the clock's time, if that is set. Its bytes
    are charged as those of a connection that is not admitted.
    """

    factory: "WebSite"
    admitted: Admitted | None = None
    connectedAt: float | None = None
    _timer: IDelayedCall | None = None
    _isAnswered = False

    def connectionMade(self) -> None:
        """Start the deadline of the request."""
        site = self.factory
        self._charge = BufferCharge(site.unadmitted)
        elapsed = 0.0 if self.connectedAt is None else site.clock.seconds() - self.connectedAt
        self._within(max(0.0, site.deadline - elapsed), lambda: self._refuse(408))
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        """Process a read within the budget."""
        if self._isAnswered:
            return
        if self._charge.change(self._charge.size + len(data)):
            super().dataReceived(data)
        else:
            self._refuse(503)

    def allHeadersReceived(self) -> None:
        """Take no body for a request that is refused in any case, so that it is answered now."""
        request: Any = self.requests[-1]
        pages: Any = self.factory.resource
        if not pages.takesBody(request, self._command.decode("latin-1"), self._path.partition(b"?")[0]):
            self.length = 0
            request.requestHeaders.removeHeader(b"expect")
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        """Stop the deadline; the answer may take longer."""
        self._within(None)
        super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        """Close, at the latest after :data:`TIMEOUT`."""
        self._isAnswered = True
        self._within(TIMEOUT, self.forceAbortClient)
        super().requestDone(request)

    def forceAbortClient(self) -> None:
        """Close now; Twisted would log each of these connections."""
        self._timer = None
        transport: Any = self.transport
        transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._within(None)
        self._charge.change(0)
        super().connectionLost(reason)

    def _within(self, seconds: float | None, act: Callable[[], None] = lambda: None) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None if seconds is None else self.factory.clock.callLater(seconds, act)

    def _refuse(self, code: int) -> None:
        self._isAnswered = True
        transport: Any = self.transport
        self.factory.refused(transport.getPeer(), code)
        head = f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        transport.write(head.encode())
        self._within(LINGER, self.forceAbortClient)
        self.loseConnection()

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """Close the connection after each request, and announce that."""
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False


class RequestRules(NamedTuple):
    """The budget of bytes of requests, and the seconds until their end; ``refused`` gets the peer and the status.

    ``cors`` returns the header lines by which a page of an origin may load the JavaScript client.
    """

    unadmitted: UnadmittedBudget
    deadline: float = DEADLINE
    refused: Callable[[Any, int], None] = lambda peer, code: None
    cors: Callable[[str | None], Sequence[str]] = lambda origin: ()


class WebSite(Site):
    """Serves the welcome page for these dialects, and all others.

    ``nobody`` returns the rights without credentials; ``sessions`` are those of the console, None without one.
    """

    noisy = False
    protocol = OneRequestChannel  # type: ignore[assignment]

    def __init__(
        self,
        reactor: IReactorTime,
        ways: Sequence[WelcomeEntry],
        pages: Mapping[str, Page] = {},
        nobody: Callable[[], Admitted | None] = lambda: Admitted(None, EVERYTHING),
        renewed: Callable[[Admitted], Admitted] = lambda admitted: admitted,
        rules: RequestRules | None = None,
        audit: Callable[..., None] = lambda *arguments, **fields: None,
        sessions: WebSessions | None = None,
    ) -> None:
        console = sessions is not None
        self.unadmitted, self.deadline, self.refused, cors = rules or RequestRules(UnadmittedBudget())
        root = Pages(StaticPages(WelcomePage(ways, console), console, cors), pages, renewed, audit, sessions)
        super().__init__(root, Request, timeout=None, reactor=reactor, parsePOSTFormSubmission=False)
        self.clock = reactor
        self._nobody = nobody

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Return a channel with the rights of requests without credentials."""
        channel: Any = super().buildProtocol(addr)
        channel.admitted = self._nobody()
        return channel

    def startFactory(self) -> None:
        """Open no access log: the page is public and the same for all."""
