"""The protocol of plain HTTP: connects a session to its transport, and hands the connection back to a router."""

from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory

from fleximq.dialects.connection.handover import Handover
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.http.format.request_head import RequestHead
from fleximq.dialects.http.routing.request_router import RequestRouterFactory, UpgradeRequest
from fleximq.dialects.http.session import HttpSession
from fleximq.dialects.pull_stream import PullStreamProtocol
from fleximq.interfaces import IAdmission
from fleximq.security.principal import Admitted


class HttpProtocol(PullStreamProtocol, Handover):
    """A connection on which requests of plain HTTP follow each other.

    The router sets ``admitted`` and ``admission``, its factory as ``router``, and the ``first`` request.
    """

    session: HttpSession  # type: ignore[assignment]
    connectedAt: Any = None
    admitted: Admitted | None = None
    admission: IAdmission | None = None
    router: RequestRouterFactory
    first: UpgradeRequest
    _isLeaving = False

    def begin(self, *arguments: Any) -> None:
        """Make the session."""
        super().begin(*arguments)
        session = self.session
        session.handshake.admitted = self.admitted
        session.handshake.admission = self.admission or self._context.admission
        session.gate = self
        session.onForeign = self._leaveSoon
        session.onReady = self._continueSoon
        session.onAhead = self._ahead

    # -- questions of the session to the router -------------------------------------------------------

    def continues(self, head: RequestHead) -> bool:
        """Return whether this connection serves a request: it belongs to plain HTTP, and has the same credentials."""
        return self.router.continues(self.first, head)

    def corsFields(self, head: RequestHead) -> tuple[str, ...]:
        """Return the header fields by which a web page of another origin may read the response."""
        return self.router.origins.corsFields(head.only("origin"))

    def preflightFields(self, head: RequestHead) -> tuple[str, ...]:
        """Return the fields of the answer to a web page that asks whether it may send a request."""
        return self.router.origins.preflightFields(head.only("origin"))

    # -- input -------------------------------------------------------------------------------------

    def _ahead(self, isAhead: bool) -> None:
        if isAhead:
            self.readPauses.pause(ReadPause.UNANSWERED)
        else:
            self.readPauses.resume(ReadPause.UNANSWERED)

    def _continueSoon(self) -> None:
        """Process buffered requests in a later turn, since a publication may be in progress."""
        if self.session.buffered:
            self._context.clock.callLater(0, self._continue)

    def readerCaughtUp(self) -> None:
        """Continue in the next reactor turn: this may be called during a write."""
        self._context.clock.callLater(0, self._continue)

    def work(self, data: bytes) -> None:
        """Pass bytes to the session; without space for answers, wait until the client has read them."""
        super().work(data)
        if self.outbox.full:
            self.waitForReader()

    def _slow(self) -> None:
        """Wait for a reader of answers, but not for one of a stream, whose messages may be lost."""
        if self.session.isStreaming:
            self.session.slow()
        else:
            self.waitForReader()

    # -- back to the router --------------------------------------------------------------------------

    def _leaveSoon(self) -> None:
        self.readPauses.pause(ReadPause.CHECKED)
        self._context.clock.callLater(0, self._leave)

    def _leave(self) -> None:
        """Hand the connection back with the bytes of the next request, once all output is sent."""
        session = self.session
        if not session.isActive or self._isLeaving:
            return
        if not self.outbox.detach():
            self.outbox.whenRelieved(self._leaveSoon)
            return
        self._isLeaving = True
        rest = session.scanner.rest()
        session.lost(inOrder=True)
        self.readPauses.resume(ReadPause.CHECKED)
        self.readPauses.end()
        self.connectedAt = self._context.clock.seconds()
        receiver = self.handOver(self.router.buildProtocol(self.address), rest)
        if self._inputOver:
            receiver.readConnectionLost()


class HttpFactory(Factory):
    """Builds the connections of plain HTTP for one listener."""

    noisy = False

    def __init__(self, context: ListenerContext) -> None:
        self._context = context

    def buildProtocol(self, addr: IAddress | None) -> HttpProtocol:
        """Return a protocol for a connection whose first request was admitted."""
        protocol = HttpProtocol(self._context, HttpSession)
        protocol.factory = self
        protocol.address = addr
        return protocol
