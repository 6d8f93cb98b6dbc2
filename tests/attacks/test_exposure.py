"""Attacks that are no matter of one input: what strangers may hold, what is done in their name, what is shown."""

import hashlib
import os
import pty
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import PATIENCE, BrokerProcess
from tests.conversations.clients import Ended, FlexiClient, MiniClient, Stream
from tests.web_socket_client import Refused, WebSocketClient

_LOOPBACK = "tcp:0:interface=127.0.0.1"
_POST = "POST /api/queues/purge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
#: Connections that may wait, and seconds within which they must be let in.
WAITING, DEADLINE = 40, 1.0
#: The only token, and its owner.
TOKEN = "fmqt_" + "a" * 43


class DoorCase(SynchronousTestCase):
    """Brokers of one test."""

    def broker(self, *options: str) -> BrokerProcess:
        """Start a broker, and end it with the test."""
        started = BrokerProcess(*options, fresh=True).__enter__()
        self.addCleanup(started.stop)
        return started

    def guarded(self, *options: str) -> BrokerProcess:
        """Start one with a token."""
        number, name = tempfile.mkstemp(prefix="attack-")
        self.addCleanup(os.unlink, name)
        os.write(number, f"anna:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n".encode())
        os.close(number)
        return self.broker("--auth", f"tokens:{name}", *options)

    def opened(self, address: tuple[str, int] | str) -> Stream:
        """Connect."""
        stream = Stream(address)
        self.addCleanup(stream.close)
        return stream


class TricklingTests(DoorCase):
    """Requests whose bodies never end."""

    def test_tricklingBodiesDoNotKeepPlacesBeyondDeadline(self) -> None:
        """They don't occupy the places of those that wait for longer than the deadline."""
        broker = self.broker("--max-waiting", str(WAITING), "--handshake-timeout", str(DEADLINE))
        streams = [self.opened(broker.address) for _ in range(WAITING)]
        for stream in streams:
            stream.say(f"{_POST}Content-Length: 100\r\n\r\n".encode())
        until = time.monotonic() + PATIENCE
        while not self.joins(broker):
            self.assertLess(time.monotonic(), until)
            for stream in streams:
                stream.say(b" ")
            time.sleep(DEADLINE / 5)

    def joins(self, broker: BrokerProcess) -> bool:
        """Return whether a client is let in now."""
        with FlexiClient(Stream(broker.address)) as client:
            try:
                client.join()
            except Ended:
                return False
        return True

    def test_withoutCredentialsAnswerIsSentBeforeBodyIs(self) -> None:
        """Without credentials the answer is sent before a body is."""
        stream = self.opened(self.guarded().address)
        stream.say(f"{_POST}Content-Length: 100\r\n\r\n".encode())
        stream.socket.settimeout(PATIENCE)
        self.assertTrue(stream.read().startswith(b"HTTP/1.1 401 "))


