"""A reload after a credential was taken back: its clients end with 401 in each dialect's words, all others stay."""

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.checkers.hashed_secrets import hashOf
from fleximq.security.checkers.passwords import hashOf as hashOfPassword
from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate, revoke
from tests.conversations.clients import (
    PATIENCE,
    BlipClient,
    Ended,
    FlexiClient,
    IdentityClient,
    MiniClient,
    Nack,
    Stream,
    WebSocketStream,
)
from tests.security.checkers.signed import SECRET, token

_POST = b"POST /topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"


class RevocationCase(SynchronousTestCase):
    """A folder with files of credentials, and clients that are closed at the end."""

    def setUp(self) -> None:
        """Make the folder."""
        self.open = ExitStack()
        self.addCleanup(self.open.close)
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def write(self, name: str, content: str | bytes) -> Path:
        """Replace a file that only we can read."""
        path, fresh = self.folder / name, self.folder / "fresh"
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.chmod(0o600)
        return fresh.replace(path)

    def start(self, *words: str) -> None:
        """Start the broker."""
        self.broker = self.open.enter_context(BrokerProcess(*words))

    def reload(self, changed: str) -> None:
        """Reload, and see which changes the log names."""
        seen = self.broker.output.count("read again")
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.waitFor(lambda: self.broker.output.count("read again") > seen, "the reload")
        self.assertTrue(self.broker.output.rpartition("changed: ")[2].startswith(f"{changed}\n"), self.broker.output)


class CertificateTests(RevocationCase):
    """Certificates of clients, whether they are the credentials or only required by the listener."""

    def setUp(self) -> None:
        """A broker and two authorities; ``ca.pem`` has both, and nothing is revoked."""
        super().setUp()
        self.server = makeCertificate(self.folder)
        self.other = makeCertificate(self.folder, "other")
        self.alice = makeCertificate(self.folder, "alice", self.server)
        self.bob = makeCertificate(self.folder, "bob", self.server)
        self.carol = makeCertificate(self.folder, "carol", self.other)
        self.trust(self.server, self.other)
        self.revoke()
        tls = f"fleximqtls:cert={self.server.both}:clientCA={self.folder}/ca.pem:crl={self.folder}/crl.pem"
        inner = ":inner=tcp\\:0\\:interface=127.0.0.1"
        rights = self.write("rights.toml", "[principals.alice]\nadmin = true\npublish = true\n")
        self.start("--auth", "certificate:", "--allow-anonymous", "--listen", tls + inner, "--config", str(rights))

    def trust(self, *authorities: Made) -> None:
        """Write the authorities."""
        self.write("ca.pem", b"".join(each.certificate.read_bytes() for each in authorities))

    def revoke(self, *revoked: Made) -> None:
        """Write the lists of both authorities."""
        lists = [revoke(self.folder, self.server, *revoked).read_bytes(), revoke(self.folder, self.other).read_bytes()]
        self.write("crl.pem", b"".join(lists))

    def connect(self, own: Made) -> Any:
        """Return a connection inside TLS."""
        plain = socket.create_connection(self.broker.address, PATIENCE)
        return self.open.enter_context(self.server.trusting(own).wrap_socket(plain, server_hostname="localhost"))

    def flexi(self, own: Made, header: Any = None) -> FlexiClient:
        """Return a FlexiMQ client that has joined."""
        return FlexiClient(Stream(self.connect(own))).join(header)

    def test_revokedCertificateEndsClientsOfEachDialect(self) -> None:
        """A revoked certificate ends clients of each dialect; that of another name goes on."""
        flexi, webFlexi = self.flexi(self.alice), FlexiClient(WebSocketStream(self.connect(self.alice))).join()
        blip, mini = BlipClient(self.connect(self.alice)).login(""), MiniClient(self.connect(self.alice))
        mini.barrier()
        identity, bob = IdentityClient(self.connect(self.alice)), self.flexi(self.bob)
        idle, posting = Stream(self.connect(self.alice)), Stream(self.connect(self.alice))
        for web in (idle, posting):
            web.say(_POST)
            self.assertTrue(web.read().startswith(b"HTTP/1.1 200 "))
        posting.say(_POST[:-1])
        self.revoke(self.alice)
        self.reload("crl")
        self.assertEqual([[each.status for each in client.untilEnd()] for client in (flexi, webFlexi)], [[401], [401]])
        words = "this certificate is not valid any more"
        self.assertEqual(blip.hear(), Nack(0, 401, words))
        self.assertEqual((mini.hear(), identity.hear()), (f"ERROR:401:{words}",) * 2)
        for client in (blip, mini, identity):
            self.assertRaises(Ended, client.hear)
        self.assertEqual((idle.readAll(), posting.readAll()), (b"", b""))
        self.assertEqual(bob.barrier(), [])

    def test_removedAuthorityEndsItsClients(self) -> None:
        """So does an authority that is removed; the reload names it. Nothing changes before the reload."""
        carol, bob = self.flexi(self.carol), self.flexi(self.bob)
        self.trust(self.server)
        self.assertEqual(carol.barrier(), [])
        self.reload("clientCA")
        self.assertEqual([each.status for each in carol.untilEnd()], [401])
        self.assertEqual(bob.barrier(), [])

    def test_listThatIsCutOffIsRefusedAndEndsNobody(self) -> None:
        """A list that is cut off is refused, and ends nobody."""
        bob = self.flexi(self.bob)
        content = (self.folder / "crl.pem").read_bytes()
        self.write("crl.pem", content[: len(content) - 40])
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.waitForOutput("The settings stay as they are: .*crl.pem breaks off in the middle")
        self.assertEqual(bob.barrier(), [])

    def test_revokedCertificateEndsWaitingConnections(self) -> None:
        """So is a connection that has not joined yet, and an HTTP request, even if only its body is missing."""
        waiting, asking, posting = (self.connect(self.alice) for _ in range(3))
        waiting.do_handshake()
        asking.do_handshake()
        fields = "Host: localhost", "Content-Type: application/json", "Content-Length: 22"
        posting.sendall("\r\n".join(["POST /api/bans/add HTTP/1.1", *fields, "", ""]).encode())
        self.flexi(self.bob)  # the broker has accepted all before
        self.revoke(self.alice)
        self.reload("crl")
        self.assertNotEqual(FlexiClient(Stream(waiting)).send("JOIN").hear().status, 200)
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertTrue(asking.recv(1000).startswith(b"HTTP/1.1 401 "))
        posting.sendall(b'{"address": "9.9.9.9"}')
        self.assertTrue(posting.recv(1000).startswith(b"HTTP/1.1 401 "))


