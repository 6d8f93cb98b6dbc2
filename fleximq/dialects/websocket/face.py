"""The face of a session on a WebSocket.

:mod:`fleximq.dialects.websocket.protocol` parses; this brings it together with a session, its outbox and the turn.
A session ends with a close frame behind its last answer. Then the peer's close frame is awaited, for
:data:`fleximq.dialects.session.LINGER` seconds at most; after a violation of the protocol it is not.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from autobahn.twisted.websocket import WebSocketServerFactory
from autobahn.util import encode_truncate
from autobahn.websocket.types import ConnectionDeny, ConnectionRequest
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.dialects.connection.connection_rate import maxReadBytes
from fleximq.dialects.connection.credential_check import CredentialWait, certificateOf
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.dialects.context import Context
from fleximq.dialects.outbox import markOf
from fleximq.dialects.publisher_backpressure import pausePublisher
from fleximq.dialects.session import STOPPED, ConnectionState, Session
from fleximq.dialects.stream import READ_MOST, fit, tune
from fleximq.dialects.websocket.frame_outbox import WebSocketOutbox
from fleximq.dialects.websocket.inflation import acceptDeflate
from fleximq.dialects.websocket.protocol import (
    GOING_AWAY,
    INTERNAL_ERROR,
    NORMAL,
    POLICY_VIOLATION,
    SERVICE_RESTART,
    TOO_BIG,
    TRY_AGAIN_LATER,
    BoundedProtocol,
)
from fleximq.interfaces import IAdmission
from fleximq.security.principal import Admitted

#: Why a session ended -> the code of its close frame; of other errors it is 1008, of anything else 1001.
_CODES = {
    "client closed": NORMAL,
    "error 413": TOO_BIG,
    "error 500": INTERNAL_ERROR,
    "error 503": TRY_AGAIN_LATER,
    "handshake deadline": POLICY_VIOLATION,
    "internal error": INTERNAL_ERROR,
    STOPPED: SERVICE_RESTART,
}
#: A close frame has room for so many bytes of words.
_WORDS_BYTES = 123

MakeSession = Callable[[Context, Any, IAddress], Session]


def closeCode(reason: str) -> int:
    """Return the code of the close frame for the phrase with which a session ended."""
    return _CODES.get(reason, POLICY_VIOLATION if reason.startswith("error ") else GOING_AWAY)


@implementer(IHalfCloseableProtocol)
class WebSocketSessionProtocol(BoundedProtocol):
    """Feeds one session with messages; subclasses say how, in :meth:`messagesReceived`.

    ``admitted`` is who the peer is by what its request shows, if that was looked into, and ``admission`` the rule for
    such requests. ``joinsLater`` says that a request need not show anything, for the session asks later.
    """

    factory: "WebSocketFactory"
    outboxClass: ClassVar[type[WebSocketOutbox]] = WebSocketOutbox
    connectedAt: float | None = None
    admitted: Admitted | None = None
    admission: IAdmission | None = None
    joinsLater: ClassVar[bool] = False
    _log = Logger()

    def __init__(self, factory: "WebSocketFactory", limit: int) -> None:
        super().__init__(limit)
        self.factory = factory
        self.session: Any = None  # a Session, from connectionMade on
        self._turn = factory.context.turn
        self._seconds = factory.context.clock.seconds
        self._fullRead = self._mostRead = 0  # from connectionMade on, what fills a read, and the most that ever does
        self._inputOver = False
        self._closing: tuple[int, str] | None = None

    @abstractmethod
    def messagesReceived(self, messages: list[bytes]) -> None:
        """Hand these messages to the session; raises nothing but BrokerError."""

    # -- the transport's calls ---------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Tune the transport and begin the session; it is opened after the handshake."""
        transport: Any = self.transport
        context = self.factory.context
        self._mostRead = min(READ_MOST, maxReadBytes(context.rates.rules))
        self._fullRead = tune(transport, self._mostRead)
        address = transport.getPeer()
        self.peer = str(address)
        mark = markOf(context.settings.limits.outboxBytes)
        self.readPauses = ReadPauses(transport, self._listening)
        self.outbox = self.outboxClass(transport, self._turn, mark, self._slow, self._farewell, context.policy)
        self._connectionMade()
        self.session = self.factory.makeSession(context, self.outbox, address)
        self.session.admitted = self.admitted
        self.session.admission = self.admission or context.admission
        self.session.certificate = partial(certificateOf, transport)
        self.session.checking = self._checking
        if self.connectedAt is not None:
            self.session.arrivedAt(self.connectedAt)

    def dataReceived(self, data: bytes) -> None:
        """Work through a read, then let every outbox it filled write once."""
        if self.session.state is ConnectionState.WAITING and not self.session.mayReceive(self.session.held):
            return
        self.session.receivedAt = began = self._seconds()
        self.session.traffic.bytesIn += len(data)
        turn = self._turn
        turn.open = True
        turn.reader = self
        self._parse(data)
        turn.flush()
        if len(data) >= self._fullRead:
            self._fullRead = fit(self.transport, self._seconds() - began, self._mostRead)

    def _parse(self, data: bytes) -> None:
        try:
            self.feed(data)
        except Exception:
            self._log.failure("{dialect}: a read could not be parsed", dialect=self.session.dialect)
            self.session.end("internal error")
        client = self.session.client
        if client is not None and self.session.broker.hasPendingPublications(client):
            pausePublisher(self.session, client, self)
        if self.session.rate is not None:
            self.session.rate.charge(self.readPauses)

    def readConnectionLost(self) -> None:
        """The peer ended its input: send what is pending, then close; no close frame of its can come."""
        self._inputOver = True
        if self.halted:
            return
        self.session.inputEnded()
        self.outbox.finish()
        self._turn.flush()

    def writeConnectionLost(self) -> None:
        """Our own output was ended; nothing more can be said."""
        self.session.end("connection lost")

    def connectionLost(self, reason: Any = connectionDone) -> None:
        """The connection is gone."""
        self._connectionLost(reason)
        self.forget()
        self.session.lost()
        self._turn.flush()

    # -- the session -------------------------------------------------------------------------------

    def onConnect(self, request: ConnectionRequest) -> str | None:
        """Say which subprotocol is spoken, or refuse the peer."""
        refusal = self.session.refusal()
        if refusal is not None:
            raise ConnectionDeny(ConnectionDeny.FORBIDDEN, refusal)
        subprotocol = self.factory.subprotocol
        return subprotocol if subprotocol in request.protocols else None

    def opened(self) -> None:
        """Let the session begin."""
        self.session.attempt(self.session.opened)

    def deliverMessages(self) -> None:
        """Hand what arrived to the session."""
        if self.messages and not self.halted:
            messages, self.messages = self.messages, []
            if self.session.state is not ConnectionState.ENDING:
                self.session.attempt(lambda: self.messagesReceived(messages))

    def _checking(self, waits: bool) -> None:
        """Work through nothing while credentials are checked; then go on with what came behind them."""
        self.halted = waits
        if waits:
            self.readPauses.pause(CredentialWait.CHECKED)
            return
        if self.session.state in (ConnectionState.WAITING, ConnectionState.OPEN):
            self.session.attempt(self.session.resume)
            self.deliverMessages()
            self._parse(b"")
        if not self.halted:
            self.readPauses.resume(CredentialWait.CHECKED)
            if self._inputOver:
                self.readConnectionLost()

    # -- the way out, and the end ------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send a whole frame, or an HTTP answer, behind all that was said before."""
        self.outbox.takeFrame(data)

    def fail(self, code: int, words: str) -> None:
        """End the session with this code and these words."""
        if self.state == self.STATE_OPEN:
            self._closing = code, words
            self.session.end(f"WebSocket error {code}")

    def refused(self) -> None:
        """End a session that never began."""
        self.session.end("no WebSocket")

    def closed(self) -> None:
        """Send what is still to be sent, and wait for nothing more."""
        self.session.end("client closed")
        self.outbox.finish()

    def _farewell(self) -> bool:
        if self.state != self.STATE_OPEN:
            return False
        code, words = self._closing or (closeCode(self.session.reason), self.session.reason)
        self.sendCloseFrame(code, encode_truncate(words, _WORDS_BYTES))
        return not self.violated and not self._inputOver

    def _listening(self, listening: bool) -> None:
        self.session.listening = listening
        self.session.receivedAt = self._seconds()

    def _slow(self) -> None:
        self.session.slow()


class WebSocketFactory(WebSocketServerFactory):
    """Builds the WebSockets of one dialect for one listener.

    :param makeSession: makes a session of context, outbox and address.
    :param limit: returns the most bytes of one message, after inflation, when there is a new connection.
    """

    noisy = False
    protocolClass: ClassVar[type[WebSocketSessionProtocol]]
    subprotocol: ClassVar[str]

    def __init__(self, context: Context, makeSession: MakeSession, limit: Callable[[], int]) -> None:
        super().__init__(reactor=context.clock, server="")
        self.context = context
        self.makeSession = makeSession
        self._limit = limit
        self.versions = [13]
        self.webStatus = False
        self.utf8validateIncoming = False
        self.failByDrop = False
        self.echoCloseCodeReason = True
        self.openHandshakeTimeout = 0
        self.closeHandshakeTimeout = 0
        self.perMessageCompressionAccept: Any = acceptDeflate

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Return a protocol for a new connection."""
        return self.protocolClass(self, self._limit())