class PageTests(DoorCase):
    """What pages of others may do."""

    def test_whereAnythingAuthenticatesClientsPageThatIsNotListenersOwnIs(self) -> None:
        """Where anything authenticates clients, a page that is not the listener's own is refused."""
        broker = self.guarded("--allow-anonymous")
        for origin in ("null", "file://", "http://localhost:3000", "http://127.0.0.1:1"):
            with self.assertRaises(Refused, msg=origin):
                WebSocketClient(broker.address, headers=(f"Origin: {origin}",)).close()

    def test_bodyOfRequestIsNeverTakenForLinesOfMiniMQOrForFrames(self) -> None:
        """The body of a request is never taken for lines of MiniMQ, or for frames."""
        names = ("fleximq", "minimq", "blipmq")
        broker = self.broker(*(word for name in names for word in ("--listen", f"{name}+{_LOOPBACK}")))
        body = "PRODUCE:i:::evil:::x:::-:::-\n"
        for number, name in enumerate(names):
            stream = self.opened(("127.0.0.1", broker.port(number)))
            stream.say(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            stream.socket.settimeout(PATIENCE)
            self.assertNotIn(b"i\n", stream.readAll(), name)
        with MiniClient(("127.0.0.1", broker.port(1))) as client:
            self.assertEqual(client.consume("evil"), "NO_MSG")


class RightsTests(DoorCase):
    """What a client may do that nobody has granted."""

    def test_withoutTablesOfPermissionsNobodyIsAdministrator(self) -> None:
        """Without tables of permissions nobody is an administrator."""
        with FlexiClient(Stream(self.guarded().address)) as client:
            client.join({"auth": {"type": "token", "token": TOKEN}})
            client.request(1, "/broker/reload", "r")
            self.assertEqual(client.hear().status, 403)


class OwnLimitsTests(DoorCase):
    """What one principal may use up, by the tables of a settings file."""

    def test_shares(self) -> None:
        """Its connections and topics are counted, and a denial holds; a reload changes all of them."""
        number, name = tempfile.mkstemp(prefix="attack-", suffix=".toml")
        os.close(number)
        self.addCleanup(os.unlink, name)
        tables = """[roles.everyone]
publish = true
subscribe = true
deny.publish = ["payroll.#"]
admin = true
[principals.anna.limits]
max-clients = 1
"""
        Path(name).write_text(f"{tables}max-topics = 3\n")
        broker = self.guarded("--config", name)
        credentials = {"auth": {"type": "token", "token": TOKEN}}
        with FlexiClient(Stream(broker.address)) as client, FlexiClient(Stream(broker.address)) as second:
            client.join(credentials)
            second.joinWith(credentials)
            self.assertEqual(second.hear().status, 503)
            client.subscribe("a", "b", "c")
            for topic in ("a", "payroll.x", "d"):
                client.publish(topic)
            answers = [heard.status for heard in client.barrier() if heard.status not in (None, 200)]
            self.assertEqual(answers, [403, 503])
            Path(name).write_text(f"{tables}max-topics = 4\n")
            self.assertEqual(client.ask("/broker/reload"), {"changed": ["principals"], "restart": []})
            client.publish("d")
            self.assertEqual([heard.status for heard in client.barrier()], [])


class TopicTests(DoorCase):
    """Topics without end."""

    def test_durableTopicsAreCounted(self) -> None:
        """Durable topics are counted."""
        broker = self.broker("--journal", "j", "--fsync", "never", "--durable", "d.#", "--max-durable-topics", "500")
        with FlexiClient(Stream(broker.address)) as client:
            client.join()
            for number in range(2000):
                client.publish(f"d.{number}", "x")
            refused = [heard for heard in client.barrier() if heard.status]
            self.assertGreaterEqual(len(refused), 1500)


class ShownTests(DoorCase):
    """What reaches the terminals and logs of others."""

    def test_controlCharactersOfPayloadAreEscapedOnTerminal(self) -> None:
        """Control characters of a payload are escaped on a terminal."""
        broker = self.broker()
        ours, theirs = pty.openpty()
        host, port = broker.address
        command = [sys.executable, "-m", "fleximq.cli", "sub", "--url", f"tcp://{host}:{port}", "--count", "1", "t"]
        printing = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=broker.variables)
        os.close(theirs)
        with FlexiClient(Stream(broker.address)) as client:
            client.join()
            until = time.monotonic() + PATIENCE
            while printing.poll() is None and time.monotonic() < until:
                client.publish("t", "be\x1b]0;x\x07ware")
                time.sleep(0.1)
        printing.kill()
        printing.wait()
        shown = os.read(ours, 1 << 16)
        os.close(ours)
        self.assertIn(b"ware", shown)
        self.assertNotIn(b"\x1b", shown)

    def test_pathOfUNIXPeerCannotBeginLineOfLog(self) -> None:
        """The path of a UNIX peer cannot begin a line of the log."""
        broker = self.broker("--listen", _LOOPBACK, "--listen", "unix:b.sock")
        forged = socket.socket(socket.AF_UNIX)
        self.addCleanup(forged.close)
        folder = Path(tempfile.mkdtemp(prefix="a-"))
        path = folder / "x\nforged line"
        self.addCleanup(folder.rmdir)
        self.addCleanup(path.unlink)
        forged.bind(str(path))
        forged.connect(str(broker.folder / "b.sock"))
        forged.sendall(b"\xde\xad")
        broker.waitForOutput("no dialect begins")
        self.assertNotIn("\nforged", broker.output)
