"""Blocking sockets to the URLs of a client, and the errors."""

import errno
import os
import socket
import ssl
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost
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

    def test_tcpSendsAtOnceWithKeepAlive(self) -> None:
        """Of the system."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            connected = self.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}")
            self.assertTrue(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            self.assertTrue(connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    def test_urlWithoutAHostIsThisMachine(self) -> None:
        """By any address."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.dial(f"tcp://*:{server.getsockname()[1]}")

    def test_ipcPathIsRelativeToAFolder(self) -> None:
        """Or absolute."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = os.path.join(folder, "b.sock")
            server.bind(path)
            server.listen()
            self.dial("ipc://b.sock", ipcFolder=folder)
            self.dial(f"ipc://{path}")

    def test_errorNamesUrlAndReason(self) -> None:
        """Without a listener."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            error = self.assertRaises(ConnectionLost, self.dial, f"tcp://127.0.0.1:{taken.getsockname()[1]}")
        self.assertRegex(str(error), r"^cannot connect to tcp://127.0.0.1:\d+: Connection refused$")
        error = self.assertRaises(ConnectionLost, self.dial, f"ipc://{Path(self.mktemp()).name}/none")
        self.assertIn("No such file", str(error))

    def test_impossibleNameIsALostConnection(self) -> None:
        """Longer than a label may be."""
        self.assertRaises(ConnectionLost, self.dial, f"tcp://{'a' * 70}.example:1")

    def test_pipesWithoutABrokerAndTlsWithoutItsUrlAreWrongSettings(self) -> None:
        """Before connecting."""
        for url in ("stdio://",):
            self.assertRaises(SettingError, self.dial, url)
        self.assertRaises(SettingError, self.dial, "tcp://localhost:1", tls=ssl.create_default_context())

    def test_reasonIsNeverEmpty(self) -> None:
        """Of any error."""
        for error in (OSError(5, "broken"), OSError(), TimeoutError("late"), ValueError("odd")):
            lost = asConnectionLost(error, "it ended")
            self.assertEqual(type(lost), ConnectionLost)
            self.assertGreater(len(str(lost)), len("it ended: "))

    def test_refusedConnectionHasTheSystemsWords(self) -> None:
        """Although asyncio has its own."""
        lost = asConnectionLost(
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "it ended"
        )
        self.assertEqual(str(lost), f"it ended: {os.strerror(errno.ECONNREFUSED)}")

    def test_serverWithoutTlsIsNamedAsOne(self) -> None:
        """It answers in plain bytes, or hangs up."""
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""):
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(PATIENCE)
                answering = InThread(partial(_answer, server, answer))
                error = self.assertRaises(ConnectionLost, self.dial, f"tls://127.0.0.1:{server.getsockname()[1]}")
                answering.result()
            self.assertIn("the server does not use TLS", str(error))


class CertificateTests(SynchronousTestCase):
    """A server that requires a certificate of the client."""

    def test_noCertificateIsNoLastingConnection(self) -> None:
        """The connection fails, or its first read does."""
        folder = Path(self.mktemp())
        folder.mkdir()
        made = makeCertificate(folder)
        requiring = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.certificate))
        requiring.load_cert_chain(made.certificate, made.key)
        requiring.verify_mode = ssl.CERT_REQUIRED
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(PATIENCE)
            accepting = InThread(lambda: requiring.wrap_socket(server.accept()[0], server_side=True))

            def read() -> None:
                url = Url.parse(f"tls://localhost:{server.getsockname()[1]}")
                with closing(dial(url, PATIENCE, made.trusting())) as connected:
                    assert isinstance(connected, socket.socket)
                    connected.recv(1)

            self.assertRaises((ConnectionLost, OSError), read)
            self.assertRaises(ssl.SSLError, accepting.result)
