"""The protocol of a session on a byte stream: TCP, UNIX socket, TLS, pipes.

Read sizes grow while reads are full, and writes are larger than Twisted's default, where the transport allows it. A
peer that ends its input still receives its pending answers.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.connection.connection_rate import maxReadBytes
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.credential_check import certificateOf
from fleximq.dialects.connection.handover import FIRST_READ_BYTES
from fleximq.dialects.connection.read_pauses import ReadPause, ReadPauses
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.outbox import Outbox, markOf
from fleximq.dialects.session import Session, StreamSession
from fleximq.security.credentials import Certificate

#: Read sizes in bytes: first, largest, smallest. Larger reads are faster, but other connections wait meanwhile: after
#: admission the size doubles with each full read that was processed, with the writes at its end, in less than
#: ``READ_SECONDS``, and is halved if that took twice as long.
READ_FIRST, READ_MOST, READ_LEAST = FIRST_READ_BYTES, 1 << 19, 1 << 12
READ_SECONDS = 0.01
WRITE_BYTES = 1 << 20


class SessionProtocol:
    """Connects a session to its transport, in any framing.

    ``connectedAt`` is the clock's time when the connection was made, if another protocol handled it first and input
    follows at once; the handshake deadline counts from there. ``address`` is the peer's, if the factory was given it.
    """

    transport: Any
    session: Any
    outbox: Outbox
    readPauses: ReadPauses
    connectedAt: float | None = None
    address: IAddress | None = None
    _inputOver = False  # the peer has ended its input during a credential check
    _fullRead, _maxRead = sys.maxsize, READ_MOST

    def begin(
        self, context: ListenerContext, makeOutbox: Callable[..., Outbox], makeSession: Callable[..., Session]
    ) -> None:
        """Tune the transport, and make outbox and session."""
        transport = self.transport
        self._turn = context.turn
        self._seconds = context.clock.seconds
        self._maxRead = maxReadBytes(context.rates.rules, READ_MOST)
        self._fullRead = tune(transport, self._maxRead)
        self.readPauses = ReadPauses(transport, self._listening)
        mark = markOf(context.settings.limits.outboxBytes)
        self.outbox = makeOutbox(transport, context.turn, mark, self._slow, policy=context.policy)
        self.session = makeSession(context, self.outbox, self.address or transport.getPeer())
        self.session.protocol = self
        self.session.certificate = self._certificate
        self.session.checking = self._checking
        self._since = self._seconds() if self.connectedAt is None else self.connectedAt
        if self.connectedAt is None:
            self.session.awaitHandshake(self._since)
        context.sessions.add(self.session)

    def dataReceived(self, data: bytes) -> None:
        """Process a read, then write once for each outbox that it filled."""
        session = self.session
        if session.state is not ConnectionState.OPEN and not self._mayWork(data):
            return
        session.receivedAt = began = self._seconds()
        session.traffic.bytesIn += len(data)
        turn = self._turn
        turn.open = True
        turn.reader = self
        self.work(data)
        isFull = len(data) >= self._fullRead
        if not (isFull and turn.postpone(began)):
            turn.flush()
        isOpen = session.state is ConnectionState.OPEN
        if isFull:
            maximum = self._maxRead if isOpen else self._fullRead
            self._fullRead = fit(self.transport, self._seconds() - began, maximum)
        if not isOpen:
            self._charge(len(data))
            session.awaitHandshake(self._since)

    def _charge(self, read: int) -> None:
        """Charge the bytes buffered before admission: input, unread output, and a read with checked credentials."""
        session, outbox = self.session, self.outbox
        session.buffering(self.buffered + outbox.limit - outbox.space + (read if session.isChecking else 0))

    @abstractmethod
    def tapInput(self, tap: Callable[[bytes], None]) -> Callable[[], None]:
        """See :class:`fleximq.dialects.session.SessionInput`."""

    def fromNextMessage(self, tap: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Return a tap that begins when no part of a message is buffered."""
        hasBegun = False

        def begun(data: bytes) -> None:
            nonlocal hasBegun
            hasBegun = hasBegun or not self.session.buffered
            if hasBegun:
                tap(data)

        return begun

    @property
    @abstractmethod
    def buffered(self) -> int:
        """Bytes buffered of incomplete or unprocessed messages."""

    @abstractmethod
    def work(self, data: bytes) -> None:
        """Pass bytes to the session and answer its errors. May be called outside a read."""

    @abstractmethod
    def _mayWork(self, data: bytes) -> bool:
        """Return whether a read may be processed before the session is open."""

    @abstractmethod
    def _checking(self, waits: bool) -> None:
        """Pause during a credential check, then continue with the buffered input."""

    def _certificate(self) -> Certificate | None:
        return certificateOf(self.transport)

    def _slow(self) -> None:
        self.session.slow()

    def _listening(self, listening: bool) -> None:
        self.session.listening = listening
        self.session.receivedAt = self._seconds()


