"""Lines and answers, with a broker in memory."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.api import Content, Envelope, IDialect, IForm, ISource, ISubscriber, Message, makeService
from fleximq_line_echo.dialect import LINE_BYTES, LINES

HERE = IPv4Address("TCP", "127.0.0.1", 50000)
ELSEWHERE = IPv4Address("TCP", "192.0.2.7", 50000)


class Peer:
    """A client in memory."""

    def __init__(self, factory: Any, address: IPv4Address = HERE) -> None:
        self._protocol = factory.buildProtocol(address)
        self._transport = StringTransport(peerAddress=address)
        self._protocol.makeConnection(self._transport)

    def say(self, data: bytes, piece: int = 1 << 20) -> "Peer":
        for start in range(0, len(data), piece):
            self._protocol.dataReceived(data[start : start + piece])
        return self

    def heard(self) -> bytes:
        answer: bytes = self._transport.value()
        self._transport.clear()
        return answer

    @property
    def session(self) -> Any:
        """The session after the first byte, when its protocol has replaced the first one's methods."""
        return self._protocol.dataReceived.__self__.session

    @property
    def closed(self) -> bool:
        return self._transport.disconnecting or self._transport.disconnected


class LineTests(SynchronousTestCase):
    """A broker with a port for all dialects, and one for lines alone."""

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        broker = makeService(self.reactor, listen=["tcp:1", "line_echo+tcp:2"])
        broker.startService()
        self.addCleanup(broker.stopService)
        self.shared, self.own = (server[1] for server in self.reactor.tcpServers)

    def test_twistedFindsThePlugIn(self) -> None:
        (dialect,) = (each for each in getPlugins(IDialect) if each.name == "line_echo")
        self.assertEqual((dialect.name, dialect.beginnings), ("line_echo", (b"+",)))

    def test_interfaces(self) -> None:
        verifyObject(ISource, LINES)
        verifyObject(IForm, LINES)
        peer = Peer(self.own).say(b"+")
        verifyObject(ISubscriber, peer.session)

    def test_conversation(self) -> None:
        """Subscribers receive publications, their own too; success is silent."""
        reader, other = Peer(self.own).say(b"+news\n"), Peer(self.own).say(b"+else\n")
        writer = Peer(self.own).say(b"news hello there\nnews\xc3\xa9 no\n+news\r\nnews more\r\n")
        self.assertEqual(reader.heard(), b"news hello there\nnews more\n")
        self.assertEqual(writer.heard(), b"news more\n")
        self.assertEqual(other.heard(), b"")

    def test_pieces(self) -> None:
        for piece in range(1, 10):
            peer = Peer(self.own).say(b"+news\nnews one\nnews two\n", piece)
            self.assertEqual(peer.heard(), b"news one\nnews two\n", piece)
            peer._protocol.connectionLost()

    def test_aPlusIsDistinguishedOnASharedPort(self) -> None:
        reader = Peer(self.shared).say(b"+news\n", 1)
        mini = Peer(self.shared).say(b"PRODUCE:1:::news:::from afar\n")
        self.assertEqual((mini.heard(), reader.heard()), (b"1\n", b"news from afar\n"))

    def test_aTextMayBeEmptyAndHaveBlanksAndPlusSigns(self) -> None:
        peer = Peer(self.own).say(b"+a\na \na  +b \n")
        self.assertEqual(peer.heard(), b"a \na  +b \n")

    def test_aLineBreakInATextBecomesABlank(self) -> None:
        reader = Peer(self.own).say(b"+a\n")
        session = reader.session
        envelope = Envelope(session.broker.topicFor(session.client, "a"), session.client, LINES)
        session.broker.publish(envelope, [Message("x\ny\r\nz\u2028w".encode(), Content.TEXT)], 1)
        self.reactor.advance(0)
        self.assertEqual(reader.heard(), b"a x y z w\n")

    def test_anErrorIsALineAndTheConnectionRemainsOpen(self) -> None:
        peer = Peer(self.own)
        for line, words in (
            (b"news", b"say +TOPIC, or TOPIC TEXT"),
            (b"", b"say +TOPIC, or TOPIC TEXT"),
            (b" text", b"the topic is empty"),
            (b"+", b"the topic is empty"),
            (b"a\xff b", b"the line is not UTF-8"),
            (b"$sys/x y", b"only the broker publishes to this topic"),
        ):
            self.assertEqual(peer.say(line + b"\n").heard(), b"! " + words + b"\n", line)
        self.assertFalse(peer.closed)
        self.assertEqual(peer.say(b"+a\na b\n").heard(), b"a b\n")

    def test_aLineOverTheLimitEndsTheConnection(self) -> None:
        peer = Peer(self.own).say(b"+a\n")
        line = b"a " + b"x" * (LINE_BYTES - 2) + b"\n"
        self.assertEqual(peer.say(line).heard(), line)
        peer.say(b"a " + b"x" * (LINE_BYTES - 1))
        self.assertEqual((peer.heard(), peer.closed), (b"! the line is longer than 65536 bytes\n", True))

    def test_aRefusedPeerReceivesAnErrorAndIsDisconnected(self) -> None:
        peer = Peer(self.own, ELSEWHERE).say(b"+a\n")
        self.assertIn(b"--allow-anonymous", peer.heard())
        self.assertTrue(peer.closed)
