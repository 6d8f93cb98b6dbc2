"""Attacks on the console's sessions: foreign pages, stolen cookies, users without rights, odd paths, guessing."""

import json
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.case import AttackCase
from tests.broker_process import PATIENCE, BrokerProcess
from tests.certificates import makeCertificate
from tests.conversations.clients import FlexiClient, Stream
from tests.nightly import nightly
from tests.security.secrets_on_disk import CHEAP, secretFile
from tests.web_socket_client import BINARY, Refused, WebSocketClient
from tests.wire.flexi_frames import frame

#: A topic that only an insider may know.
SECRET = "secret-of-anna"
_SETTINGS = """
[principals.anna]
publish = ["#"]
subscribe = ["#"]
consume = ["#"]
read = true
admin = true

[principals.reader]
read = true

[principals.nobody]
publish = ["open"]
"""


class Answer(NamedTuple):
    """An answer."""

    code: int
    body: str
    fields: dict[str, str]


class ConsoleCase(SynchronousTestCase):
    """One broker with three users, whose passwords are their names."""

    def setUp(self) -> None:
        """Start it."""
        lines = [f"{name}:{CHEAP.hash(name)}\n" for name in ("anna", "reader", "nobody")]
        self.passwords, settings = Path(secretFile(self, "".join(lines))), secretFile(self, _SETTINGS)
        words = ("--config", settings, "--auth", f"passwords:{self.passwords}")
        self.broker = BrokerProcess(*words, *self.more()).__enter__()
        self.addCleanup(self.broker.stop)

    def more(self) -> Sequence[str]:
        """Return further options."""
        return ()

    def connection(self) -> HTTPConnection:
        """Return a new connection."""
        return HTTPConnection(*self.broker.address, timeout=PATIENCE)

    def ask(self, line: str, value: object = None, **fields: str) -> Answer:
        """Return the answer to a request; underscores in names of fields are dashes."""
        method, _, path = line.partition(" ")
        connection = self.connection()
        self.addCleanup(connection.close)
        given = {name.replace("_", "-"): text for name, text in fields.items()}
        body = None if value is None else json.dumps(value)
        if body is not None:
            given["Content-Type"] = "application/json"
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()})

    def signIn(self, name: str, **fields: str) -> dict[str, str]:
        """Return the fields that the page of a new session sends."""
        answer = self.ask("POST /console/session", {"name": name, "password": name}, **fields)
        self.assertEqual(answer.code, 200, answer.body)
        csrf = json.loads(answer.body)["csrf"]
        return {"Cookie": answer.fields["set-cookie"].partition(";")[0], "X_FlexiMQ_CSRF": csrf}

    def insider(self) -> FlexiClient:
        """Return a client that may do everything."""
        auth = {"type": "basic", "username": "anna", "password": "anna"}
        client = FlexiClient(Stream(self.broker.address)).join({"auth": auth})
        self.addCleanup(client.close)
        return client


