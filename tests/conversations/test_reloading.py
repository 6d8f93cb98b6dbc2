"""A broker that reads its settings again while clients talk: what it takes, what it refuses, and who stays."""

import os
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.checkers.hashed_secrets import hashOf
from tests.broker_process import BrokerProcess
from tests.certificates import makeCertificate
from tests.conversations.clients import PATIENCE, BlipClient, FlexiClient, IdentityClient, Stream
from tests.security.checkers.signed import SECRET, token

SETTINGS = """\
auth = ["tokens:{folder}/tokens", "apikeys:{folder}/keys"]
tls-certificate = "{folder}/certificate.pem"
tls-key = "{folder}/key.pem"
{more}
[principals.ann]
publish = true
subscribe = true
admin = ["broker/#"]
read = ["broker/#"]

[principals.bob]
publish = ["a.#"]
subscribe = ["a.#"]
"""
#: What the two show.
ANN, BOB = {"type": "token", "token": "annas-secret-token"}, {"type": "token", "token": "bobs-secret-token"}


class ReloadCase(SynchronousTestCase):
    """A broker with tokens, permissions and a certificate; ``folder`` has its files."""

    def setUp(self) -> None:
        """Write the files and start the broker."""
        self._things = ExitStack()
        self.addCleanup(self._things.close)
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.writeTokens("ann", "bob")
        self.writeKeys()
        self.made = self.renew("first")
        self.configure()
        self.broker = self._things.enter_context(
            BrokerProcess(
                *("--config", str(self.folder / "fleximq.toml")),
                *("--listen", "tcp:0:interface=127.0.0.1", "--listen", "tls://127.0.0.1:0"),
            )
        )
        self.ann = self.join(ANN)
        self.bob = self.join(BOB)

    def configure(self, more: str = "", content: str | None = None) -> None:
        """Write the settings file."""
        text = SETTINGS.format(folder=self.folder, more=more) if content is None else content
        (self.folder / "fleximq.toml").write_text(text)

    def writeTokens(self, *names: str) -> None:
        """Write the tokens of these."""
        tokens = {"ann": ANN["token"], "bob": BOB["token"]}
        self.write("tokens", "".join(f"{name}:{hashOf(tokens[name])}\n" for name in names))

    def writeKeys(self) -> None:
        """Write the API keys: one of ann's."""
        self.write("keys", f"ann:{hashOf('annas-api-key')}\n")

    def write(self, name: str, content: str) -> None:
        """Write a file that only we can read."""
        path = self.folder / name
        path.write_text(content)
        path.chmod(0o600)

    def renew(self, name: str) -> Any:
        """Put a new certificate where the broker looks."""
        place = self.folder / name
        place.mkdir()
        made = makeCertificate(place)
        shutil.copy(made.certificate, self.folder / "certificate.pem")
        shutil.copy(made.key, self.folder / "key.pem")
        return made

    def connect(self) -> FlexiClient:
        """Return somebody who has connected."""
        return self._things.enter_context(FlexiClient(Stream(self.broker.address)))

    def join(self, auth: Any) -> FlexiClient:
        """Return a client that has joined with these credentials."""
        return self.connect().join({"auth": auth})

    def tried(self, auth: Any) -> int:
        """Return the status with which a JOIN is answered; None shows nothing."""
        client = self.connect()
        client.joinWith(None if auth is None else {"auth": auth})
        return client.hear().status or 0

    def served(self) -> bytes:
        """Return the certificate that a new handshake shows."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", self.broker.port(1)), PATIENCE) as stream:
            with context.wrap_socket(stream) as secured:
                return secured.getpeercert(binary_form=True) or b""

    def reload(self) -> Any:
        """Ask for a reload, and return the answer."""
        self.ann.request(1, "/broker/reload", "r")
        return self.ann.hear()


class TakenTests(ReloadCase):
    """What a reload changes."""

    def test_answerNamesWhatHasChangedAndWhatNeedsRestart(self) -> None:
        """The answer names what has changed, and what needs a restart; SIGHUP does the same."""
        self.configure("max-subscriptions = 1\nmax-topics = 5")
        self.assertEqual(self.reload().value, {"changed": ["max-subscriptions"], "restart": ["max-topics"]})
        self.ann.subscribe("x", "y")
        self.assertEqual([each.status for each in self.ann.barrier()], [603])
        self.configure("max-subscriptions = 2\nmax-topics = 5")
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.waitForOutput("changed: max-subscriptions(?s:.*)changed: max-subscriptions")
        self.assertEqual(self.ann.subscribe("y").barrier(), [])

    def test_tokenThatIsGoneExpelsWhoShowedItAndNobodyElse(self) -> None:
        """A token that is gone expels who showed it, and nobody else."""
        self.writeTokens("ann")
        self.assertEqual(self.reload().status, 200)
        self.assertEqual([each.status for each in self.bob.untilEnd()], [401])
        self.assertEqual((self.tried(BOB), self.ann.barrier()), (401, []))

    def test_tokenOfAnother(self) -> None:
        """A signed token with ann's name is not ann behind a prefix; it must expire, and its jti can be revoked."""
        (self.folder / "secret").write_bytes(SECRET)
        (self.folder / "secret").chmod(0o600)
        self.write("revoked", "")
        rule = f"jwt:secret={self.folder}/secret,revoked={self.folder}/revoked"
        content = (self.folder / "fleximq.toml").read_text()
        shown = {"type": "token", "token": token(sub="ann", jti="7")}
        warning = "auth jwt and auth tokens can give clients the same name"
        for options, status in ((rule, 200), (f"{rule},prefix=sso:", 403)):
            self.configure(content=content.replace("auth = [", f'auth = ["{options}", '))
            self.assertEqual(self.reload().status, 200)
            self.broker.waitForOutput(warning)
            guest = self.join(shown)
            guest.request(1, "/broker/reload", "r")
            self.assertEqual(guest.hear().status, status)
        self.assertEqual(self.broker.output.count(warning), 2)  # the guest could reload once more
        refused: list[dict[str, Any]] = [{"exp": None, "jti": "8"}, {}]
        for claims in refused:
            self.assertEqual(self.tried({"type": "token", "token": token(sub="ann", **claims)}), 401)
        self.write("revoked", "7\n")
        self.assertEqual(self.reload().status, 200)
        self.assertEqual([each.status for each in guest.untilEnd()], [401])
        self.assertEqual((self.tried(shown), self.ann.barrier()), (401, []))

    def test_permission(self) -> None:
        """A permission that is gone ends the subscription, and what is published is refused; the client stays."""
        self.bob.subscribe("a.x").publish("a.x", 1)
        self.assertEqual([each.kind for each in self.bob.barrier()], ["PUB"])
        content = (self.folder / "fleximq.toml").read_text().replace('["a.#"]', '["b.#"]')
        self.configure(content=content)
        self.assertEqual(self.reload().value["changed"], ["principals"])
        self.assertEqual([each.status for each in self.bob.barrier()], [603])
        self.assertEqual([each.status for each in self.bob.publish("a.x", 1).barrier()], [403])
        self.assertEqual(self.bob.publish("b.x", 1).barrier(), [])

    def test_newCertificateIsShownToNewHandshakes(self) -> None:
        """A new certificate is shown to new handshakes."""
        before = self.served()
        self.renew("second")
        self.assertEqual(self.reload().status, 200)
        self.assertNotEqual(self.served(), before)

    def test_mayNot(self) -> None:
        """Whoever may not administer may not reload."""
        self.bob.request(1, "/broker/reload", "r")
        self.assertEqual(self.bob.hear().status, 403)


