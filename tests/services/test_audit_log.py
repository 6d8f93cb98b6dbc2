"""The lines of the audit log: which events, in which form, whatever happens to the file."""

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blipmq.blocking import Nacked
from fleximq.client.blipmq.blocking import connect as connectBlip
from fleximq.client.blocking import connect
from fleximq.client.errors import ClientError
from fleximq.services import audit_log
from fleximq.services.audit_log import MAX_WAITING, REFUSALS_PER_SECOND, AuditLog
from tests.broker_process import PATIENCE, BrokerProcess
from tests.cli.client_commands.commands import ran
from tests.web_socket_client import Refused, WebSocketClient

SETTINGS = """
auth = ["apikeys:{keys}"]
allow-anonymous = true
audit-log = "{log}"
[roles.everyone]
publish = ["open.#"]
[principals.anonymous]
read = true
admin = true
"""


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=_refused) for line in path.read_text().splitlines()]


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


class _Reactor(MemoryReactorClock):
    """Calls from threads happen at once."""

    def callFromThread(self, call: Any, *arguments: Any, **named: Any) -> None:
        """Call."""
        call(*arguments, **named)


_JSON = {"Content-Type": "application/json"}


class FileTests(SynchronousTestCase):
    """The file, without a broker."""

    def setUp(self) -> None:
        """Open the log."""
        self.path = Path(self.mktemp()).absolute()
        self.reactor = _Reactor()
        self.faults: list[str] = []
        self.log = AuditLog(self.reactor, str(self.path), self.fail, lambda: 1.5)
        self.patch(self.log, "_report", self.faults.append)

    def end(self) -> list[dict[str, Any]]:
        """Write all and return it."""
        for call, arguments, named in self.reactor.triggers["after"]["shutdown"]:
            call(*arguments, **named)
        return _lines(self.path)

    def test_line(self) -> None:
        """A line has time, event and fields; texts are cut, and cannot forge a line."""
        self.log.startService()
        self.log.record("login", principal="a\n\u2028{", client_id=5, reason="x" * 1000)
        (line,) = self.end()
        self.assertEqual(
            line,
            {"time": "1970-01-01T00:00:01.500+00:00", "event": "login", "principal": "a\n\u2028{", "client_id": 5,
             "reason": "x" * 500},
        )  # fmt: skip
        self.assertTrue(self.path.read_text().removesuffix("\n").isprintable())
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)

    def test_arguments(self) -> None:
        """Only known arguments are written."""
        self.log.startService()
        self.log.record("admin", {"principal": "x", "payload": "secret", "limit": 3}, path="/p")
        self.assertEqual(self.end()[0]["arguments"], {"principal": "x", "limit": 3})

    def test_values(self) -> None:
        """Arguments of any type and size become one short line of strict JSON."""
        nested: Any = 1
        for _ in range(3000):
            nested = [nested]
        values = [nested, ["x" * 500] * 100, {"a": 1}, b"x", 1e999, -1e999, float("nan"), 10**5000, 1.5, 5, True, None]
        self.log.startService()
        for value in values:
            self.log.record("admin", {"limit": value})
        self.log.record("reload", changed=["a", "y" * 600], error=(["z"],))
        *found, last = self.end()
        self.assertEqual(
            [line["arguments"]["limit"] for line in found],
            ["list", "list", "dict", "bytes", "inf", "-inf", "nan", "int", 1.5, 5, True, None],
        )
        self.assertEqual([last["changed"], last["error"]], [["a", "y" * 500], ["list"]])

    def test_rate(self) -> None:
        """Refusals beyond the rate are counted in the next line; logins are not limited."""
        self.log.startService()
        for _ in range(REFUSALS_PER_SECOND + 5):
            self.log.record("refused")
        self.log.record("login")
        self.reactor.advance(1)
        self.log.record("refused")
        found = self.end()
        self.assertEqual(len(found), REFUSALS_PER_SECOND + 2)
        self.assertEqual([line.get("left_out") for line in found[-2:]], [None, 5])

    def test_bound(self) -> None:
        """While the disk is slow, so many lines wait; more are counted."""
        self.patch(audit_log, "MAX_WAITING", 2)
        for _ in range(5):
            self.log.record("login")
        self.log.startService()
        for _ in range(1000):
            if self.log._queue.empty():
                break
            time.sleep(0.01)
        self.log.record("login")
        self.assertEqual([line.get("left_out") for line in self.end()], [None, None, 3])
        self.assertGreater(MAX_WAITING, 2)

    def test_full(self) -> None:
        """A full disk is reported once; the lines lost are counted in the first after it, which begins a line."""
        write, sizes = os.write, iter([5, None, None, 1 << 20, 1 << 20])

        def some(number: int, data: bytes) -> int:
            size = next(sizes)
            if size is None:
                raise OSError(28, "No space left on device")
            return write(number, data[:size])

        self.patch(os, "write", some)
        self.log.startService()
        for each in range(5):
            self.log.record("login", client_id=each)
        for call, arguments, named in self.reactor.triggers["after"]["shutdown"]:
            call(*arguments, **named)
        first, *others = self.path.read_text().splitlines()
        self.assertEqual(first, '{"tim')
        self.assertEqual([(each["client_id"], each.get("left_out")) for each in map(json.loads, others)],
                         [(3, 3), (4, None)])  # fmt: skip
        self.assertEqual(self.faults, ["no space left on device"])

    def test_rotated(self) -> None:
        """Lines go to the new file after the system has renamed the old one."""
        self.log.startService()
        self.log.record("login", client_id=1)
        while not (self.path.exists() and self.path.read_text()):
            time.sleep(0.01)
        old = self.path.with_suffix(".1")
        self.path.rename(old)
        self.log.reopen()
        self.log.record("login", client_id=2)
        self.assertEqual([line["client_id"] for line in (*_lines(old), *self.end())], [1, 2])

    def test_missingFolder(self) -> None:
        """The broker does not start without its audit log."""
        log = AuditLog(self.reactor, "/nowhere/audit", self._raise)
        error = self.assertRaises(SystemExit, log.startService)
        self.assertEqual(str(error), "the audit log /nowhere/audit cannot be opened: no such file or directory")

    def _raise(self, sentence: str) -> Any:
        raise SystemExit(sentence)


