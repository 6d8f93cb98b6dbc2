"""Key pairs, kept passwords and the keys of an identity provider, at a running broker."""

import contextlib
import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.client.blocking import connect
from fleximq.client.errors import ClientError, JoinRefused
from tests.broker_process import BrokerProcess
from tests.security.checkers.signed import ecKey, jwk, token
from tests.security.secrets_on_disk import secretFile


def command(*words: str, input: str = "") -> str:
    """Run ``fleximq``, and return what it prints."""
    out = io.StringIO()
    with patch.object(sys, "stdin", io.StringIO(input)), contextlib.redirect_stdout(out):
        assert main(words) == 0
    return out.getvalue().strip()


class CredentialTests(SynchronousTestCase):
    """Conversations with the real program."""

    def joins(self, broker: BrokerProcess, **credentials: str) -> bool:
        """Return whether these are let in; the broker's address is that of its TCP listener."""
        host, port = broker.address
        for url in (f"tcp://{host}:{port}", f"ws://{host}:{port}/"):
            try:
                connect(url, credentials=credentials, reconnect=None, timeout=300).close()
            except JoinRefused:
                return False
        return True

    def test_keyPair(self) -> None:
        """The owner of a private key is let in over TCP and WebSocket, others are not."""
        path, other = (str(Path(self.mktemp()).absolute()) for _ in range(2))
        private, stranger = command("keypair", path, "press"), command("keypair", other, "press")
        with BrokerProcess("--auth", f"publickeys:{path}") as broker:
            self.assertTrue(self.joins(broker, type="private_key", private_key=private))
            self.assertFalse(self.joins(broker, type="private_key", private_key=stranger))

    def test_keptPassword(self) -> None:
        """Both passwords are good while the old one is kept."""
        path = str(Path(self.mktemp()).absolute())
        command("passwd", path, "alice", input="old\n")
        command("passwd", path, "alice", "--keep", "1h", input="new\n")
        with BrokerProcess("--auth", f"passwords:{path}") as broker:
            for password, good in (("new", True), ("old", True), ("other", False)):
                self.assertEqual(self.joins(broker, type="basic", username="alice", password=password), good, password)

    def test_provider(self) -> None:
        """Keys are discovered and followed, and a provider that hangs holds up nobody else."""
        provider = Provider()
        self.addCleanup(provider.stop)
        file = secretFile(self)
        known = command("token", file, "bob")
        with BrokerProcess("--auth", f"jwt:issuer={provider.url}", "--auth", f"tokens:{file}") as broker:
            provider.ids = [0]
            self.assertTrue(self.joins(broker, type="token", token=provider.token(0)))
            self.assertFalse(self.joins(broker, type="token", token=provider.token(1)))
            self.assertEqual(provider.asked, ["/.well-known/openid-configuration", "/keys"])
        provider.hangs.clear()
        provider.reached.clear()
        with BrokerProcess("--auth", f"jwt:issuer={provider.url}", "--auth", f"tokens:{file}") as broker:
            host, port = broker.address
            outcome: list[object] = []

            def wait() -> None:
                try:
                    connect(f"tcp://{host}:{port}", credentials={"type": "token", "token": provider.token(0)},
                            reconnect=None)  # fmt: skip
                except ClientError as error:
                    outcome.append(error)

            waiting = threading.Thread(target=wait)
            waiting.start()
            self.assertTrue(provider.reached.wait(300))
            self.assertTrue(self.joins(broker, type="api_key", api_key="x") is False)
            with connect(f"tcp://{host}:{port}", credentials={"type": "token", "token": known}) as client:
                client.publish("a", 1)
                client.flush()
            waiting.join(300)
            self.assertEqual([getattr(each, "status", each) for each in outcome], [503])


class Provider:
    """An identity provider on loopback. ``ids``: its keys; ``hangs``: unset to answer no more."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.asked: list[str] = []
        self.hangs, self.reached = threading.Event(), threading.Event()
        self.hangs.set()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                provider.reached.set()
                provider.hangs.wait(300)
                said: Any = {"issuer": provider.url, "jwks_uri": f"{provider.url}/keys"}
                if self.path == "/keys":
                    said = {"keys": [jwk(ecKey(id).public_key(), kid=str(id)) for id in provider.ids]}
                with contextlib.suppress(ConnectionError):
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(json.dumps(said).encode())

            def log_message(self, format: str, *words: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def token(self, id: int) -> str:
        """Return a token signed with one of the keys."""
        return token(ecKey(id), "ES256", {"kid": str(id)}, iss=self.url)

    def stop(self) -> None:
        """Answer what waits, and end."""
        self.hangs.set()
        self._server.shutdown()
        self._server.server_close()
