"""The connection of a client to the owner of the journal, at a node of a mesh that does not own it.

It is made for the first message that needs the owner: about queues, schedules and values, or a durable publication. All
such messages are sent as they are, in their order, and the owner's answers and deliveries are sent to the client. While
it is being made, the client is not read. The client's connection ends with it, as a client of the owner's loses its
connection when the owner fails, and as a client of a standby does if no owner is found.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from twisted.internet.interfaces import IAddress

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.compiled import choice
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.replies import FlexiReplies
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.security.principal import Principal
from fleximq.wire.fleximq_frame import encodeMessage
from fleximq.wire.fleximq_header import MessageType, openMap
from fleximq.wire.fleximq_scanner import singleFrames

#: Maximum bytes of a frame from the owner.
_FRAME_BYTES = 1 << 30


class LinkedSession(Protocol):
    """The session of the client."""

    address: IAddress
    broker: Broker
    context: ListenerContext
    outbox: Outbox

    def linkEnded(self) -> None:
        """End, as the link has ended."""


def describe(client: ConnectedClient, isNamed: bool) -> dict[str, Any]:
    """Return a client as a map for JSON; the owner makes a :class:`fleximq.dialects.fleximq.delegate.Delegate` of it.

    :param isNamed: whether it joined with a name.
    """
    who: Principal | None = client.identity
    principal = None if who is None else {**asdict(who), "roles": sorted(who.roles)}
    return {"id": client.id, "service": client.service, "isNamed": isNamed, "principal": principal}


class OwnerLink:
    """Sends messages of one client to the owner. To the connection it is the client's transport."""

    bufferSize = 0

    def __init__(self, session: LinkedSession, me: ConnectedClient, replies: FlexiReplies) -> None:
        self._session, self._me, self._replies = session, me, replies
        self._scanner = choice.FlexiScanner(_FRAME_BYTES)
        self._pongs: deque[Callable[[], None]] = deque()
        self._waiting: list[Chunk] = []  # until the owner answers
        self._reader: PausablePublisher | None = None
        self._producer: Any = None
        self._isOpen = self._isOver = self._inputEnded = False
        #: The other end of this transport.
        self.protocol: Any = None

    def begin(self) -> None:
        """Connect to the owner, as soon as there is one."""
        self._session.broker.connectToOwner(describe(self._me, self._replies.isNamed), self)

    def send(self, frames: Chunk) -> None:
        """Send messages to the owner."""
        if self._isOpen:
            self.protocol.dataReceived(bytes(frames))
        else:
            self._waiting.append(frames)
            self.pauseProducing()

    def whenDone(self, call: Callable[[], None]) -> None:
        """Call when the owner has carried out all messages so far, and their errors were sent to the client."""
        self._pongs.append(call)
        self.send(encodeMessage(MessageType.PING, self._me.id, {"keepalive": {"timestamp": 0}}))

    def inputEnded(self) -> None:
        """Pass on that the client has ended its input: the owner takes its deliveries back, and ends the link after its
        last answer.
        """
        self._inputEnded = True
        if self._isOpen:
            self.protocol.readConnectionLost()

    def close(self) -> None:
        """End the link with the client's connection."""
        if not self._isOver:
            self._isOver = True
            self.protocol.connectionLost()

    # -- the transport -----------------------------------------------------------------------------

    def getPeer(self) -> IAddress:
        """Return the client's address."""
        return self._session.address

    def write(self, data: bytes) -> None:
        """Send bytes from the owner to the client."""
        session = self._session
        turn, outbox = session.context.turn, session.outbox
        turn.open = True
        try:
            for envelope, read, start, end, count in self._scanner.spans(data):
                self._received(envelope, read[start:end], count)
        finally:
            turn.flush()
        if outbox.full and self._producer is not None:
            self._producer.pauseProducing()
            outbox.whenRelieved(self._relieved)

    def _received(self, envelope: bytes, frames: bytes, count: int) -> None:
        kind, writer = envelope[1], self._replies.writer
        if kind == MessageType.PUB:
            self._session.outbox.traffic.messagesOut += count
            writer.replay(frames)
        elif kind == MessageType.PONG:
            for _ in range(count):
                self._pongs.popleft()()
        elif kind == MessageType.PING:
            timestamp = openMap(envelope).fields["keepalive"]["timestamp"]
            self.send(encodeMessage(MessageType.PONG, self._me.id, {"keepalive": {"timestamp": timestamp}}))
        else:
            for frame in singleFrames(frames, len(envelope)):
                writer.forward(frame)

    def _relieved(self) -> None:
        if self._producer is not None:
            self._producer.resumeProducing()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Pause this connection to the owner while the client does not read its output."""
        self._producer = producer

    def unregisterProducer(self) -> None:
        """Pause nothing."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Do not read the client while the owner does not read, or is not connected."""
        self._reader = self._session.outbox.reader or self._reader
        if self._reader is not None and not self._isOver:
            self._reader.readPauses.pause(ReadPause.OWNER)

    def resumeProducing(self) -> None:
        """Read the client; the first call tells that the owner is connected."""
        if self._reader is not None:
            self._reader.readPauses.resume(ReadPause.OWNER)
        if not self._isOpen and not self._isOver:
            self._isOpen = True
            waiting, self._waiting = self._waiting, []
            if waiting:
                self.send(b"".join(waiting))
            if self._inputEnded:
                self.protocol.readConnectionLost()

    def stopProducing(self) -> None:
        """The owner's side has ended; its protocol closes this one."""

    def loseConnection(self) -> None:
        """End, as the owner's side has ended, or no owner was found."""
        if self._isOver:
            return
        self.close()
        self._session.linkEnded()
        self.resumeProducing()

    loseWriteConnection = abortConnection = loseConnection
