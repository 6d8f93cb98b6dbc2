"""What nobody should say: each ends in the documented answer or a closed connection, and in a count.

The answers to single wrong messages are shown by the tests of each dialect; here it is what is counted, and
connections that never become one of a dialect's.
"""

import re
import struct
import threading

import msgpack

from tests.conversations.case import Place, SocketCase, onOwnListeners
from tests.conversations.clients import BlipClient, Ended, FlexiClient, IdentityClient, WebSocketStream
from tests.web_socket_client import BINARY, CLOSE, CONTINUATION, TEXT, Refused, WebSocketClient
from tests.wire.flexi_frames import frame

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


class CountedCase(SocketCase):
    """A test of what is counted."""

    def setUp(self) -> None:
        """Begin to count."""
        super().setUp()
        self.before = self.counts()

    def assertCounted(self, pattern: str, number: int = 1) -> None:
        """Wait until so many more events whose names match have been counted."""

        def counted() -> bool:
            now = self.counts()
            return sum(now[name] - self.before.get(name, 0) for name in now if re.match(pattern, name)) >= number

        self.eventually(counted, f"{number} more of {pattern}")

    def ended(self, dialect: str, data: bytes) -> bytes:
        """Return all that comes when this is said and nothing else, until the broker closes."""
        stream = self.stream(dialect)
        threading.Thread(target=stream.say, args=(data,), daemon=True).start()
        return stream.readAll()


class NoDialectTests(CountedCase):
    """On a port that all dialects share."""

    def test_nonsense(self) -> None:
        """Bytes that begin no dialect, a TLS hello among them, are not answered."""
        for data in (
            b"\xde\xad\xbe\xef",
            b"\x16\x03\x01\x02\x00\x01",
            b"\x02",
            b"hello\n",
            b"\r\n",
            b"G!",
            b"PRODUCE!",
        ):
            self.assertEqual(self.ended("fleximq", data), b"", data)
        self.assertCounted("refused: no dialect begins", 7)

    def test_endsEarly(self) -> None:
        """So is a word that ends before it is known."""
        stream = self.stream("fleximq")
        stream.say(b"PING")
        stream.endInput()
        self.assertEqual(stream.readAll(), b"")
        self.assertCounted("refused: closed before its dialect was known")


class FlexiTests(CountedCase):
    """FlexiMQ."""

    def test_turnedAway(self) -> None:
        """What comes before a JOIN, or is none."""
        for data, status in (
            (frame("PING", 0, {"keepalive": {"timestamp": 1}}), 401),
            (frame("JOIN", 7), 400),
            (frame("JOIN", 0, {"topic": "x"}), 400),
            (frame("JOIN", 0, {"auth": {"type": "magic"}}), 604),
            (frame("JOIN", 0, b"\xc1"), 400),
            (frame("JOIN", version=1)[:22] + b"\xff\xff\xff\xff", 413),
        ):
            answer = self.ended("fleximq", data)
            self.assertEqual(answer[2:6], bytes(4))
            self.assertEqual(msgpack.unpackb(answer[26 : 26 + int.from_bytes(answer[22:26], "big")])["status"], status)
            self.assertCounted(f"error: {status}")
            self.assertCounted(f"not let in: error {status}")

    def test_refused(self) -> None:
        """Every error after it."""
        client = self.flexi()
        client.publish("").tell("SUB", {"topic": ""}).send(77).send("JOIN", client_id=0).request(9, "", "R").barrier()
        for status in (400, 603, 501, 409, 600):
            self.assertCounted(f"error: {status}$")

    def test_ended(self) -> None:
        """Errors that end the connection, as the reason of a client's leaving too."""
        for data, status in ((b"\x02" + bytes(33), 400), (struct.pack(">BBI16xI", 1, 5, 0, 1 << 20), 413)):
            client = self.flexi()
            client.say(data)
            [heard] = client.untilEnd()
            self.assertError(heard, client, status)
            self.assertCounted(f"left: error {status}")

    def test_silentErrors(self) -> None:
        """Errors that are not answered are counted all the same."""
        client = self.flexi()
        self.assertEqual(client.tell("NOTIF", {"routing": [], "status": 500}).barrier(), [])
        self.assertCounted("error: 602")


class BlipTests(CountedCase):
    """BlipMQ."""

    def test_refused(self) -> None:
        """NACKs."""
        client = self.opened(BlipClient(self.place.address("blipmq")))
        client.ask(BlipClient.PING, 1)
        self.assertCounted("error: 401")
        client.login().ask(BlipClient.POLL, 2, bytes(8))
        client.ask(BlipClient.POLL, 3, bytes(7) + b"\xff")
        self.assertCounted("error: 400")
        self.assertCounted("error: 404")

    def test_framing(self) -> None:
        """Frames that are none."""
        client = self.blip()
        client.say(bytes(4))
        self.assertRaises(Ended, client.hear)
        self.assertCounted("left: error")

    def test_framingFirst(self) -> None:
        """The same as the first word."""
        self.assertEqual(self.ended("blipmq", bytes(4)), b"")
        self.assertCounted("not let in: error")


class MiniTests(CountedCase):
    """MiniMQ."""

    def test_refused(self) -> None:
        """ERROR lines."""
        client = self.mini()
        self.assertTrue(client.ask("FOO:bar").startswith("ERROR:400:"))
        self.assertTrue(client.produce("$sys/x", "i", "x").startswith("ERROR:403:"))
        self.assertCounted("error: 400")
        self.assertCounted("error: 403")

    def test_longLine(self) -> None:
        """A line that is too long: one ERROR and the end."""
        answer = self.ended("minimq", b"PRODUCE:" + bytes(16 << 20))
        self.assertTrue(answer.startswith(b"ERROR:400:"), answer)
        self.assertEqual(answer.count(b"\n"), 1)
        self.assertCounted("error: 413")


