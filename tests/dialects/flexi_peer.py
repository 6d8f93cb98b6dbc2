"""The client's side of FlexiMQ over a string, by the letter of the document.

::

    server = FlexiServer(clock, requestTimeout=2.0)
    alice = server.join()
    alice.tell("SUB", {"topic": "news"})
    alice.publish("news", "hello")
    [heard] = alice.messages()
"""

from typing import Any, Self

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.interfaces import IAdmission, IJournal
from tests.dialects.conversations import HERE, ConversationCase, Peer, makeContext
from tests.flexi_voice import FlexiVoice
from tests.wire.flexi_frames import Heard


class FlexiPeer(FlexiVoice, Peer):
    """One FlexiMQ client over a string."""

    def say(self, data: bytes) -> Self:
        """Let the protocol read this."""
        return Peer.say(self, data)

    def join(self, header: Any = None) -> "FlexiPeer":
        """JOIN, and take the id from the answer."""
        welcome = self.joinWith(header)
        [heard] = self.messages()
        if (heard.kind, heard.header) != ("REP", welcome):
            raise AssertionError(f"not let in: {heard}")
        self.id = heard.sender
        return self

    def messages(self) -> list[Heard]:
        """Return what was heard since the last time."""
        return self.variant.cut(self.heard())

    def values(self) -> list[Any]:
        """Return the payloads' values of what was heard, which must be nothing but PUBs."""
        heard = self.messages()
        if any(each.kind != "PUB" for each in heard):
            raise AssertionError(f"more than PUBs: {heard}")
        return [each.value for each in heard]

    def barrier(self) -> list[Heard]:
        """PING, and return what came before its PONG; everything said before was worked off then."""
        header = self.ping()
        *before, pong = self.messages()
        if (pong.kind, pong.sender, pong.header) != ("PONG", 1, header):
            raise AssertionError(f"no PONG: {pong}")
        return before


class FlexiServer:
    """A broker with a FlexiMQ listener.

    :param settings: fields of :class:`fleximq.config.settings.Settings`.
    """

    def __init__(
        self,
        clock: Clock,
        journal: IJournal | None = None,
        admission: IAdmission | None = None,
        piece: int = 0,
        **settings: Any,
    ) -> None:
        self.clock = clock
        self.context = makeContext(clock, journal, admission, **settings)
        self.broker = self.context.broker
        self.factory: Factory = FlexiFactory(self.context)
        self._piece = piece

    def connect(self, address: IAddress = HERE) -> FlexiPeer:
        """Return a new peer that has not joined."""
        return FlexiPeer(self.factory, address, self._piece)

    def join(self, header: Any = None) -> FlexiPeer:
        """Return a new peer that has joined."""
        return self.connect().join(header)

    def client(self, peer: FlexiPeer) -> ConnectedClient:
        """Return the broker's client that a peer is."""
        client = self.broker.clients.find(peer.id)
        assert client is not None
        return client

    def foreign(self, dialect: str = "minimq") -> ConnectedClient:
        """Return a client of another dialect, which takes no direct messages."""
        return self.broker.join(dialect)

    def counts(self, prefix: str) -> dict[str, int]:
        """Return the events that were counted under names that begin so."""
        return {name: number for name, number in self.broker.counts.events.items() if name.startswith(prefix)}


class FlexiCase(ConversationCase):
    """A test with a clock and a FlexiMQ server."""

    def setUp(self) -> None:
        """Begin at second 0 with an empty broker."""
        super().setUp()
        self.server = self.makeServer()

    def makeServer(self, **more: Any) -> FlexiServer:
        """Return a server on this test's clock whose peers talk in this case's pieces."""
        return FlexiServer(self.clock, piece=self.piece, **more)

    def assertError(self, heard: Heard, peer: FlexiPeer, status: int, id: str | None = None, path: str = "") -> None:
        """Check the shape of an error after the JOIN: REP from 1 with status, routing, correlation and words."""
        header: dict[str, Any] = {
            "status": peer.variant.status(status),
            "routing": [{"client_id": peer.id, "path": path}],
        }
        if id is not None:
            header["reqrep"] = {"type": "correlation", "id": id}
        self.assertEqual((heard.kind, heard.sender, heard.header), ("REP", 1, header))
        self.assertEqual((heard.version, heard.reserved), (1, bytes(16)))
        self.assertIsInstance(heard.value, str)
        self.assertTrue(heard.value)
