"""fleximq.cluster.nats_link: the words of core NATS, fed in pieces, and connections to several servers."""

import json
import ssl
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.cluster.interfaces import IMeshLink
from fleximq.cluster.nats_link import MAX_WAITING, PING, RETRY, NatsLink, NatsProtocol

INFO = b'INFO {"max_payload":2048,"nonce":"n"} \r\n'


class Transport(StringTransport):
    """A transport of TCP."""

    bufferSize = 0

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing."""

    def doWrite(self) -> None:
        """Do nothing: all is written already."""


class CoreNatsTests(SynchronousTestCase):
    """A node named a of the cluster named c."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.got: list[bytes] = []
        self.connections = 0
        self.link = self.linkTo("nats://one", "nats://two:1")

    def linkTo(self, *urls: str, **options: Any) -> NatsLink:
        """Return a link that connects to these servers."""
        link = NatsLink(self.reactor, urls, "c", "a", options)
        link.start(self.got.append, self.connected)
        return link

    def connected(self) -> None:
        """Count a connection."""
        self.connections += 1

    def accepted(self, link: NatsLink | None = None, info: bytes = INFO) -> tuple[NatsProtocol, Transport]:
        """Return a connection to a server that has sent its INFO, and its transport."""
        protocol, transport = (link or self.link).buildProtocol(None), Transport()
        protocol.makeConnection(transport)
        protocol.dataReceived(info)
        return protocol, transport

    def lines(self, transport: Transport) -> list[bytes]:
        """Return what was written since the last call."""
        written: bytes = transport.value()
        transport.clear()
        return written.split(b"\r\n")

    def test_interface(self) -> None:
        """It has the methods of its interface."""
        verifyObject(IMeshLink, self.link)

    def test_connects(self) -> None:
        """It subscribes, and is connected when the server has answered its PING."""
        protocol, transport = self.accepted()
        word, *rest = self.lines(transport)
        words = json.loads(word.removeprefix(b"CONNECT "))
        self.assertEqual((words["echo"], words["verbose"], "user" in words), (False, False, False))
        self.assertEqual(rest, [b"SUB c.mesh.v2.all 1", b"SUB c.mesh.v2.node.a 2", b"PING", b""])
        self.link.send("", b"too early")
        protocol.dataReceived(b"PONG\r\n")
        self.assertEqual((self.connections, self.link.maxPayload, transport.value()), (1, 2048, b""))
        self.link.send("", b"x")
        self.link.send("b", b"yz")
        self.assertEqual(transport.value(), b"PUB c.mesh.v2.all 1\r\nx\r\nPUB c.mesh.v2.node.b 2\r\nyz\r\n")

    def test_credentials(self) -> None:
        """They are those of the options; a nonce is signed."""
        link = self.linkTo(
            "nats://h", token="t", user_jwt_cb=lambda: bytearray(b"j"), signature_cb=lambda nonce: nonce.encode() * 2
        )
        words = json.loads(self.lines(self.accepted(link)[1])[0].removeprefix(b"CONNECT "))
        self.assertEqual([words[each] for each in ("auth_token", "jwt", "sig")], ["t", "j", "nn"])

    def test_tls(self) -> None:
        """Nothing is sent before the handshake, and nothing at all to a server without TLS where it was asked for."""
        tls = {"tls": ssl.create_default_context()}
        for options, required in ((tls, True), ({}, True), (tls, False)):
            link = self.linkTo("tls://h", token="t", **options)
            protocol, transport = self.accepted(link, INFO.replace(b"{", b'{"tls_required":%d,' % required))
            self.reactor.advance(PING - 1)
            self.assertEqual((transport.value()[:1], transport.disconnected), (b"\x16" * required, not required))
            if required:
                protocol.dataReceived(b"not TLS at all")
                self.assertTrue(transport.disconnected)
            protocol.connectionLost()

    def test_receives(self) -> None:
        """Messages are received at every split of the input, and PINGs are answered."""
        data = b"PONG\r\nMSG c.mesh.v2.all 1 3\r\na\r\n\r\n+OK\r\nPING\r\nMSG c.mesh.v2.node.a 2 c.reply 0\r\n\r\n"
        for size in (1, 7, len(data)):
            self.got.clear()
            protocol, transport = self.accepted()
            transport.clear()
            for start in range(0, len(data), size):
                protocol.dataReceived(data[start : start + size])
            self.assertEqual((self.got, transport.value()), ([b"a\r\n", b""], b"PONG\r\n"))

    def test_again(self) -> None:
        """After a loss it connects to the next server, and to none after it was stopped."""
        protocol, _ = self.accepted()
        protocol.connectionLost()
        self.assertIsNone(self.link.protocol)
        self.reactor.advance(RETRY)
        self.link.clientConnectionFailed(None, Failure(ConnectionDone()))
        self.reactor.advance(RETRY)
        places = [("one", 4222), ("two", 1), ("one", 4222)]
        self.assertEqual([client[:2] for client in self.reactor.tcpClients], places)
        self.link.lost()
        self.link.stop()
        self.reactor.advance(RETRY)
        self.assertEqual(len(self.reactor.tcpClients), 3)

    def test_dead(self) -> None:
        """A server that does not answer a PING is left."""
        protocol, transport = self.accepted()
        self.reactor.advance(PING)
        self.reactor.advance(PING - 1)
        self.assertFalse(transport.disconnected)
        protocol.dataReceived(b"PONG\r\n")
        self.reactor.advance(PING)
        self.assertFalse(transport.disconnected)
        self.reactor.advance(PING)
        self.assertTrue(transport.disconnected)

    def test_full(self) -> None:
        """Messages are dropped while too many bytes wait."""
        protocol, transport = self.accepted()
        transport.clear()
        protocol.pauseProducing()
        for _ in range(3):
            protocol.publish("s", b"x" * (MAX_WAITING // 2))
        self.assertEqual(len(transport.value()) // (MAX_WAITING // 2), 2)
        protocol.resumeProducing()
        transport.clear()
        protocol.publish("s", b"x")
        self.assertEqual(transport.value(), b"PUB s 1\r\nx\r\n")
