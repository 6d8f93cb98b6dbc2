"""The head of a request, and what it asks for."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.format.request_head import BODY_BYTES, HttpError, RequestHead, webSocketDialect

BOTH = frozenset({"fleximq", "identity"})


def head(*fields: str, line: str = "GET / HTTP/1.1") -> RequestHead:
    """Return the head of these lines."""
    return RequestHead.parse("\r\n".join((line, *fields)).encode("latin-1"))


class ParseTests(SynchronousTestCase):
    """Bytes and the values they make."""

    def code(self, *fields: str, line: str = "GET / HTTP/1.1") -> int:
        """Return the code with which a head is refused."""
        error: HttpError = self.assertRaises(HttpError, lambda: head(*fields, line=line).checkBody())
        return error.code

    def test_parts(self) -> None:
        """Method, target and fields are taken apart; names lose their case, values the space around them."""
        got = head("Host: a:1", "ACCEPT:  x\t ", "Empty:", "Accept: y", line="PROPFIND /p?q=1?2 HTTP/1.0")
        self.assertEqual((got.method, got.target, got.path), ("PROPFIND", "/p?q=1?2", "/p"))
        self.assertEqual(got.fields, {"host": ("a:1",), "accept": ("x", "y"), "empty": ("",)})

    def test_requestLine(self) -> None:
        """A line that is no request line is 400."""
        for line in (
            "GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET /a b HTTP/1.1", "",
            "G\x01T / HTTP/1.1", "GET /\xe4 HTTP/1.1", "GET / http/1.1", "GET / HTTP/1.10",
        ):  # fmt: skip
            self.assertEqual(self.code(line=line), 400, line)

    def test_version(self) -> None:
        """Other versions of HTTP are 505."""
        self.assertEqual([self.code(line=f"GET / HTTP/{version}") for version in ("2.0", "0.9", "3.1")], [505] * 3)

    def test_fields(self) -> None:
        """A line that is no field is 400: folded, without colon or name, with space or control characters in it."""
        for line in (
            "no colon",
            ": x",
            "a b: x",
            " folded: x",
            "a\x00: x",
            "a: \x00",
            "a: x\ny: z",
            "a: x\ry",
            "a : x",
        ):
            self.assertEqual(self.code(line), 400, line)

    def test_body(self) -> None:
        """A body for the web site has to be announced, once, and must not be long."""
        self.assertEqual(head(f"Content-Length: {BODY_BYTES}").only("content-length"), str(BODY_BYTES))
        head("Content-Length: 0")
        self.assertEqual(self.code(f"Content-Length: {BODY_BYTES + 1}"), 413)
        self.assertEqual(self.code("Content-Length: " + "9" * 5000), 413)
        self.assertEqual(self.code("Transfer-Encoding: chunked"), 413)
        for bad in ("-1", "1.5", "x", "1, 1", "+1"):
            self.assertEqual(self.code(f"Content-Length: {bad}"), 400, bad)
        self.assertEqual(self.code("Content-Length: 1", "Content-Length: 1"), 400)

    def test_only(self) -> None:
        """A field that may stand once is read, missed, or refused."""
        got = head("Host: a", "Origin: x", "Origin: x")
        self.assertEqual((got.only("host"), got.only("cookie")), ("a", None))
        self.assertEqual(self.assertRaises(HttpError, got.only, "origin").code, 400)

    def test_listed(self) -> None:
        """Lists are joined over fields and cut at commas."""
        self.assertEqual(head("X: a, b", "X:c,").listed("x"), ["a", "b", "c", ""])
        self.assertEqual(head().listed("x"), [])

    def test_upgrade(self) -> None:
        """Only a GET that names websocket, in any case, asks for one."""
        for field in ("Upgrade: websocket", "upgrade: WebSocket", "Upgrade: h2c, websocket"):
            self.assertTrue(head(field).isUpgrade, field)
        for field in ("Upgrade: h2c", "Upgrade: websockets", "X: websocket"):
            self.assertFalse(head(field).isUpgrade, field)
        self.assertFalse(head("Upgrade: websocket", line="POST / HTTP/1.1").isUpgrade)

    @given(st.binary())
    def test_anyBytes(self, raw: bytes) -> None:
        """Any bytes are a head or are refused with a code."""
        try:
            RequestHead.parse(raw)
        except HttpError as error:
            self.assertIn(error.code, (400, 413, 505))


class WebSocketDialectTests(SynchronousTestCase):
    """Which dialect a WebSocket is for."""

    def asked(self, path: str, *protocols: str, offered: frozenset[str] = BOTH) -> str | int:
        """Return the dialect for a path and subprotocol fields, or the code of the refusal."""
        got = head(*(f"Sec-WebSocket-Protocol: {each}" for each in protocols), line=f"GET {path} HTTP/1.1")
        try:
            return webSocketDialect(got, offered)
        except HttpError as error:
            return error.code

    def test_byPath(self) -> None:
        """Two paths are FlexiMQ's, without their query; all others are Identity's."""
        for path in ("/ws", "/messaging", "/ws?token=1", "/messaging?"):
            self.assertEqual(self.asked(path), "fleximq", path)
        for path in ("/", "/ws/", "/WS", "/chat", "/?/ws", "*", "/wss"):
            self.assertEqual(self.asked(path), "identity", path)

    def test_bySubprotocol(self) -> None:
        """A subprotocol wins over the path; the first that is known counts."""
        self.assertEqual(self.asked("/", "fleximq"), "fleximq")
        self.assertEqual(self.asked("/ws", "identity"), "identity")
        self.assertEqual(self.asked("/ws", "x, identity, fleximq"), "identity")
        self.assertEqual(self.asked("/", "x", "fleximq"), "fleximq")

    def test_unknownSubprotocol(self) -> None:
        """One that nobody knows says nothing."""
        self.assertEqual([self.asked("/ws", "mqtt"), self.asked("/", "FlexiMQ")], ["fleximq", "identity"])

    def test_notOffered(self) -> None:
        """A listener for one dialect has no place for the other."""
        fleximq, identity = frozenset({"fleximq"}), frozenset({"identity"})
        self.assertEqual(self.asked("/ws", offered=fleximq), "fleximq")
        self.assertEqual(self.asked("/", offered=fleximq), 404)
        self.assertEqual(self.asked("/ws", offered=identity), 404)
        self.assertEqual(self.asked("/ws", "identity", offered=fleximq), 403)
        self.assertEqual(self.asked("/", "fleximq", offered=identity), 403)
        self.assertEqual(self.asked("/ws", "identity, fleximq", offered=fleximq), "fleximq")