class CookieTests(ConsoleCase):
    """What a cookie is good for."""

    def test_elsewhere(self) -> None:
        """A cookie opens no WebSocket and no path outside the web site."""
        fields = self.signIn("anna")
        self.assertEqual(self.ask("GET /api/about", **fields).code, 200)
        sent = tuple(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())
        self.assertRaises(Refused, WebSocketClient, self.broker.address, "/", headers=sent)
        with WebSocketClient(self.broker.address, "/ws", headers=sent) as socket:
            socket.sendFrame(BINARY, frame("JOIN"))
            self.assertIn(b"credentials are required here", socket.receiveFrame()[1])
        for line in ("POST /topics/open", "POST /queues/open", "POST /request/open/x", "GET /topics/%23"):
            self.assertIn(self.ask(line, None if line.startswith("GET") else {}, **fields).code, (401, 404), line)

    def test_stolen(self) -> None:
        """A cookie without its token changes nothing, and gets no ticket."""
        cookie = self.signIn("anna")["Cookie"]
        for path in ("/api/bans/add", "/api/queues/purge", "/console/ticket"):
            answer = self.ask(f"POST {path}", {"principal": "reader", "topic": "x"}, Cookie=cookie)
            self.assertEqual(answer.code, 403, path)
        self.assertEqual(self.ask("DELETE /console/session", Cookie=cookie).code, 403)
        self.assertEqual(self.ask("GET /api/bans", Cookie=cookie).body, '{"bans": [], "next": null}\n')

    def test_ticket(self) -> None:
        """A ticket opens one WebSocket, with the rights of its session; nothing afterwards."""
        ticket = json.loads(self.ask("POST /console/ticket", {}, **self.signIn("nobody")).body)["token"]
        WebSocketClient(self.broker.address, f"/ws?token={ticket}").close()
        self.assertRaises(Refused, WebSocketClient, self.broker.address, f"/ws?token={ticket}")
        self.assertEqual(self.ask("GET /api/about", Authorization=f"Bearer {ticket}").code, 401)
        other = json.loads(self.ask("POST /console/ticket", {}, **self.signIn("nobody")).body)["token"]
        self.assertEqual(self.ask("GET /api/about", Authorization=f"Bearer {other}").code, 403)

    def test_foreignPage(self) -> None:
        """A page of another origin cannot read, change, sign in, or open a WebSocket with a visitor's cookie."""
        fields = self.signIn("anna")
        host = f"127.0.0.1:{self.broker.port()}"
        for origin in ("https://evil.example", "http://127.0.0.1:1", f"http://{host}.evil.example", "null"):
            answer = self.ask("GET /api/clients", Origin=origin, **fields)
            self.assertEqual(answer.code, 401, origin)
            self.assertNotIn("access-control-allow-origin", answer.fields)
            for line in ("POST /api/bans/add", "POST /console/session", "POST /console/ticket"):
                answer = self.ask(line, {"name": "anna", "password": "anna"}, Origin=origin, **fields)
                self.assertEqual(answer.code, 403, (line, origin))
            self.assertNotIn("access-control-allow-origin", self.ask("OPTIONS /api/about", Origin=origin).fields)
            sent = (f"Origin: {origin}", f"Cookie: {fields['Cookie']}")
            self.assertRaises(Refused, WebSocketClient, self.broker.address, "/ws", headers=sent)
        for site in ("same-site", "cross-site"):
            self.assertEqual(self.ask("GET /api/clients", Sec_Fetch_Site=site, **fields).code, 401)
        self.assertEqual(self.ask("GET /api/clients", Origin=f"http://{host}", **fields).code, 200)

    def test_frame(self) -> None:
        """No page shows the console or an answer in a frame, and no script of another origin reads them."""
        fields = self.signIn("anna")
        for path in ("/console/", "/console/session", "/api/about", "/"):
            answer = self.ask(f"GET {path}", **fields)
            self.assertIn("frame-ancestors 'none'", answer.fields["content-security-policy"], path)
            self.assertEqual(answer.fields["cross-origin-resource-policy"], "same-origin", path)

    def test_fixation(self) -> None:
        """A cookie that an attacker has planted is no session after the sign-in of its victim."""
        planted = self.signIn("reader")
        victim = self.signIn("anna", Cookie=planted["Cookie"])
        self.assertNotEqual(victim["Cookie"], planted["Cookie"])
        self.assertEqual(self.ask("GET /api/about", **planted).code, 401)

    def test_largeCookies(self) -> None:
        """Cookies of any size and number are answered."""
        name = self.signIn("anna")["Cookie"].partition("=")[0]
        for text in ("x" * 15_000, f"{name}=" + "y" * 15_000, f"{name}=a; " * 600, "=;" * 7000, f"{name}=\xff"):
            self.assertEqual(self.ask("GET /api/about", Cookie=text).code, 401, text[:30])
        self.assertEqual(self.ask("GET /api/about", Cookie="x" * 16_384).code, 431)

    def test_guesses(self) -> None:
        """Guessing finds no session, ends none and leaves none."""
        fields = self.signIn("anna")
        name, _, text = fields["Cookie"].partition("=")
        for guess in (*(secrets.token_urlsafe(32) for _ in range(50)), text[:-1], text + "A", text.swapcase(), ""):
            self.assertEqual(self.ask("GET /api/about", Cookie=f"{name}={guess}").code, 401)
        self.assertEqual(self.ask("GET /api/about", **fields).code, 200)