class SecretTests(RevocationCase):
    """Credentials of files."""

    def test_forEachSource(self) -> None:
        """For each source: a change of its file ends its client alone."""
        now = int(time.time())
        table: dict[str, tuple[str, str | bytes, str | bytes, dict[str, str]]] = {
            "tokens": ("tokens:{}", f"a:{hashOf('t')}\n", "", {"type": "token", "token": "t"}),
            "keys": ("apikeys:{}", f"b:{hashOf('k')}\n", "", {"type": "api_key", "api_key": "k"}),
            "passwords": (
                "passwords:{}", f"c:{hashOfPassword('p')}\n", f"c:{hashOfPassword('other')}\n",
                {"type": "basic", "username": "c", "password": "p"},
            ),
            "secret": (
                "jwt:secret={}", SECRET, SECRET[::-1],
                {"type": "token", "token": token(sub="d", exp=now + 1000)},
            ),
            "revoked": (
                f"jwt:secret={self.folder}/fixed,revoked={{}},prefix=r:", "", "7\n",
                {"type": "token", "token": token(SECRET * 2, sub="e", jti="7", exp=now + 1000)},
            ),
        }  # fmt: skip
        self.write("fixed", SECRET * 2)
        for name, (_, before, _, _) in table.items():
            self.write(name, before)
        schemes = [row[0].format(self.folder / name) for name, row in table.items()]
        self.start(*(word for scheme in schemes for word in ("--auth", scheme)))
        connect: Callable[[str], FlexiClient] = lambda name: self.open.enter_context(  # noqa: E731
            FlexiClient(Stream(self.broker.address))
        ).join({"auth": table[name][3]})
        clients = {name: connect(name) for name in table}
        for name, (_, _, after, _) in table.items():
            self.write(name, after)
            self.reload("auth")
            self.assertEqual([each.status for each in clients.pop(name).untilEnd()], [401], name)
            self.assertEqual([client.barrier() for client in clients.values()], [[]] * len(clients), name)
