"""fleximq.cluster.nats.access: with a real server for each kind of credentials."""

import json
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet import reactor
from twisted.internet.defer import inlineCallbacks
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from fleximq.cluster.nats_link import NatsLink
from fleximq.errors import SettingError
from tests.certificates import makeCertificate
from tests.cluster.nats.servers import MISSING, Servers

if not MISSING:
    from fleximq.cluster.nats.access import connectOptions
    from fleximq.cluster.nats.store import NatsCluster

#: The first two bytes of keys of operators, accounts and users, and of a user's seed.
_OPERATOR, _ACCOUNT, _USER, _SEED = (bytes([14 << 3]), bytes([0]), bytes([20 << 3]), bytes([18 << 3 | 5, 0]))


def crc16(data: bytes) -> bytes:
    """Return the check sum of keys (XMODEM)."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc.to_bytes(2, "little")


def keyText(prefix: bytes, raw: bytes) -> str:
    """Return a key or seed as NATS writes it."""
    return b32encode(prefix + raw + crc16(prefix + raw)).decode().rstrip("=")


class Party:
    """An operator, an account or a user."""

    def __init__(self, prefix: bytes) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.name = keyText(prefix, self.key.public_key().public_bytes_raw())

    def sign(self, subject: "Party", kind: str, **claims: Any) -> str:
        """Return a JWT about another party."""
        body = {"iss": self.name, "sub": subject.name, "name": kind, "iat": 1, "jti": "1"}
        body["nats"] = {"type": kind, "version": 2, **claims}
        parts = [_base64(json.dumps(each).encode()) for each in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
        return ".".join([*parts, _base64(self.key.sign(".".join(parts).encode()))])


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


class AccessTests(TestCase):
    """Each test reaches a server that wants credentials, and is refused without."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def write(self, name: str, text: str) -> str:
        """Write a file; return its path."""
        (self.folder / name).write_text(text)
        return f"{self.folder / name}"

    def serve(self, settings: str) -> str:
        """Start a server; return its URL."""
        servers = Servers(self.mktemp(), settings=settings)
        self.addCleanup(servers.end)
        servers.wait()
        return servers.urls[0]

    @inlineCallbacks
    def reach(self, url: str, *files: str | None) -> Any:
        """Reach a server with both connections of a node; return why it cannot be reached, "" if it can."""
        options = connectOptions([url], *files)
        callFromThread = cast(Any, reactor).callFromThread
        cluster = NatsCluster([url], "c", callFromThread, room=1 << 20, replicas=1, options=options)
        reached: list[object] = []
        cluster.start().addCallback(reached.append)
        got: list[bytes] = []
        links = [NatsLink(reactor, [url], "c", node, options) for node in "ab"]
        for link in links:
            link.start(got.append, lambda: None)
        for _ in range(200):
            if (reached and got) or cluster.reason != "they do not answer":
                break
            yield deferLater(reactor, 0.02)
            links[0].send("b", b"x" * 100_000)
        self.assertEqual({len(data) for data in got}, {100_000} if reached else set())
        for link in links:
            link.stop()
        yield cluster.stop()
        return "" if reached else cluster.reason

    @inlineCallbacks
    def test_password(self) -> Any:
        """A name with a password."""
        url = self.serve('authorization { user: "u", password: "a:b" }')
        found = yield self.reach(url, "password:" + self.write("p", "u:a:b\n"), None, None, None)
        self.assertEqual(found, "")
        for _ in range(10):
            found = yield self.reach(url, "password:" + self.write("p", "u:wrong"), None, None, None)
            if "reset by peer" not in found:  # the server may close the connection before its sentence was read
                break
        self.assertIn("authorization", found.lower())

    @inlineCallbacks
    def test_token(self) -> Any:
        """A token."""
        url = self.serve('authorization { token: "t0ken" }')
        found = yield self.reach(url, "token:" + self.write("t", "t0ken\n"), None, None, None)
        self.assertEqual(found, "")

    @inlineCallbacks
    def test_creds(self) -> Any:
        """A .creds file, with a server that knows its operator."""
        operator, account, user = Party(_OPERATOR), Party(_ACCOUNT), Party(_USER)
        storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
        names = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1}
        known = operator.sign(account, "account", limits={**names, "wildcards": True, **storage})
        system = Party(_ACCOUNT)
        url = self.serve(
            f"operator: {operator.sign(operator, 'operator')}\nsystem_account: {system.name}\nresolver: MEMORY\n"
            f"resolver_preload {{ {account.name}: {known}, {system.name}: {operator.sign(system, 'account')} }}\n"
        )
        jwt = account.sign(user, "user", subs=-1, data=-1, payload=-1)
        seed = keyText(_SEED, user.key.private_bytes_raw())
        text = f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\nsome words\n"
        text += f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        found = yield self.reach(url, "creds:" + self.write("c", text), None, None, None)
        self.assertEqual(found, "")

    @inlineCallbacks
    def test_tls(self) -> Any:
        """TLS, with a certificate on each side; nothing is sent to a server without TLS."""
        server, own = makeCertificate(self.folder), makeCertificate(self.folder, "own")
        files = f'cert_file: "{server.certificate}", key_file: "{server.key}", ca_file: "{own.certificate}"'
        url = self.serve(f"tls {{ {files}, verify: true }}")
        found = yield self.reach(url, None, str(server.certificate), str(own.certificate), str(own.key))
        self.assertEqual(found, "")
        found = yield self.reach(url, None, str(own.certificate), str(own.both), None)
        self.assertIn("certificate verify failed", found)
        found = yield self.reach(self.serve(""), None, str(server.certificate), None, None)
        self.assertIn("does not use TLS", found)


class FileTests(SynchronousTestCase):
    """Files that cannot be used."""

    if MISSING:
        skip = MISSING

    def test_sentences(self) -> None:
        """The sentence names the option and the file, but nothing of its content."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        path = folder / "f"
        path.write_text("two words")
        certificate = makeCertificate(folder)
        cases: list[tuple[Callable[[], Any], str]] = [
            (lambda: connectOptions((), f"token:{folder}/none", None, None, None), "cannot be read: No such file"),
            (lambda: connectOptions((), f"token:{path}", None, None, None), "must have one line with a token"),
            (lambda: connectOptions((), f"password:{path}", None, None, None), "must have one line like USER:PASSWORD"),
            (lambda: connectOptions((), f"creds:{path}", None, None, None), "is not a .creds file"),
            (lambda: connectOptions((), None, str(path), None, None), "has no certificate in PEM"),
            (lambda: connectOptions((), None, None, str(certificate.certificate), str(path)), "and cluster-key"),
        ]
        for make, sentence in cases:
            error = self.assertRaises(SettingError, make)
            self.assertIn(sentence, str(error))
            self.assertTrue(str(error).startswith("cluster-"), error)
            self.assertNotIn("two words", str(error))