class BrokerTests(SynchronousTestCase):
    """A real broker."""

    def setUp(self) -> None:
        """Start it."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.path = folder / "audit"
        self.key = ran("apikey", str(folder / "keys"), "press").out.decode().strip()
        (folder / "settings.toml").write_text(SETTINGS.format(keys=folder / "keys", log=self.path))
        self.broker = BrokerProcess("--config", str(folder / "settings.toml"))
        self.broker.__enter__()
        self.addCleanup(self.broker.stop)
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"

    def press(self, key: str) -> Any:
        """Return the client with this key."""
        client = connect(self.url, credentials={"type": "api_key", "api_key": key})
        self.addCleanup(client.close)
        return client

    def wait(self, number: int) -> list[dict[str, Any]]:
        """Return the lines once there are so many, without their times and ports."""
        end = time.monotonic() + PATIENCE
        while len(found := _lines(self.path)) < number and time.monotonic() < end:
            time.sleep(0.02)
        for line in found:
            self.assertRegex(line.pop("time"), r"^20\d\d-.*\+00:00$")
            if "address" in line:
                self.assertRegex(line.pop("address"), r"^127\.0\.0\.1:\d+$")
        return found

    def test_events(self) -> None:
        """Logins, refusals of credentials and of rights, acts by REQ, HTTP and signal; no secret."""
        client = self.press(self.key)
        self.assertRaises(ClientError, client.ask, "/broker/about")
        self.assertRaises(ClientError, self.press, "fmqk_wrong")
        with socket.create_connection(self.broker.address, PATIENCE) as stream:
            stream.sendall(b"PRODUCE:hidden:1:secret-payload\n")
            stream.recv(100)
        operator = connect(self.url)
        self.addCleanup(operator.close)
        operator.ask("/broker/ban", {"principal": "zoe", "reason": "test", "other": "y"})
        self.assertRaises(ClientError, operator.ask, "/broker/unban", {})
        self.web("/api/bans/remove", b'{"principal": "zoe"}', None)
        self.web("/api/bans/remove", b'{"principal": "zoe"}', "fmqk_wrong")
        self.web("/api/bans/remove", b'{"principal": "zoe"}', self.key)
        os.kill(self.broker.pid, signal.SIGHUP)
        found = self.wait(12)
        press = {"principal": "press", "dialect": "fleximq", "client_id": client.id}
        owner = {"principal": None, "dialect": "fleximq", "client_id": operator.id}
        mini = {"principal": None, "dialect": "minimq", "client_id": operator.id - 1}
        web = {"principal": "anonymous", "dialect": "http"}
        self.assertEqual(
            found,
            [
                {"event": "login", **press},
                {"event": "refused", **press, "reason": "reading '/broker/about' is not permitted"},
                {"event": "refused", "principal": None, "dialect": "fleximq", "client_id": None,
                 "reason": "these credentials are not valid here"},
                {"event": "login", **mini},
                {"event": "refused", **mini, "reason": "publishing to 'hidden' is not permitted"},
                {"event": "login", **owner},
                {"event": "admin", **owner, "path": "/broker/ban",
                 "arguments": {"principal": "zoe", "reason": "test"}},
                {"event": "admin", **owner, "path": "/broker/unban",
                 "error": "name either a 'principal' or an 'address'"},
                {"event": "admin", **web, "path": "/api/bans/remove", "arguments": {"principal": "zoe"}},
                {"event": "refused", "dialect": "http", "reason": "401 these credentials are not valid here"},
                {"event": "refused", "principal": "press", "dialect": "http", "path": "/api/bans/remove",
                 "reason": "403 not permitted"},
                {"event": "reload", "changed": []},
            ],
        )  # fmt: skip
        whole = self.path.read_text()
        self.assertNotIn("secret-payload", whole)
        self.assertNotIn("fmqk_", whole)

    def test_dialects(self) -> None:
        """The other dialects' logins and refusals."""
        with connectBlip(self.url, self.key) as blip:
            blip.publish("hidden", b"x")
            self.assertRaises(Nacked, blip.flush)
        with WebSocketClient(self.broker.address) as page:
            page.receiveText()
            page.sendText("SUBSCRIBE:hidden")
            page.receiveText()
        with self.assertRaises(Refused):
            WebSocketClient(self.broker.address, "/?api_key=fmqk_wrong")
        found = self.wait(5)
        self.assertEqual(
            [(line["event"], line["dialect"], line.get("principal"), line.get("reason")) for line in found],
            [
                ("login", "blipmq", "press", None),
                ("refused", "blipmq", "press", "publishing to 'hidden' is not permitted"),
                ("login", "identity", None, None),
                ("refused", "identity", None, "subscribing to 'hidden' is not permitted"),
                ("refused", "http", None, "401 these credentials are not valid here"),
            ],
        )

    def test_fullDisk(self) -> None:
        """A broker whose audit log cannot be written serves its clients, and says so once."""
        with BrokerProcess("--audit-log", "/dev/full") as broker:
            for _ in range(3):
                with socket.create_connection(broker.address, PATIENCE) as stream:
                    stream.sendall(b"PING:\n")
                    self.assertEqual(stream.recv(100), b"PONG:\n")
            broker.waitForOutput("minimq-1002 left")
            # A thread writes the audit log, perhaps later.
            broker.waitForOutput("The audit log is not written: no space left on device")
        self.assertEqual(broker.output.count("The audit log is not written: no space left on device"), 1)

    def web(self, path: str, body: bytes, key: str | None) -> None:
        """Post something; whatever the answer."""
        if key is not None:
            path += f"?api_key={key}"
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{self.broker.port()}{path}", body, _JSON)
            urllib.request.urlopen(request, timeout=PATIENCE).close()
        except urllib.error.HTTPError as error:
            error.close()
