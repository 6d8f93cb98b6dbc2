"""Where a client calls, and what it hears if nobody is there."""

import errno
import os
import socket
import ssl
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost, Untrusted
from fleximq.client.sockets import asConnectionLost, dial
from fleximq.errors import SettingError
from fleximq.values.urls import Url
from tests.certificates import makeCertificate
from tests.client.scripted import PATIENCE, InThread


def _answer(server: socket.socket, answer: bytes) -> None:
    """Take one client, read its first words, answer these bytes, and hang up."""
    client, _ = server.accept()
    with client:
        client.settimeout(PATIENCE)
        client.recv(65536)
        client.sendall(answer)


class DialTests(SynchronousTestCase):
    """Plain sockets."""

    def dial(self, url: str, **more: object) -> socket.socket:
        """Connect."""
        connected = dial(Url.parse(url), PATIENCE, **more)  # type: ignore[arg-type]
        assert isinstance(connected, socket.socket)
        self.addCleanup(connected.close)
        return connected

    def test_tcp(self) -> None:
        """A TCP socket sends at once, and lets the system watch over a silent network."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            connected = self.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}")
            self.assertTrue(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            self.assertTrue(connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    def test_anyHost(self) -> None:
        """A URL without a host is one of this machine."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.dial(f"tcp://*:{server.getsockname()[1]}")

    def test_ipc(self) -> None:
        """A relative path begins in a folder, an absolute one stands for itself."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = os.path.join(folder, "b.sock")
            server.bind(path)
            server.listen()
            self.dial("ipc://b.sock", ipcFolder=folder)
            self.dial(f"ipc://{path}")

    def test_nobody(self) -> None:
        """Where nobody listens, the error names the URL and the reason."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            error = self.assertRaises(ConnectionLost, self.dial, f"tcp://127.0.0.1:{taken.getsockname()[1]}")
        self.assertRegex(str(error), r"^cannot connect to tcp://127.0.0.1:\d+: Connection refused$")
        error = self.assertRaises(ConnectionLost, self.dial, f"ipc://{Path(self.mktemp()).name}/none")
        self.assertIn("No such file", str(error))

    def test_noName(self) -> None:
        """A name that cannot be one is nobody's."""
        self.assertRaises(ConnectionLost, self.dial, f"tcp://{'a' * 70}.example:1")

    def test_settings(self) -> None:
        """Pipes that no broker has made, and TLS where there is none, are wrong settings."""
        for url in ("stdio://",):
            self.assertRaises(SettingError, self.dial, url)
        self.assertRaises(SettingError, self.dial, "tcp://localhost:1", tls=ssl.create_default_context())

    def test_reasons(self) -> None:
        """A reason is never empty."""
        for error in (OSError(5, "broken"), OSError(), TimeoutError("late"), ValueError("odd")):
            lost = asConnectionLost(error, "it ended")
            self.assertEqual(type(lost), ConnectionLost)
            self.assertGreater(len(str(lost)), len("it ended: "))

    def test_refused(self) -> None:
        """Where nobody listens, the reason is the system's, whoever has words of his own for it."""
        lost = asConnectionLost(
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "it ended"
        )
        self.assertEqual(str(lost), f"it ended: {os.strerror(errno.ECONNREFUSED)}")

    def test_noTls(self) -> None:
        """A port that answers in plain bytes, or hangs up, is told as one where no TLS is spoken."""
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""):
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(PATIENCE)
                answering = InThread(partial(_answer, server, answer))
                error = self.assertRaises(ConnectionLost, self.dial, f"tls://127.0.0.1:{server.getsockname()[1]}")
                answering.result()
            self.assertIn("the server does not use TLS", str(error))


class CertificateTests(SynchronousTestCase):
    """A server that wants to see a certificate of the client."""

    def listen(self, name: str = "localhost") -> None:
        """Make a certificate for this name, which both sides show and trust, and listen on localhost."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.made = makeCertificate(folder, name)
        wanting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.made.certificate))
        wanting.load_cert_chain(self.made.certificate, self.made.key)
        wanting.verify_mode = ssl.CERT_REQUIRED
        server = socket.create_server(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        self.addCleanup(server.close)
        self.url = Url.parse(f"tls://localhost:{server.getsockname()[1]}")

        def accept() -> object:
            with wanting.wrap_socket(server.accept()[0], server_side=True) as stream:
                stream.sendall(b"x")
                return stream.getpeercert()

        self.accepting = InThread(accept)

    def test_shown(self) -> None:
        """It sees the one in the context that is given."""
        self.listen()
        tls = self.made.trusting()
        tls.load_cert_chain(self.made.certificate, self.made.key)
        connected = dial(self.url, PATIENCE, tls)
        with closing(connected):
            self.assertEqual(connected.recv(1), b"x")
        self.assertIn("subject", self.accepting.result())

    def test_none(self) -> None:
        """Without one there is no connection, or none that lasts."""
        self.listen()

        def read() -> None:
            connected = dial(self.url, PATIENCE, self.made.trusting())
            with closing(connected):
                connected.recv(1)

        self.assertRaises((ConnectionLost, OSError), read)
        self.assertRaises(ssl.SSLError, self.accepting.result)

    def test_otherName(self) -> None:
        """A certificate for another name than that in the URL is not trusted."""
        self.listen("elsewhere.example")
        error = self.assertRaises(Untrusted, dial, self.url, PATIENCE, self.made.trusting())
        self.assertIn("not trusted", str(error))
        self.assertRaises(OSError, self.accepting.result)
