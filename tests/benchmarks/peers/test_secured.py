"""What the pump counts of a connection inside TLS."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.secured import TlsSocket
from benchmarks.pump import limitWaits
from tests.certificates import makeCertificate


class TlsSocketTests(SynchronousTestCase):
    """A client beside a server of Python's."""

    def setUp(self) -> None:
        """Shake hands."""
        left, right = socket.socketpair()
        limitWaits(left, 5)
        folder = Path(self.mktemp())
        folder.mkdir()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(makeCertificate(folder).both)
        with ThreadPoolExecutor() as pool:
            client = pool.submit(TlsSocket, left)
            self.server = context.wrap_socket(right, server_side=True)
            self.client = client.result()
        self.server.sendall(b"hello")
        self.assertEqual(self.client.recv(100), b"hello")
        for each in (left, self.server, self.client):
            self.addCleanup(each.close)

    def count(self, buffer: memoryview) -> int:
        """Return what the client counts of one read."""
        try:
            return self.client.recv_into(buffer)
        except BlockingIOError:
            return 0

    def test_counted(self) -> None:
        """Records are counted by their content, in reads of any size; what comes later is read as it is."""
        for size in (1, 4, 22, 23, 300, 1 << 16):
            for piece in (b"a", b"bc" * 50, b"d" * 16384):
                self.server.sendall(piece)
            counted, buffer = 0, memoryview(bytearray(size))
            while counted < 1 + 100 + 16384:
                counted += self.count(buffer)
            self.assertEqual(counted, 1 + 100 + 16384, size)
            self.server.sendall(b"later")
            self.assertEqual(self.client.recv(100), b"later")

    def test_sent(self) -> None:
        """What was encrypted before arrives, and what is sent after it."""
        sealed = self.client.encrypted(b"x" * 40_000)
        socket.socket.sendall(self.client, sealed)
        self.client.sendall(b"y")
        said = b""
        while len(said) < 40_001:
            said += self.server.recv(1 << 16)
        self.assertEqual(said, b"x" * 40_000 + b"y")

    def test_closed(self) -> None:
        """The end of the connection is no content."""
        self.server.close()
        self.assertEqual(self.client.recv_into(bytearray(10)), 0)
