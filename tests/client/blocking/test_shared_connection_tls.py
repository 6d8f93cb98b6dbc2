"""The end of a connection inside TLS: told by TLS itself, not by the socket."""

import contextlib
import socket
import ssl
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking.shared_connection import SharedConnection
from fleximq.client.errors import ConnectionLost
from fleximq.client.events import Event
from fleximq.client.protocol.conversation import Conversation
from tests.certificates import makeCertificate
from tests.client.scripted import PATIENCE, InThread


class Broker:
    """The other side, which decides what goes into one piece."""

    def __init__(self, stream: socket.socket, context: ssl.SSLContext) -> None:
        self.stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def handshake(self) -> None:
        """Do it."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.post()
                self._incoming.write(self.stream.recv(1 << 16))
            else:
                return self.post()

    def post(self) -> None:
        """Send all that was said in one piece."""
        self.stream.sendall(self._outgoing.read())

    def bye(self) -> None:
        """Say that this was all."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()


class TlsEndTests(SynchronousTestCase):
    """The broker says its last words, and leaves its socket open."""

    def setUp(self) -> None:
        """Two sockets that have done their handshake."""
        folder = Path(self.mktemp())
        folder.mkdir()
        made = makeCertificate(folder)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(made.certificate, made.key)
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        self.broker = Broker(theirs, serving)
        greeting = InThread(self.broker.handshake)
        secured = made.trusting().wrap_socket(ours, server_hostname="localhost")
        greeting.result()
        self.heard: list[Event] = []
        self.conversation = Conversation()
        self.conversation.id = 1000
        self.wire = SharedConnection(secured, self.conversation, self.heard.append, self.heard.extend)
        self.addCleanup(self.wire.close)

    def test_lastWordsAndEnd(self) -> None:
        """What came together with the end is heard, and nobody waits for what never comes."""
        self.broker.tls.write(self.conversation.publication("a", b""))
        self.broker.bye()
        self.broker.post()
        self.assertTrue(self.wire.waitFor(lambda: self.heard, PATIENCE))
        self.assertEqual(str(self.wire.lost), "the broker closed the connection")

    def test_endAlone(self) -> None:
        """The end comes a little later."""
        self.broker.tls.write(self.conversation.publication("a", b""))
        self.broker.post()
        self.assertTrue(self.wire.waitFor(lambda: self.heard, PATIENCE))
        self.broker.bye()
        self.broker.post()
        self.assertIsNone(self.wire.lost)
        error = self.assertRaises(ConnectionLost, self.wire.waitFor, lambda: False, PATIENCE)
        self.assertEqual(str(error), "the broker closed the connection")