@implementer(IHalfCloseableProtocol)
class StreamProtocol(SessionProtocol, Protocol):
    """Passes a stream to one session."""

    session: StreamSession
    receive: Callable[[bytes], None]

    def __init__(
        self, context: ListenerContext, makeSession: Callable[[ListenerContext, Outbox, IAddress], StreamSession]
    ) -> None:
        self._context = context
        self._makeSession = makeSession
        self._early: list[bytes] | None = None  # reads during a credential check

    def connectionMade(self) -> None:
        """Start the session."""
        self.begin(self._context, Outbox, self._makeSession)
        self.receive = self.receiver()
        self.session.opened()

    def work(self, data: bytes) -> None:
        """Pass bytes to the session and answer its errors. May be called outside a read."""
        session = self.session
        try:
            self.receive(data)
        except Exception as error:
            session.unexpected(error)
        client = session.client
        if client is not None and client.lastRun and session.broker.hasPendingPublications(client):
            pausePublisher(session, client, self)
        if session.rate is not None:
            session.rate.charge(self.readPauses)

    def tapInput(self, tap: Callable[[bytes], None]) -> Callable[[], None]:
        """See :class:`fleximq.dialects.session.SessionInput`."""
        receive, tap = self.receive, self.fromNextMessage(tap)

        def tapped(data: bytes) -> None:
            tap(data)
            receive(data)

        def remove() -> None:
            self.receive = receive

        self.receive = tapped
        return remove

    def receiver(self) -> Callable[[bytes], None]:
        """Return the function that processes each read; overridden by protocols that split reads."""
        return self.session.receiver()

    def resume(self) -> None:
        """Resume the session after a credential check; overridden by protocols that buffer input."""
        self.session.resume()

    @property
    def buffered(self) -> int:
        """Bytes of an incomplete message; overridden by protocols that split input."""
        return self.session.buffered

    def _mayWork(self, data: bytes) -> bool:
        if self._early is not None:
            self._early.append(data)
            self.session.buffering(self.session.handshake.charge.size + len(data))
            return False
        return self.session.state is ConnectionState.WAITING and self.session.mayReceive(self.session.traffic.bytesIn)

    def _checking(self, waits: bool) -> None:
        if waits:
            if self._early is None:
                self._early = []
            self.readPauses.pause(ReadPause.CHECKED)
        elif self._early is not None:
            early, self._early = self._early, None
            self._continueWith(b"".join(early))

    def _continueWith(self, data: bytes) -> None:
        session = self.session
        if session.state in (ConnectionState.WAITING, ConnectionState.OPEN):
            session.attempt(self.resume)
            client = session.client
            if client is not None and client.lastRun and session.broker.hasPendingPublications(client):
                pausePublisher(session, client, self)
        if data:
            self.dataReceived(data)
        if self._early is not None:  # another check is pending
            return
        self.readPauses.resume(ReadPause.CHECKED)
        if self._inputOver:
            self.readConnectionLost()

    def readConnectionLost(self) -> None:
        """The peer ended its input."""
        if self._early is not None:
            self._inputOver = True
            return
        self.session.inputEnded()
        self.outbox.finish()
        self._turn.flush()

    def writeConnectionLost(self) -> None:
        """Close the connection if the system ended our output; a dismissed session is closing already."""
        if not self.session.dismissed:
            transport: Any = self.transport
            self.session.end("connection lost")
            transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is closed; TLS reports its end here alone."""
        self.session.lost(inOrder=reason.check(ConnectionDone) is not None)
        self.readPauses.end()
        self._turn.flush()


class StreamFactory(Factory):
    """Builds the stream protocols of one dialect for one listener; ``protocolClass`` is their class."""

    noisy = False
    protocolClass: ClassVar[type[StreamProtocol]] = StreamProtocol

    def __init__(
        self, context: ListenerContext, makeSession: Callable[[ListenerContext, Outbox, IAddress], StreamSession]
    ) -> None:
        self._context = context
        self._makeSession = makeSession

    def buildProtocol(self, addr: IAddress | None) -> StreamProtocol:
        """Return a protocol for a new connection."""
        protocol = self.protocolClass(self._context, self._makeSession)
        protocol.factory = self
        protocol.address = addr
        return protocol


def pausePublisher(session: Session, client: ConnectedClient, reader: PausablePublisher) -> None:
    """Pause a connection with pending publications if the broker is overloaded or too many answers are pending.

    So the data on its way to the disk, or waiting for a transaction, is bounded by one journal write and one read of
    each connection, and the answers of a connection by its outbox limit. Other connections are read normally, and a
    paused one does not count as silent. It is also recorded as their publisher, for consumers that pause it.
    """
    broker = session.broker
    reading = reader.readPauses
    client.reader = reader
    if broker.overloaded:
        reading.pause(ReadPause.OVERLOADED)
        broker.whenRelieved(lambda: reading.resume(ReadPause.OVERLOADED))
    answers = session.answers
    if answers is not None and 0 < answers.size > session.outbox.space:
        reading.pause(ReadPause.UNSENT)
        broker.whenPublicationsDecided(lambda: reading.resume(ReadPause.UNSENT), client)


def tune(transport: Any, maximum: int = READ_MOST) -> int:
    """Set the sizes of the first read and of writes, where the transport has them.

    Returns the size of a full read, at most ``maximum``; after such a read, call :func:`fit`.
    """
    if not isinstance(transport, Connection):
        return sys.maxsize
    transport.bufferSize = size = min(READ_FIRST, maximum)
    transport.SEND_LIMIT = WRITE_BYTES
    return size


def fit(transport: Any, seconds: float, maximum: int = READ_MOST) -> int:
    """Double the read size, or halve it if processing the last read took too long; return the new size."""
    size: int = transport.bufferSize
    if seconds > 2 * READ_SECONDS:
        size = min(max(size // 2, READ_LEAST), maximum)
    elif seconds < READ_SECONDS:
        size = min(size * 2, maximum)
    transport.bufferSize = size
    return size