class RevokedTests(ConsoleCase):
    """Users who lose what they had when they signed in."""

    def test_banned(self) -> None:
        """A banned principal's session ends at its next request, and a ticket opens nothing."""
        anna, reader = self.signIn("anna"), self.signIn("reader")
        ticket = json.loads(self.ask("POST /console/ticket", {}, **reader).body)["token"]
        self.assertEqual(self.ask("POST /api/bans/add", {"principal": "reader", "seconds": 60}, **anna).code, 200)
        self.assertEqual(self.ask("GET /api/about", Authorization=f"Bearer {ticket}").code, 403)
        self.assertEqual(self.ask("GET /api/about", **reader).code, 403)
        self.assertEqual(self.ask("POST /console/session", {"name": "reader", "password": "reader"}).code, 403)
        self.assertEqual(self.ask("POST /api/bans/remove", {"principal": "reader"}, **anna).code, 200)
        self.assertEqual(self.ask("GET /api/about", **reader).code, 401)

    def test_removed(self) -> None:
        """So does the session of a principal that was removed from the file of passwords, after a reload."""
        anna, reader = self.signIn("anna"), self.signIn("reader")
        ticket = json.loads(self.ask("POST /console/ticket", {}, **reader).body)["token"]
        self.passwords.write_text(self.passwords.read_text().partition("reader:")[0])
        self.insider().ask("/broker/reload")
        self.assertEqual(self.ask("GET /api/about", Authorization=f"Bearer {ticket}").code, 401)
        self.assertEqual(self.ask("GET /api/about", **reader).code, 401)
        self.assertEqual(self.ask("GET /api/about", **anna).code, 200)


class NoConsoleTests(ConsoleCase):
    """A broker with ``--no-console``."""

    def more(self) -> Sequence[str]:
        """Return the option."""
        return ("--no-console",)

    def test_off(self) -> None:
        """There is no page, no sign-in and no ticket; the API and the JavaScript client are there."""
        for line in ("GET /console", "GET /console/", "GET /console/session", "DELETE /console/session"):
            self.assertEqual(self.ask(line).code, 404, line)
        for path in ("/console/session", "/console/ticket"):
            self.assertEqual(self.ask(f"POST {path}", {"name": "anna", "password": "anna"}).code, 404, path)
        self.assertNotIn("/console/", self.ask("GET /").body)
        self.assertEqual([self.ask(f"GET {path}").code for path in ("/fleximq.js", "/api/about")], [200, 401])


