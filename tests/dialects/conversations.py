"""Conversations with a broker in memory, for the tests of every dialect.

::

    clock = Clock()
    peer = Peer(BlipFactory(makeContext(clock, handshakeTimeout=5.0)))
    peer.say(hello)
    self.assertEqual(peer.heard(), welcome)

:func:`inPieces` makes the same tests twice more, so that the input arrives in pieces of 1 and of 7 bytes. One case of
each reader of bytes is enough for that: which pieces arrive is nothing that the rest of a session notices.
"""

from collections.abc import Callable
from itertools import chain, count
from typing import Any, Self

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.broker import Broker
from fleximq.compiled import choice
from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.context import ListenerContext
from fleximq.interfaces import IAdmission, IJournal
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.services.broker_service import rulesOf
from fleximq.values.message import Message
from tests.dialects.admissions import Everybody

#: Where a peer connects from unless a test says otherwise.
HERE = IPv4Address("TCP", "127.0.0.1", 50000)


def makeContext(
    clock: Clock,
    journal: IJournal | None = None,
    admission: IAdmission | None = None,
    **settings: Any,
) -> ListenerContext:
    """Return a context with a broker of its own.

    Messages without an id are named ``id-1``, ``id-2`` ... in work queues; random digits of clients count up from 0.
    What an observer or a timed action raises is raised here too.

    :param settings: fields of :class:`fleximq.config.settings.Settings`; the broker's rules follow them.
    """
    chosen = Settings(**settings)
    turn = WriteTurn(clock)
    numbers = chain((0,), count())  # the broker takes the first for its schedules
    ids = iter(range(1, 1 << 30))
    broker = Broker(
        clock,
        journal if journal is not None else MemoryJournal(),
        randomHex=lambda digits: f"{next(numbers):0{digits}x}",
        idOf=lambda message: _idOf(message, ids.__next__),
        onError=_raise,
        rules=rulesOf(chosen),
        afterwards=turn.flush,
        publishing=turn.publishing,
        implementation=choice.IMPLEMENTATION,
        wall=clock.seconds,
    )
    return ListenerContext(broker, chosen, clock, turn, admission or Everybody())


def _idOf(message: Message, next: Callable[[], int]) -> str:
    return message.message_id if message.message_id is not None else f"id-{next()}"


def _raise(error: Exception) -> None:
    raise error


class Peer:
    """Somebody connected to a factory's protocol; the transport is a string.

    :param piece: cut what is said into pieces of so many bytes; 0 leaves it whole.
    """

    def __init__(self, factory: IProtocolFactory, address: IAddress = HERE, piece: int = 0) -> None:
        self.transport = StringTransport(peerAddress=address, lenient=True)
        self._piece = piece
        protocol: Any = factory.buildProtocol(address)
        self.protocol = protocol
        protocol.makeConnection(self.transport)

    def say(self, data: bytes) -> Self:
        """Let the protocol read this; nothing arrives after it has closed the connection."""
        for start in range(0, len(data), self._piece or len(data) or 1):
            if not self.closed:
                self.protocol.dataReceived(data[start : start + (self._piece or len(data))])
        return self

    def heard(self) -> bytes:
        """Return what was written to the peer since the last time."""
        heard: bytes = self.transport.value()
        self.transport.clear()
        return heard

    def ask(self, data: bytes) -> bytes:
        """Say something and return what was heard."""
        return self.say(data).heard()

    @property
    def producer(self) -> Any:
        """The producer of what is written to the peer: a peer that does not read pauses it."""
        return self.transport.producer

    @property
    def closed(self) -> bool:
        """Whether the protocol has closed the connection, or is closing it."""
        return self.transport.disconnecting

    @property
    def paused(self) -> bool:
        """Whether the protocol has stopped reading."""
        return self.transport.producerState == "paused"

    def endInput(self) -> Self:
        """Say nothing more, and still listen."""
        self.protocol.readConnectionLost()
        return self

    def leave(self) -> None:
        """Lose the connection."""
        self.transport.connected = False
        self.protocol.connectionLost(Failure(ConnectionLost()))


class ConversationCase(SynchronousTestCase):
    """A test with a clock; ``piece`` is the size of the pieces in which peers talk, 0 for whole."""

    piece = 0

    def setUp(self) -> None:
        """Begin at second 0."""
        self.clock = Clock()

    def connect(self, factory: Factory, address: IAddress = HERE) -> Peer:
        """Return a new peer that talks in this case's pieces."""
        return Peer(factory, address, self.piece)


def inPieces(*cases: type[ConversationCase]) -> dict[str, type[ConversationCase]]:
    """Return each case twice more by name: for pieces of 1 and of 7 bytes.

    A module says ``globals().update(inPieces(SomeTests, OtherTests))`` at its end.
    """
    made: dict[str, type[ConversationCase]] = {}
    for case in cases:
        for piece in (1, 7):
            name = f"{case.__name__}InPiecesOf{piece}"
            made[name] = type(name, (case,), {"piece": piece, "__module__": case.__module__, "__doc__": case.__doc__})
    return made
