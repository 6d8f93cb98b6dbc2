"""The face of a session on a byte stream: TCP, UNIX socket, TLS, pipes.

Reads that fill their room get more, and writes are larger than Twisted's usual ones, where the transport lets them be.
A peer that ends its input still gets its pending answers.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.dialects.connection.connection_rate import maxReadBytes
from fleximq.dialects.connection.credential_check import CredentialWait, EarlyInput, certificateOf
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.dialects.context import Context
from fleximq.dialects.outbox import Outbox, markOf
from fleximq.dialects.publisher_backpressure import pausePublisher
from fleximq.dialects.session import ConnectionState, StreamSession

#: A connection is read in portions of the first size. While it fills them they grow to the last, which carries a
#: quarter more messages of 1 KB than half of it would; a read that brings little is quicker with little room. Where a
#: read is so full of work that all others wait for it for longer than so many seconds, they shrink, to the least.
READ_FIRST, READ_MOST, READ_LEAST = 1 << 16, 1 << 19, 1 << 12
READ_SECONDS = 0.01
WRITE_BYTES = 1 << 20


@implementer(IHalfCloseableProtocol)
class StreamProtocol(Protocol):
    """Feeds one session from a stream.

    ``connectedAt`` is the clock's time at which the connection was made, if others looked at it first; the handshake's
    deadline counts from there.

    :param makeSession: makes the session: a :class:`fleximq.dialects.session.StreamSession` class or the like.
    """

    connectedAt: float | None = None

    def __init__(self, context: Context, makeSession: Callable[[Context, Outbox, IAddress], StreamSession]) -> None:
        self._context = context
        self._turn = context.turn
        self._seconds = context.clock.seconds
        self._fullRead, self._mostRead = sys.maxsize, READ_MOST
        self._makeSession = makeSession
        self.session: StreamSession = None  # type: ignore[assignment]  # these four are there from connectionMade on
        self.outbox: Outbox = None  # type: ignore[assignment]
        self.receive: Callable[[bytes], None] = None  # type: ignore[assignment]
        self.readPauses: ReadPauses = None  # type: ignore[assignment]
        self._early: EarlyInput | None = None  # while credentials are checked

    def connectionMade(self) -> None:
        """Tune the transport and begin the session."""
        transport: Any = self.transport
        self._mostRead = min(READ_MOST, maxReadBytes(self._context.rates.rules))
        self._fullRead = tune(transport, self._mostRead)
        context = self._context
        self.readPauses = ReadPauses(transport, self._listening)
        mark = markOf(context.settings.limits.outboxBytes)
        self.outbox = Outbox(transport, self._turn, mark, self._slow, context.policy)
        self.session = self._makeSession(context, self.outbox, transport.getPeer())
        self.session.certificate = partial(certificateOf, transport)
        self.session.checking = self._checking
        self.receive = self.receiver()
        if self.connectedAt is not None:
            self.session.arrivedAt(self.connectedAt)
        self.session.opened()

    def dataReceived(self, data: bytes) -> None:
        """Work through a read, then let every outbox it filled write once."""
        session = self.session
        if session.state is not ConnectionState.OPEN and not self._mayWork(data):
            return
        session.heard = began = self._seconds()
        session.traffic.bytesIn += len(data)
        turn = self._turn
        turn.open = True
        turn.reader = self
        self.work(data)
        turn.flush()
        if len(data) >= self._fullRead:
            self._fullRead = fit(self.transport, self._seconds() - began, self._mostRead)

    def work(self, data: bytes) -> None:
        """Let the session work through these bytes, and answer what goes wrong. May be called outside of a read."""
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

    def receiver(self) -> Callable[[bytes], None]:
        """Return the function that takes each read; a protocol that cuts reads up itself overrides this."""
        return self.session.received

    def resume(self) -> None:
        """Let the session go on behind a check of credentials; for protocols that have kept something themselves."""
        self.session.resume()

    @property
    def buffered(self) -> int:
        """How many bytes are kept of something unfinished; for protocols that cut it up themselves."""
        return self.session.buffered

    def _mayWork(self, data: bytes) -> bool:
        """Say whether a read may be worked through now; it is kept while credentials are checked."""
        if self._early is not None:
            self._early.keep(data)
            return False
        return self.session.state is ConnectionState.WAITING and self.session.mayReceive(self.buffered)

    def _checking(self, waits: bool) -> None:
        """Read nothing while credentials are checked; then go on with what was said behind them."""
        if waits:
            self._early = self._early or EarlyInput()
            self.readPauses.pause(CredentialWait.CHECKED)
        elif self._early is not None:
            early, self._early = self._early, None
            self._continueWith(early)

    def _continueWith(self, early: EarlyInput) -> None:
        session = self.session
        if session.state in (ConnectionState.WAITING, ConnectionState.OPEN):
            session.attempt(self.resume)
            client = session.client
            if client is not None and client.lastRun and session.broker.hasPendingPublications(client):
                pausePublisher(session, client, self)
        data = early.take()
        if data:
            self.dataReceived(data)
        if self._early is not None:  # there is something to check again
            self._early.ended = early.ended
            return
        self.readPauses.resume(CredentialWait.CHECKED)
        if early.ended:
            self.readConnectionLost()

    def readConnectionLost(self) -> None:
        """The peer ended its input."""
        if self._early is not None:
            self._early.ended = True
            return
        self.session.inputEnded()
        self.outbox.finish()
        self._turn.flush()

    def writeConnectionLost(self) -> None:
        """Our own output was ended; nothing more can be said. It is no more than that if we have dismissed the peer."""
        if not self.session.dismissed:
            transport: Any = self.transport
            self.session.end("connection lost")
            transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is gone."""
        self.session.lost()
        self._turn.flush()

    def _slow(self) -> None:
        self.session.slow()

    def _listening(self, listening: bool) -> None:
        self.session.listening = listening
        self.session.heard = self._seconds()


class StreamFactory(Factory):
    """Builds the stream protocols of one dialect for one listener; ``protocolClass`` is their class."""

    noisy = False
    protocolClass: ClassVar[type[StreamProtocol]] = StreamProtocol

    def __init__(self, context: Context, makeSession: Callable[[Context, Outbox, IAddress], StreamSession]) -> None:
        self._context = context
        self._makeSession = makeSession

    def buildProtocol(self, addr: IAddress | None) -> StreamProtocol:
        """Return a protocol for a new connection."""
        protocol = self.protocolClass(self._context, self._makeSession)
        protocol.factory = self
        return protocol


def tune(transport: Any, most: int = READ_MOST) -> int:
    """Ask for small delays, notice of dead peers, and large writes, where the transport has them.

    :param most: as many bytes may be read at once.

    Returns how many bytes are a full read, behind which to call :func:`fit`.
    """
    if ITCPTransport.providedBy(transport):
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
    if not isinstance(transport, Connection):
        return sys.maxsize
    transport.bufferSize = size = min(READ_FIRST, most)
    transport.SEND_LIMIT = WRITE_BYTES
    return size


def fit(transport: Any, seconds: float, most: int = READ_MOST) -> int:
    """Let a transport read twice as much at once, or half if the last read took too long to work through.

    :param most: as many bytes may be read at once.

    Returns how many bytes are a full read then.
    """
    size: int = transport.bufferSize
    if seconds > READ_SECONDS:
        size = min(max(size // 2, READ_LEAST), most)
    elif seconds < READ_SECONDS / 4:
        size = min(size * 2, most)
    transport.bufferSize = size
    return size