class TlsTests(ConsoleCase):
    """A listener with TLS."""

    def more(self) -> Sequence[str]:
        """Return its options."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.made = makeCertificate(folder)
        files = ("--tls-certificate", str(self.made.certificate), "--tls-key", str(self.made.key))
        return ("--listen", "tls://127.0.0.1:0", *files)

    def connection(self) -> HTTPConnection:
        """Return a new connection inside TLS."""
        host, port = self.broker.address
        return HTTPSConnection("localhost", port, timeout=PATIENCE, context=self.made.trusting())

    def test_cookie(self) -> None:
        """The cookie is sent inside TLS alone, and to this host alone."""
        answer = self.ask("POST /console/session", {"name": "anna", "password": "anna"})
        cookie = answer.fields["set-cookie"]
        self.assertRegex(cookie, "^__Host-fleximq_session_[0-9]+=[^;]{43}; Path=/; HttpOnly; SameSite=Strict; Secure$")
        self.assertEqual(self.ask("GET /api/about", Cookie=cookie.partition(";")[0]).code, 200)
        self.assertEqual(self.ask("GET /api/about", Cookie=cookie.partition(";")[0].removeprefix("__Host-")).code, 401)


class RightsTests(ConsoleCase):
    """Users with few rights, on every page."""

    def pages(self) -> list[tuple[str, str]]:
        """Return method and path of every page of the API."""
        fields = self.signIn("anna")
        rows = json.loads(self.ask("GET /api/", **fields).body)["paths"]
        return [(row["method"], row["path"]) for row in rows]

    def test_noRights(self) -> None:
        """A user without rights gets 403 on every page, and learns no name."""
        client = self.insider()
        client.publish(SECRET, "x").barrier()
        fields, pages = self.signIn("nobody"), self.pages()
        self.assertGreater(len(pages), 15)
        for method, path in [*pages, ("GET", "/metrics")]:
            for value in ({}, {"topic": SECRET, "queue": SECRET, "client_id": 1, "principal": "anna"}):
                line = f"{method} {path}" + (f"?topic={SECRET}&limit=9" if method == "GET" and value else "")
                answer = self.ask(line, value if method == "POST" else None, **fields)
                self.assertEqual((answer.code, answer.body), (403, '{"error": "not permitted"}\n'), line)
        told = json.loads(self.ask("GET /console/session", **fields).body)
        self.assertEqual((told["principal"], told["rights"]), ("nobody", {"read": [], "admin": []}))
        self.assertNotIn("reasons", self.ask("GET /readyz", **fields).body)

    def test_onlyPages(self) -> None:
        """A user who may read every page, but no topic, finds the name of no topic there, and changes nothing."""
        client = self.insider()
        client.tell("SUB", {"topic": SECRET}).tell("SUB", {"topic": f"{SECRET}.#"})
        client.publish(SECRET, "x").barrier()
        fields = self.signIn("reader")
        rows = json.loads(self.ask("GET /api/clients", **fields).body)["clients"]
        for row in rows:
            detail = self.ask(f"GET /api/clients/detail?client_id={row['client_id']}", **fields)
            self.assertEqual((detail.code, SECRET in detail.body), (200, False))
        self.assertTrue(rows)
        for method, path in [*self.pages(), ("GET", "/metrics")]:
            if method == "POST":
                self.assertEqual(self.ask(f"POST {path}", {"topic": SECRET}, **fields).code, 403, path)
                continue
            for query in ("", "?limit=1000", f"?after={SECRET[:-1]}"):
                self.assertNotIn(SECRET, self.ask(f"GET {path}{query}", **fields).body, path)


class PathTests(ConsoleCase):
    """Odd requests for files."""

    def raw(self, head: str) -> bytes:
        """Return all that is answered to this head."""
        stream = Stream(self.broker.address)
        self.addCleanup(stream.close)
        stream.socket.settimeout(PATIENCE)
        stream.say(head.replace("\n", "\r\n").encode("latin-1"))
        answer = b""
        while part := stream.socket.recv(1 << 16):
            answer += part
        return answer

    def test_traversal(self) -> None:
        """No path leaves the table of files."""
        for path in (
            "/console/../request.py", "/console/..%2frequest.py", "/console/%2e%2e/request.py",
"//console/../setup.cfg",
            "/console/....//request.py", "/console/..\\request.py", "/console/%00", "/console//etc/passwd",
            "/console/index.html/../../request.py", "/console/\xe2\x80\xae", "http://localhost/console/../request.py",
        ):  # fmt: skip
            answer = self.raw(f"GET {path} HTTP/1.1\nHost: localhost\n\n")
            self.assertRegex(answer, rb"^HTTP/1.1 4\d\d ", path)
            self.assertNotIn(b"import", answer, path)

    def test_odd(self) -> None:
        """HEAD, ranges and conditions are no fault."""
        whole = self.ask("GET /console/")
        for fields in (
            "Range: bytes=0-0", "Range: bytes=0-0,1-1" + ",3-3" * 1000, "If-Range: x",
            "Accept-Encoding: " + "gzip," * 2000,
            "If-None-Match: *", "If-None-Match: " + '"x",' * 3000, "If-Modified-Since: x", "Expect: 100-continue",
        ):  # fmt: skip
            answer = self.raw(f"GET /console/ HTTP/1.1\nHost: localhost\n{fields}\n\n")
            self.assertIn(b"HTTP/1.1 200 OK", answer, fields[:40])
        head = self.raw("HEAD /console/ HTTP/1.1\nHost: localhost\n\n")
        self.assertTrue(head.endswith(b"\r\n\r\n"))
        self.assertIn(f"content-length: {len(whole.body.encode())}".encode(), head.lower())


@nightly
class FloodTests(AttackCase):
    """Sign-ins as fast as can be."""

    options = ("--listen", "tcp:0:interface=127.0.0.1", "--listen", "haproxy:tcp:0:interface=127.0.0.1")
    header: ClassVar[Any] = {"auth": {"type": "basic", "username": "anna", "password": "right"}}

    def more(self) -> Sequence[str]:
        """Return the file of passwords."""
        folder = tempfile.mkdtemp(prefix="attack-")
        self.addCleanup(shutil.rmtree, folder)
        path = Path(folder, "passwords")
        path.write_text(f"anna:{CHEAP.hash('right')}\n")
        path.chmod(0o600)
        return ("--auth", f"passwords:{path}")

    def test_signIns(self) -> None:
        """They delay no client beside, and take no memory."""
        self.attack("signIns")
