"""The protocol of a session on a WebSocket.

A session ends with a close frame after its last answer. Then the peer's close frame is awaited, for at most
:data:`fleximq.dialects.session.LINGER` seconds; not after a protocol violation.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from autobahn.websocket.types import ConnectionDeny
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from zope.interface import implementer

from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.handshake import MAX_UNAUTHENTICATED_BYTES
from fleximq.dialects.session import STOPPED, Session
from fleximq.dialects.stream import SessionProtocol, pausePublisher
from fleximq.dialects.websocket.autobahn_parser import parserFactory
from fleximq.dialects.websocket.close_code import (
    GOING_AWAY,
    INTERNAL_ERROR,
    NORMAL,
    POLICY_VIOLATION,
    SERVICE_RESTART,
    TOO_BIG,
    TRY_AGAIN_LATER,
)
from fleximq.dialects.websocket.frame_outbox import WebSocketOutbox
from fleximq.dialects.websocket.inflation import WINDOW_BYTES
from fleximq.dialects.websocket.protocol import UNADMITTED_STEP, UNLIMITED, BoundedProtocol, WebSocketState
from fleximq.dialects.websocket.tapped_session import TappedSession
from fleximq.interfaces import IAdmission
from fleximq.security.principal import Admitted
from fleximq.wire.websocket_frame import CLOSE, encodeFrame

#: End reason of a session -> close code; 1008 for other errors, 1001 for all other reasons.
_CODES = {
    "client closed": NORMAL,
    "error 413": TOO_BIG,
    "error 500": INTERNAL_ERROR,
    "error 503": TRY_AGAIN_LATER,
    "handshake deadline": POLICY_VIOLATION,
    "internal error": INTERNAL_ERROR,
    STOPPED: SERVICE_RESTART,
}
#: Maximum size of the text in a close frame.
_WORDS_BYTES = 123
#: Maximum size of the reason in a log line; it may quote the request.
REASON_CHARACTERS = 200

MakeSession = Callable[[ListenerContext, Any, IAddress], Session]


def closeCode(reason: str) -> int:
    """Return the close code for the end reason of a session."""
    return _CODES.get(reason, POLICY_VIOLATION if reason.startswith("error ") else GOING_AWAY)


@implementer(IHalfCloseableProtocol)
class WebSocketSessionProtocol(SessionProtocol, BoundedProtocol, Protocol):
    """Passes messages to one session.

    ``admitted`` is the result for the credentials in the request, if it was checked, and ``admission`` the rule that
    applied. ``joinsLater`` means that the session asks for credentials after the request.
    """

    factory: "WebSocketFactory"
    outbox: WebSocketOutbox
    outboxClass: ClassVar[type[WebSocketOutbox]] = WebSocketOutbox
    admitted: Admitted | None = None
    admission: IAdmission | None = None
    joinsLater: ClassVar[bool] = False

    def __init__(self, factory: "WebSocketFactory", limit: int) -> None:
        super().__init__(limit)
        self.factory = factory
        self._closing: tuple[int, str] | None = None

    @abstractmethod
    def messagesReceived(self, messages: list[bytes]) -> None:
        """Pass these messages to the session; raises only BrokerError."""

    def tapInput(self, tap: Callable[[bytes], None]) -> Callable[[], None]:
        """See :class:`fleximq.dialects.session.SessionInput`."""
        session = self.session

        def remove() -> None:
            self.session = session

        self.session = TappedSession(session, self.fromNextMessage(tap))
        return remove

    # -- called by the transport -------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Make the session; it is opened after the handshake."""
        context = self.factory.context
        self.startParser(self.factory.parserFactory, self.address or self.transport.getPeer())
        self.begin(context, partial(self.outboxClass, farewell=self._farewell), self.factory.makeSession)
        self.session.handshake.admitted = self.admitted
        self.session.handshake.admission = self.admission or context.admission

    def _mayWork(self, data: bytes) -> bool:
        session: Session = self.session
        received = session.traffic.bytesIn
        if session.state is ConnectionState.ENDING and session.client is None:
            return received <= MAX_UNAUTHENTICATED_BYTES
        return session.state is not ConnectionState.WAITING or session.mayReceive(received)

    @property
    def buffered(self) -> int:
        """Bytes buffered, and the memory that inflates a message."""
        inflation = self._inflation
        window = WINDOW_BYTES if inflation is not None and inflation.isInside else 0
        size: int = self.session.buffered + len(self._input) + self._gathered.buffered + window
        return size

    def work(self, data: bytes) -> None:
        """Parse bytes; an exception ends the session."""
        session = self.session
        try:
            self.feed(data)
        except Exception:
            self._log.failure("{dialect}: a read could not be parsed", dialect=session.dialect)
            session.end("internal error")
        client = session.client
        if client is not None and session.broker.hasPendingPublications(client):
            pausePublisher(session, client, self)
        if session.rate is not None:
            inflation = self._inflation
            session.rate.charge(self.readPauses, 0 if inflation is None else inflation.gained)

    def readConnectionLost(self) -> None:
        """The peer ended its input: send pending output, then close without awaiting a close frame."""
        self._inputOver = True
        if self.halted:
            return
        self.session.inputEnded()
        self.outbox.finish()
        self._turn.flush()

    def writeConnectionLost(self) -> None:
        """Our output was ended by the system: close."""
        self.session.end("connection lost")

    def connectionLost(self, reason: Any = connectionDone) -> None:
        """The connection is closed; TLS reports its end here alone."""
        self.stopParser(reason)
        self.session.lost(inOrder=reason.check(ConnectionDone) is not None)
        self._turn.flush()

    # -- the session -------------------------------------------------------------------------------

    def subprotocolOf(self, offered: list[str]) -> str | None:
        """Return the subprotocol, or refuse the peer."""
        refusal = self.session.refusal()
        if refusal is not None:
            raise ConnectionDeny(ConnectionDeny.FORBIDDEN, refusal)
        subprotocol = self.factory.subprotocol
        return subprotocol if subprotocol in offered else None

    def opened(self) -> None:
        """Start the session after the handshake."""
        self.session.attempt(self.session.opened)
        self._limitStep()

    def deliverMessages(self) -> None:
        """Pass received messages to the session."""
        if self.messages and not self.halted:
            messages, self.messages = self.messages, []
            if self.session.state not in (ConnectionState.ENDING, ConnectionState.CLOSED):
                self.session.attempt(lambda: self.messagesReceived(messages))
                if self.step is not UNLIMITED:
                    self._limitStep()

    def _limitStep(self) -> None:
        """Inflate in small steps before admission, and see after each step that not too much is buffered."""
        session = self.session
        self.step = UNLIMITED if session.state is ConnectionState.OPEN else UNADMITTED_STEP
        if session.state is ConnectionState.WAITING:
            session.mayReceive(session.buffered)

    def _checking(self, waits: bool) -> None:
        self.halted = waits
        if waits:
            self.readPauses.pause(ReadPause.CHECKED)
            return
        if self.session.state in (ConnectionState.WAITING, ConnectionState.OPEN):
            self.session.attempt(self.session.resume)
            self._limitStep()
            self.deliverMessages()
            self.work(b"")
        if not self.halted:
            self.readPauses.resume(ReadPause.CHECKED)
            if self._inputOver:
                self.readConnectionLost()

    # -- output and the end ------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send a complete frame or an HTTP response, after all earlier output."""
        self.outbox.takeFrame(data)

    def fail(self, code: int, words: str) -> None:
        """End the session with this close code and text."""
        if self.state is WebSocketState.OPEN:
            self._closing = code, words
            self.session.end(f"WebSocket error {code}")

    def refused(self, code: int, reason: str) -> None:
        """End a session whose request was refused."""
        more = self.factory.context.logLimits["WebSocket refused"].ending(self._seconds())
        if more is not None:
            words = reason[:REASON_CHARACTERS]
            self._log.debug("refusing a WebSocket with {code}: {reason}{more}", code=code, reason=words, more=more)
        self.session.end("no WebSocket")

    def closed(self) -> None:
        """Send pending output and stop waiting for the peer."""
        self.session.end("client closed")
        self.outbox.finish()

    def _farewell(self) -> bool:
        if self.state is not WebSocketState.OPEN:
            return False
        self.state = WebSocketState.CLOSING
        code, words = self._closing or (closeCode(self.session.reason), self.session.reason)
        text = words.encode()[:_WORDS_BYTES].decode(errors="ignore").encode()  # no part of a character
        self.send(encodeFrame(CLOSE, code.to_bytes(2, "big") + text))
        return not self.violated and not self._inputOver


class WebSocketFactory(Factory):
    """Builds the WebSockets of one dialect; ``limit`` returns the maximum size of a message, after inflation."""

    noisy = False
    protocolClass: ClassVar[type[WebSocketSessionProtocol]]
    subprotocol: ClassVar[str]

    def __init__(self, context: ListenerContext, makeSession: MakeSession, limit: Callable[[], int]) -> None:
        self.context = context
        self.makeSession = makeSession
        self.parserFactory = parserFactory(context.clock)
        self._limit = limit

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Return a protocol for a new connection."""
        return self.protocolClass(self, self._limit())