class HttpTests(CountedCase):
    """HTTP that does not become a WebSocket, and WebSockets that break their rules."""

    def test_heads(self) -> None:
        """Heads that are malformed, too long, or ask for what there is not."""
        for data, code in (
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
            (b"GET / HTTP/2.0\r\n\r\n", 505),
            (b"GET / HTTP/1.1\r\nx: " + b"x" * 20000, 431),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", 413),
            (UPGRADE + b"Origin: https://example.com\r\n\r\n", 403),
        ):
            answer = self.ended("identity", data)
            self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % code), (data[:60], answer[:100]))
            self.assertCounted(f"refused: HTTP {code}")

    def test_handshakes(self) -> None:
        """Upgrades that Autobahn refuses."""
        for data in (UPGRADE.replace(b"13", b"12"), UPGRADE.replace(b"Sec-WebSocket-Key", b"X")):
            answer = self.ended("fleximq", data + b"\r\n")
            self.assertRegex(answer, rb"^HTTP/1\.1 4\d\d ")
        self.assertCounted("not let in: no WebSocket", 2)

    def test_forwarded(self) -> None:
        """What came through a proxy counts as remote: it is refused, and the log names the option."""
        address = self.place.address("identity")
        for header in ("X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "Via: 1.1 x"):
            refused = self.assertRaises(Refused, WebSocketClient, address, "/", 10.0, (header,))
            self.assertIn(" 403 ", str(refused))
        self.assertCounted("refused: HTTP 403", 3)
        self.place.broker.waitForOutput("Refusing HTTP from .*--allow-anonymous")

    def closed(self, webSocket: WebSocketClient) -> int:
        """Return the code of the close frame that comes next, and answer it."""
        kind, payload = webSocket.receiveFrame()
        self.assertEqual(kind, CLOSE, payload)
        webSocket.sendFrame(CLOSE, payload)
        return int.from_bytes(payload[:2], "big")

    def test_frames(self) -> None:
        """Broken frames: 1002, and text that is none: 1007."""
        for said, code in (((CONTINUATION, b"x"), 1002), ((3, b"x"), 1002), ((TEXT, b"\xff"), 1007)):
            client = self.identity()
            client.webSocket.sendFrame(*said)
            self.assertEqual(self.closed(client.webSocket), code)
            self.assertCounted(f"left: WebSocket error {code}")

    def test_textForFlexi(self) -> None:
        """FlexiMQ takes binary messages only: 1003."""
        client = self.flexiWs()
        carrier = client.carrier
        assert isinstance(carrier, WebSocketStream)
        carrier.webSocket.sendText("JOIN")
        self.assertEqual((client.untilEnd(), carrier.code), ([], 1003))
        self.assertCounted("left: WebSocket error 1003")

    def test_binaryIgnored(self) -> None:
        """Identity ignores a binary frame that is no text."""
        client = self.identity()
        client.webSocket.sendFrame(BINARY, b"\xff")
        self.assertEqual(client.barrier(), [])

    def test_identityErrors(self) -> None:
        """ERROR texts are counted."""
        client = self.identity()
        self.assertTrue(client.ask("SUBSCRIBE:a b").startswith("ERROR:400:"))
        self.assertTrue(client.ask("PUBLISH:nowhere:x").startswith("ERROR:401:"))
        self.assertCounted("error: 400")
        self.assertCounted("error: 401")


class OwnListenerTests(SocketCase):
    """A listener of one dialect answers everything in that dialect."""

    def test_anyWord(self) -> None:
        """On MiniMQ's own listener any first line is MiniMQ."""
        client = self.mini()
        self.assertTrue(client.ask("hello").startswith("ERROR:400:"))
        self.assertEqual(client.barrier(), [])

    def test_otherDialects(self) -> None:
        """Nobody speaks a dialect where it is not served."""
        for dialect in ("fleximq", "blipmq"):
            stream = self.stream(dialect)
            stream.say(b"PING:\n" * 5)
            self.assertNotIn(b"PONG", stream.readAll())

    def test_webSockets(self) -> None:
        """Nor over WebSocket."""
        for dialect, path, headers in (
            ("fleximq", "/", ()),
            ("identity", "/ws", ()),
            ("fleximq", "/ws", ("Sec-WebSocket-Protocol: identity",)),
        ):
            self.assertRaises(Refused, WebSocketClient, self.place.address(dialect), path, 10.0, headers)

    def test_names(self) -> None:
        """The log says what is served where."""
        served = re.findall(r"Listening on \S+ \((.*)\)", self.place.broker.output)
        self.assertEqual(served, ["fleximq", "blipmq", "minimq", "identity"])


class AnonymousTests(SocketCase):
    """Where everybody may come, as far as this machine can tell."""

    place = Place("--allow-anonymous")

    def test_forwarded(self) -> None:
        """Peers behind a proxy are served."""
        headers = ("X-Forwarded-For: 192.0.2.1",)
        address = self.place.address("identity")
        self.assertIn("user-", self.opened(IdentityClient(address, "/", headers)).name)
        carrier = WebSocketStream(address, "/ws", headers)
        self.assertGreaterEqual(self.opened(FlexiClient(carrier)).join().id, 1000)


_own = onOwnListeners(FlexiTests, BlipTests, MiniTests, HttpTests, OwnListenerTests)
globals().update(_own)
del OwnListenerTests
