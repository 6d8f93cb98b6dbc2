"""Certificates that are exchanged while clients talk; the real program."""

import os
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate
from tests.conversations.clients import PATIENCE, MiniClient
from tests.conversations.test_transports import TransportCase
from tests.nightly import nightly


class RenewedTests(TransportCase):
    """One listener of each kind that shows a certificate of ours."""

    def setUp(self) -> None:
        """Two certificates, the first of which is shown."""
        super().setUp()
        self.first, self.second = (makeCertificate(self.folder, name) for name in ("first", "second"))
        self.shown = self.folder / "shown.pem"
        self.put(self.first.both.read_bytes())
        tls = f"fleximqtls:cert={self.shown}:inner=tcp\\:0\\:interface=127.0.0.1"
        self.broker = self.running(tls, "tls://127.0.0.1:0", more=("--tls-certificate", str(self.shown)))
        self.context = self.first.trusting()
        self.context.load_verify_locations(self.second.certificate)
        self.context.check_hostname = False

    def put(self, text: bytes) -> None:
        """Exchange the file."""
        fresh = self.folder / "fresh"
        fresh.write_bytes(text)
        os.replace(fresh, self.shown)

    def connect(self, n: int) -> ssl.SSLSocket:
        """Return a connection to the nth listener."""
        return self.context.wrap_socket(socket.create_connection(("127.0.0.1", self.broker.port(n)), PATIENCE))

    def name(self, n: int) -> str:
        """Return whose certificate the nth listener shows."""
        with self.connect(n) as connected:
            shown: Any = connected.getpeercert()
            return str(dict(pair for (pair,) in shown["subject"])["commonName"])

    def eventually(self, n: int, name: str) -> None:
        """Connect until this certificate is shown; the broker looks once a second."""
        for _ in range(1000):
            if self.name(n) == name:
                return
        self.fail(f"{name} was never shown")

    @nightly
    def test_underLoad(self) -> None:
        """While clients of both listeners talk and others come and go, the certificate changes a few times.

        Who was there goes on, who comes is served, and sees one of the two; what is half-written is never shown.
        """
        faults: list[BaseException] = []
        ended = threading.Event()
        talking = [threading.Thread(target=self.talk, args=(n % 2, ended, faults)) for n in range(4)]
        with MiniClient(self.connect(0)) as old, MiniClient(self.connect(1)) as older:
            for each in talking:
                each.start()
            try:
                for made, other in ((self.second, self.first), (self.first, self.second), (self.second, self.first)):
                    self.put(made.both.read_bytes()[: len(made.both.read_bytes()) // 2])
                    self.broker.waitForOutput("breaks off in the middle")
                    self.assertEqual((self.name(0), self.name(1)), (nameOf(other),) * 2)
                    self.put(made.both.read_bytes())
                    for n in (0, 1):
                        self.eventually(n, nameOf(made))
            finally:
                ended.set()
                for each in talking:
                    each.join()
            for mini in (old, older):
                mini.barrier()
        self.assertEqual(faults, [])
        self.assertIn("was read anew; it ends on", self.broker.output)

    def talk(self, n: int, ended: threading.Event, faults: list[BaseException]) -> None:
        """Come, talk and go until it is enough."""
        try:
            while not ended.is_set():
                with MiniClient(self.connect(n)) as mini:
                    for _ in range(5):
                        mini.barrier()
        except BaseException as error:
            faults.append(error)


def nameOf(made: Made) -> str:
    """Return whom a certificate is for."""
    return made.certificate.stem


class ClientTests(TransportCase):
    """Clients with certificates, and what they are refused for."""

    def test_onlyWhoHasOneOfAuthorityIsServed(self) -> None:
        """Only who has one of the authority is served; a proxy's line stands before TLS."""
        made = makeCertificate(self.folder)
        alice = makeCertificate(self.folder, "alice", made)
        tls = f"fleximqtls:cert={made.both}:clientCA={made.certificate}:inner="
        broker = self.running(
            f"{tls}tcp\\:0\\:interface=127.0.0.1",
            f"{tls}haproxy\\:tcp\\:0\\:interface=127.0.0.1",
            more=("--allow-anonymous",),
        )
        connect = wrapper(broker, made, alice)
        with MiniClient(connect(0, b"")) as mini:
            mini.barrier()
        with MiniClient(connect(1, b"PROXY TCP4 192.0.2.7 192.0.2.8 50000 443\r\n")) as mini:
            mini.barrier()
            broker.waitForOutput("joined from 192.0.2.7:50000")
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            wrapper(broker, made, None)(0, b"").recv(1)
        broker.waitForOutput("TLS with 127.0.0.1:[0-9]+ failed: peer did not return a certificate")


def wrapper(broker: BrokerProcess, made: Made, own: Made | None) -> Callable[[int, bytes], ssl.SSLSocket]:
    """Return what connects to the nth listener, says something, and begins TLS."""

    def connect(n: int, first: bytes) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", broker.port(n)), PATIENCE)
        plain.sendall(first)
        return made.trusting(own).wrap_socket(plain, server_hostname="localhost")

    return connect