class RefusedTests(ReloadCase):
    """What a reload refuses: everything stays as it was, even what was good in it."""

    def assertRefused(self, words: str) -> None:
        """Check that a reload fails with a sentence that has these words, and changed nothing."""
        served = self.served()
        heard = self.reload()
        self.assertEqual((heard.status, heard.header["routing"][0]["path"]), (409, "/broker/reload"))
        self.assertIn(words, heard.value)
        for secret in (ANN["token"], BOB["token"], "annas-api-key"):
            self.assertNotIn(secret, heard.value + self.broker.output)
        self.broker.waitForOutput("The settings stay as they are")
        self.assertEqual((self.ann.barrier(), self.bob.barrier()), ([], []))
        self.assertEqual((self.tried(BOB), self.tried(None)), (200, 401))
        self.assertEqual([each.status for each in self.bob.publish("b.x", 1).barrier()], [403])
        self.assertEqual([each.status for each in self.bob.subscribe("a.1", "a.2").barrier()], [])
        self.assertEqual(self.served(), served)

    def damage(self, name: str) -> Iterator[tuple[str, str]]:
        """Do harm to a file in one way after another, and yield what is done, and the file's name."""
        path = self.folder / name
        good = path.read_bytes()
        ways: dict[str, Callable[[], object]] = {
            "missing": path.unlink,
            "unreadable": lambda: self.turnIntoFolder(path),
            "empty": lambda: path.write_bytes(b""),
            "half-written": lambda: path.write_bytes(good[: len(good) // 2 + 3]),
            "wrong": lambda: path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        }
        for way, harm in ways.items():
            # all else would be fine, and tell that it was taken
            self.configure("max-subscriptions = 1")
            if name != "fleximq.toml" and way == "empty":
                continue  # an empty file of credentials is one that lets nobody in
            harm()
            yield way, str(path)
            if path.is_dir():
                path.rmdir()
            path.write_bytes(good)

    def turnIntoFolder(self, path: Path) -> None:
        """Put a folder in the place of a file, which nobody can read, not even root."""
        path.unlink()
        path.mkdir()

    def test_wrongSettingsFileIsRefused(self) -> None:
        """The settings file."""
        for _, path in self.damage("fleximq.toml"):
            self.assertRefused(path)

    def test_settingsWithoutAuthenticationAreRefused(self) -> None:
        """One that has lost its doors, as a file does that was cut at the end of a line."""
        content = (self.folder / "fleximq.toml").read_text()
        self.configure(content=content.partition("\n")[2])
        self.assertRefused("auth is gone")
        self.configure(content=content.partition("[principals")[0])
        self.assertRefused("roles and principals are gone")

    def test_permissionsThatMakeNoSense(self) -> None:
        """Permissions that make no sense."""
        content = (self.folder / "fleximq.toml").read_text()
        for good, bad in (('publish = ["a.#"]', 'publish = "a'), ("publish", "publishes"), ('"a.#"]', "7]")):
            self.configure(content=content.replace(good, bad))
            self.assertRefused("fleximq.toml")

    def test_wrongFilesOfCredentialsAreRefused(self) -> None:
        """The files of credentials."""
        for name in ("tokens", "keys"):
            for _, path in self.damage(name):
                self.assertRefused(path)

    def test_certificateItsKeyAndTwoThatDoNotBelongTogether(self) -> None:
        """The certificate, its key, and two that do not belong together."""
        for name in ("certificate.pem", "key.pem"):
            for _, path in self.damage(name):
                self.assertRefused(path)
        other = self.folder / "other"
        other.mkdir()
        shutil.copy(makeCertificate(other).key, self.folder / "key.pem")
        self.assertRefused("key.pem")


class LoadTests(ReloadCase):
    """Reloads while everybody talks."""

    @contextmanager
    def talking(self, *talkers: Callable[[], object]) -> Iterator[list[int]]:
        """Let each of these be called again and again meanwhile; yields how often that was done."""
        over = threading.Event()
        counts = [0] * len(talkers)
        failures: list[BaseException] = []

        def talk(place: int) -> None:
            try:
                while not over.is_set():
                    talkers[place]()
                    counts[place] += 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=talk, args=(place,)) for place in range(len(talkers))]
        for each in threads:
            each.start()
        try:
            yield counts
        finally:
            over.set()
            for each in threads:
                each.join(PATIENCE)
        self.assertEqual(failures, [])

    def test_nobodyIsDropped(self) -> None:
        """Good and bad reloads, swapped certificates: every connection of every dialect lives on, with TLS too."""
        flexi = self.join(ANN)
        blip = self._things.enter_context(BlipClient(self.broker.address)).login("annas-api-key")
        identity = self._things.enter_context(
            IdentityClient(self.broker.address, headers=(f"Authorization: Bearer {ANN['token']}",))
        )
        stream = socket.create_connection(("127.0.0.1", self.broker.port(1)), PATIENCE)
        secured: Any = self.made.trusting().wrap_socket(stream, server_hostname="localhost")
        tls = self._things.enter_context(FlexiClient(Stream(secured))).join({"auth": ANN})
        identity.subscribe("i")
        payload = "x" * 1000
        with self.talking(
            lambda: self.assertEqual(flexi.publish("t", payload).barrier(), []),
            lambda: self.assertEqual(tls.publish("t", payload).barrier(), []),
            lambda: self.assertEqual(blip.publish("t", b"x").barrier(), []),
            lambda: self.assertEqual(identity.ask("PUBLISH:i:x")[:4], "MSG:"),
        ) as counts:
            for number in range(10):
                self.renew(f"number {number}")
                self.configure("keepalive = 0" if number % 2 else f"keepalive = {number + 20}")
                self.assertEqual(self.reload().status, 409 if number % 2 else 200)
        self.assertGreater(min(counts), 0)
