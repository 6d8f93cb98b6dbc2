"""Kick and ban, on a real broker."""

import json
import socket
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import Client, connect
from fleximq.client.errors import ClientError
from tests.broker_process import PATIENCE, BrokerProcess
from tests.cli.client_commands.commands import ran

SETTINGS = """
auth = ["apikeys:{keys}"]
allow-anonymous = true
[roles.everyone]
publish = true
subscribe = true
consume = true
[principals.anonymous]
read = true
admin = true
[principals.chief]
admin = true
"""


class OperatorTests(SynchronousTestCase):
    """An operator without credentials, a client with a key, and one whose address a proxy names."""

    def setUp(self) -> None:
        """Start the broker."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.key = ran("apikey", str(folder / "keys"), "press").out.decode().strip()
        self.chief = ran("apikey", str(folder / "keys"), "chief").out.decode().strip()
        (folder / "settings.toml").write_text(SETTINGS.format(keys=folder / "keys"))
        self.broker = BrokerProcess("--config", str(folder / "settings.toml"), "--listen", *_LISTEN)
        self.broker.__enter__()
        self.addCleanup(self.broker.stop)
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"
        self.operator = self.client()

    def client(self, **more: Any) -> Client:
        """Return a client."""
        client = connect(self.url, **more)
        self.addCleanup(client.close)
        return client

    def press(self) -> Client:
        """Return the client with the key."""
        return self.client(credentials={"type": "api_key", "api_key": self.key})

    def far(self, address: str) -> bytes:
        """Return the answer to a PING from this address."""
        with socket.create_connection(("127.0.0.1", self.broker.port(1)), PATIENCE) as stream:
            stream.sendall(f"PROXY TCP4 {address} 127.0.0.1 5 6\r\nPING:\n".encode())
            try:
                return stream.recv(100)
            except ConnectionResetError:
                return b""

    def test_principal(self) -> None:
        """A ban of a principal ends its connection, refuses it with 605, survives a reload, and can be ended."""
        press = self.press()
        begun = time.time() - 0.001  # the answer has whole milliseconds
        found = self.operator.ask("/broker/ban", {"principal": "press", "seconds": 50, "reason": "test"})
        self.assertEqual((found["principal"], found["reason"], found["by"], found["disconnected"]),
                         ("press", "test", f"fleximq-{self.operator.id}", 1))  # fmt: skip
        self.assertTrue(begun <= found["until"] / 1000 - 50 <= time.time(), "its end is a time since 1970")
        self.assertRaises(ClientError, press.ping, PATIENCE)
        self.operator.ask("/broker/reload")
        error = self.assertRaises(ClientError, self.press)
        self.assertIn("banned for another 50 s", str(error))
        self.assertEqual(getattr(error, "status", None), 605)
        self.assertEqual([row["principal"] for row in self.operator.ask("/broker/bans")["bans"]], ["press"])
        self.assertEqual(self.operator.ask("/broker/unban", {"principal": "press"}), {"removed": True})
        self.press().ping(PATIENCE)

    def test_address(self) -> None:
        """An address is refused when its connection is accepted, without an answer."""
        self.assertEqual(self.far("192.0.2.7"), b"PONG:\n")
        self.operator.ask("/broker/ban", {"address": "192.0.2.7"})
        self.assertEqual((self.far("192.0.2.7"), self.far("192.0.2.8")), (b"", b"PONG:\n"))
        self.assertIn("refused: banned", self.operator.ask("/broker/about")["counts"])

    def test_kick(self) -> None:
        """A kick ends connections; the client may connect again."""
        press = self.press()
        self.assertEqual(self.operator.ask("/broker/kick", {"principal": "press"}), {"disconnected": 1})
        self.assertRaises(ClientError, press.ping, PATIENCE)
        again = self.press()
        self.assertEqual(self.operator.ask("/broker/kick", {"client_id": again.id}), {"disconnected": 1})

    def test_anonymous(self) -> None:
        """An operator with a key kicks and bans all clients without credentials; one without is not among them."""
        chief = self.client(credentials={"type": "api_key", "api_key": self.chief})
        guest = self.client()
        asked: dict[str, Any] = {"principal": "anonymous"}
        for ask in (partial(self.operator.ask, "/broker/ban"), lambda asked: self.web("/api/bans/add", **asked)):
            self.assertRaises((ClientError, HTTPError), ask, asked)
        self.assertEqual(chief.ask("/broker/kick", asked), {"disconnected": 2})
        self.assertRaises(ClientError, guest.ping, PATIENCE)
        self.client()
        self.assertEqual(chief.ask("/broker/ban", asked)["disconnected"], 1)
        self.assertEqual(getattr(self.assertRaises(ClientError, self.client), "status", None), 605)
        chief.ask("/broker/unban", asked)
        self.client().ping(PATIENCE)

    def test_rights(self) -> None:
        """A client without admin may do none of it, nor list the bans; wrong arguments are refused."""
        press = self.press()
        for act in ("kick", "ban", "unban", "bans"):
            error = self.assertRaises(ClientError, press.ask, f"/broker/{act}", {"principal": "x"})
            self.assertEqual(error.status, 403)
        for arguments in ({}, {"principal": "x", "address": "192.0.2.1"}, {"address": "x"}, {"principal": ""},
                          {"principal": "x", "seconds": 0}, {"principal": "x", "seconds": 1 << 40}):  # fmt: skip
            self.assertEqual(self.assertRaises(ClientError, self.operator.ask, "/broker/ban", arguments).status, 400)

    def test_web(self) -> None:
        """The same over HTTP."""
        self.assertEqual(self.web("/api/bans/add", principal="press", seconds=9)["by"], "anonymous")
        self.assertEqual([row["principal"] for row in self.web("/api/bans")["bans"]], ["press"])
        self.assertEqual(self.web("/api/bans/remove", principal="press"), {"removed": True})
        self.press()
        self.assertEqual(self.web("/api/clients/kick", principal="press"), {"disconnected": 1})

    def web(self, path: str, **arguments: object) -> Any:
        """Return the answer to a request."""
        body = json.dumps(arguments).encode() if arguments else None
        url = f"http://127.0.0.1:{self.broker.port()}{path}"
        asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def test_command(self) -> None:
        """The command adds, lists and removes."""
        options = ("--url", self.url)
        self.assertEqual(
            ran("ban", "add", "--principal", "press", "--seconds", "90", "--reason", "x", *options).code, 0
        )
        self.assertIn("press", ran("ban", "ls", *options).lines[0])
        self.assertEqual(json.loads(ran("ban", "ls", "--json", *options).out)["reason"], "x")
        self.assertEqual(ran("ban", "remove", "--principal", "press", *options).code, 0)
        self.assertEqual(ran("ban", "remove", "--principal", "press", *options).code, 1)
        self.assertEqual(ran("ban", "ls", *options).out, b"")


_LISTEN = ("tcp:0:interface=127.0.0.1", "--listen", "haproxy:tcp:0:interface=127.0.0.1")
