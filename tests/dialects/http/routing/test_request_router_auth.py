"""Credentials at the HTTP door: who is let through to WebSockets or the site, as whom, and what the others are told."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.interfaces import IHalfCloseableProtocol, ISSLTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides, implementer

from fleximq.dialects.http.routing.origins import Origins
from fleximq.dialects.http.routing.request_router import RequestRouter, RequestRouterFactory
from fleximq.errors import AuthenticationFailed, JoinRejected, NoCapacity, TooManyRequests
from fleximq.security.credentials import ApiKey, Certificate, Password, Token
from fleximq.security.principal import Principal
from tests.dialects.admissions import FakeAdmission
from tests.dialects.http.routing.test_request_router import LOCAL, Recorder, RecorderFactory, request, upgrade

ALICE = Principal("alice")
BEARER, BASIC = "Authorization: Bearer good", "Authorization: Basic dTpw"
EVIL = "Origin: https://evil.example"
NOT_YET = object()


@implementer(IHalfCloseableProtocol)
class Told(Recorder):
    """Keeps who it is told that comes."""

    admitted: Any = NOT_YET
    ended = False

    def readConnectionLost(self) -> None:
        self.ended = True

    def writeConnectionLost(self) -> None:
        raise AssertionError("nobody ended our output")


class Later(Told):
    """Asks later itself."""

    joinsLater = True


class TellingFactory(RecorderFactory):
    """Builds one of these."""

    def __init__(self, kind: type[Recorder]) -> None:
        super().__init__()
        self.kind = kind

    def buildProtocol(self, addr: object) -> Recorder:
        self.built.append(self.kind())
        return self.built[-1]


class DoorCase(SynchronousTestCase):
    """A door at which alice is known."""

    origins = Origins()

    def setUp(self) -> None:
        """Build it."""
        self.clock = Clock()
        self.counts: list[str] = []
        self.admission = FakeAdmission(
            {Token("good"): ALICE, Password("u", "p"): ALICE, ApiKey("k"): ALICE, Certificate("c"): ALICE}
        )
        self.makeDoor(Told)

    def makeDoor(self, site: type[Recorder], behindProxy: FakeAdmission | None = None) -> None:
        """Build it with this kind of site."""
        self.behind: Mapping[str, TellingFactory] = {
            "site": TellingFactory(site),
            "fleximq": TellingFactory(Later),
            "identity": TellingFactory(Told),
        }
        webSockets = {name: self.behind[name] for name in ("fleximq", "identity")}
        self.factory = RequestRouterFactory(
            webSockets, self.behind["site"], self.admission, behindProxy or self.admission, self.origins, self.clock,
            10.0, lambda event, n: self.counts.append(event),
        )  # fmt: skip

    def connect(self, certificate: Any = None) -> tuple[RequestRouter, StringTransport]:
        """Return a new connection, and its transport."""
        door = self.factory.buildProtocol(None)
        transport: Any = StringTransport(peerAddress=LOCAL)
        if certificate is not None:
            transport.getPeerCertificate = lambda: _Shown(certificate)
            directlyProvides(transport, ISSLTransport)
        door.makeConnection(transport)
        return door, transport

    def asked(self, data: bytes, certificate: Any = None) -> tuple[int, Any]:
        """Return the code of the answer, 0 if the request got through; and who was told to come then."""
        for each in self.behind.values():
            each.built.clear()
        door, transport = self.connect(certificate)
        door.dataReceived(data)
        return self.outcome(transport)

    def outcome(self, transport: StringTransport) -> tuple[int, Any]:
        """Return the code of the answer, and who was told to come."""
        heard = transport.value()
        self.assertEqual(bool(heard), transport.disconnecting)
        last = [each.built[-1] for each in self.behind.values() if each.built and each.built[-1].received]
        return int(heard.split(b" ", 2)[1]) if heard else 0, getattr(last[0], "admitted", None) if last else None


class _Shown:
    """A certificate of a transport."""

    def __init__(self, certificate: Any) -> None:
        self._certificate = certificate

    def to_cryptography(self) -> Any:
        return self._certificate


class ShownTests(DoorCase):
    """What is shown, and who comes by it."""

    def test_right(self) -> None:
        """Every kind of credentials lets through, and what is behind the door is told who comes."""
        for data in (
            upgrade("/", BEARER), upgrade("/", BASIC), upgrade("/?token=good"), upgrade("/?api_key=k"),
            upgrade("/ws", BEARER), upgrade("/ws?token=good"), request("GET /api HTTP/1.1", BASIC),
        ):  # fmt: skip
            code, admitted = self.asked(data)
            self.assertEqual((code, admitted.principal), (0, ALICE), data)

    def test_wrong(self) -> None:
        """Wrong credentials are 401 for every request, with what may be shown instead; so are unreadable ones."""
        for target, fields in (
            ("/?token=bad", ()), ("/?api_key=bad", ()), ("/", ("Authorization: Bearer bad",)),
            ("/?token=good&api_key=k", ()), ("/", ("Authorization: Digest x",)), ("/?token=good", (BEARER,)),
        ):  # fmt: skip
            for path in ("", "ws"):
                data = upgrade(target.replace("/", f"/{path}"), *fields)
                self.assertEqual(self.asked(data), (401, None), data)
            self.assertEqual(self.asked(request(f"GET {target} HTTP/1.1", *fields)), (401, None))

    def test_challenge(self) -> None:
        """The answer says what may be shown, and does not repeat what was."""
        door, transport = self.connect()
        door.dataReceived(request("GET /?token=s3cret HTTP/1.1"))
        answer = transport.value()
        self.assertTrue(answer.startswith(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm="), answer)
        self.assertIn(b'\r\nWWW-Authenticate: Bearer realm="FlexiMQ"\r\n', answer)
        self.assertNotIn(b"s3cret", answer)

    def test_nothing(self) -> None:
        """Who shows nothing: 401 for Identity; FlexiMQ asks itself; the site is told that nothing was shown."""
        self.assertEqual(self.asked(upgrade("/")), (401, None))
        self.assertEqual(self.admission.asked, [None])
        self.assertEqual(self.asked(upgrade("/ws")), (0, None))
        self.assertEqual(self.admission.asked, [None])
        self.assertEqual(self.asked(request()), (0, None))

    def test_nothingNeeded(self) -> None:
        """Where nothing has to be shown, who shows nothing is nobody."""
        self.admission.known[None] = None
        self.assertIsNone(self.asked(upgrade("/"))[1].principal)
        self.assertIsNone(self.asked(request())[1].principal)

    def test_siteThatIsNotTold(self) -> None:
        """A site that cannot be told gets no request that shows nothing."""
        self.makeDoor(Recorder)
        self.assertEqual(self.asked(request()), (401, None))
        self.assertEqual(self.asked(request("GET / HTTP/1.1", BEARER)), (0, None))

    def test_certificate(self) -> None:
        """A certificate counts where nothing else is shown; FlexiMQ looks at it itself."""
        for data in (upgrade("/"), request()):
            self.assertEqual(self.asked(data, "c")[1].principal, ALICE)
        self.assertEqual(self.asked(upgrade("/", "Authorization: Bearer bad"), "c")[0], 401)
        self.admission.asked.clear()
        self.assertEqual((self.asked(upgrade("/ws"), "c"), self.admission.asked), ((0, None), []))

    def test_otherErrors(self) -> None:
        """What else may be wrong has its own code."""
        for error, code in (
            (AuthenticationFailed("x"), 401), (JoinRejected("x"), 403), (NoCapacity("x"), 503),
            (TooManyRequests("x"), 429),
        ):  # fmt: skip
            self.admission.known[Token("good")] = error
            self.assertEqual(self.asked(upgrade("/", BEARER)), (code, None))

    def test_unforeseen(self) -> None:
        """If asking goes wrong in a way that nobody foresaw, nobody comes in, and why is in the log alone."""
        self.admission.known[Token("good")] = ValueError("odd")
        door, transport = self.connect()
        door.dataReceived(request("GET / HTTP/1.1", BEARER))
        self.assertEqual(self.outcome(transport), (500, None))
        self.assertNotIn(b"odd", transport.value())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_cutOut(self) -> None:
        """What is behind the door does not see what was shown."""
        for target, kept in (("/?a&token=good", "/?a"), ("/ws?token=good&b=c", "/ws?b=c"), ("/?api_key=k", "/")):
            self.asked(upgrade(target) + b"\x81\x80")
            received = [each.built[0].received for each in self.behind.values() if each.built]
            self.assertEqual(received, [upgrade(kept) + b"\x81\x80"])
        self.asked(request("POST / HTTP/1.1", BASIC, "Content-Length: 3") + b"abc")
        self.assertEqual(
            self.behind["site"].built[0].received, request("POST / HTTP/1.1", "Content-Length: 3") + b"abc"
        )

    def test_proxy(self) -> None:
        """For whom a proxy speaks another rule may hold."""
        other = FakeAdmission({}, refused="no proxies")
        self.makeDoor(Told, other)
        self.assertEqual(self.asked(upgrade("/", BEARER, "Via: 1.1 x"))[0], 403)
        self.assertEqual(self.asked(upgrade("/", BEARER))[0], 0)


class OriginTests(DoorCase):
    """Pages of foreign origins."""

    def setUp(self) -> None:
        """Check credentials."""
        self.origins = Origins(namesTrusted=True, strict=True)
        super().setUp()

    def test_webSockets(self) -> None:
        """Whatever credentials a page knows or a browser adds: it is refused, and no checker is asked."""
        for origin in ("https://evil.example", "null", "http://localhost:3000"):
            for data in (
                upgrade("/?token=good", f"Origin: {origin}"), upgrade("/ws?api_key=k", f"Origin: {origin}"),
                upgrade("/", BASIC, f"Origin: {origin}"), upgrade("/ws", f"Origin: {origin}"),
            ):  # fmt: skip
                self.assertEqual(self.asked(data), (403, None), data)
            self.assertEqual(self.asked(upgrade("/", f"Origin: {origin}"), "c"), (403, None))
        self.assertEqual(self.admission.asked, [])

    def test_changes(self) -> None:
        """So is each request that may change something, while pages are only read by their own origin's scripts."""
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "ANY"):
            for fields in (
                ("Origin: https://evil.example",), ("Origin: null",), ("Origin: http://localhost:3000",),
                ("Sec-Fetch-Site: cross-site",), ("Sec-Fetch-Site: same-site",),
            ):  # fmt: skip
                self.assertEqual(self.asked(request(f"{method} /api HTTP/1.1", BASIC, *fields)), (403, None), fields)
        self.assertEqual(self.admission.asked, [])
        for line in ("GET / HTTP/1.1", "HEAD / HTTP/1.1"):
            self.assertEqual(self.asked(request(line, BASIC, EVIL))[0], 0)

    def test_own(self) -> None:
        """The listener's own page may do both, and a program without any origin."""
        for fields in (("Origin: http://127.0.0.1:7890", "Sec-Fetch-Site: same-origin"), ()):
            self.assertEqual(self.asked(upgrade("/", BASIC, *fields))[1].principal, ALICE)
            self.assertEqual(self.asked(request("POST /api HTTP/1.1", BASIC, *fields))[1].principal, ALICE)

    def test_named(self) -> None:
        """So may pages of an added origin, also where the browser says that they are of another site."""
        self.origins.added = frozenset({"https://a.example", "null"})
        for origin in self.origins.added:
            fields = (f"Origin: {origin}", "Sec-Fetch-Site: cross-site")
            self.assertEqual(self.asked(upgrade("/", BASIC, *fields))[1].principal, ALICE)
            self.assertEqual(self.asked(request("POST /api HTTP/1.1", BASIC, *fields))[1].principal, ALICE)

    def test_downgrade(self) -> None:
        """A page without TLS is foreign to a listener inside TLS, and to one whose proxy says that it speaks TLS."""
        fields = ("Origin: http://127.0.0.1:7890",)
        self.assertEqual(self.asked(upgrade("/", BASIC, *fields), "c"), (403, None))
        self.assertEqual(self.asked(upgrade("/", BASIC, "X-Forwarded-Proto: https", *fields)), (403, None))


class LaterTests(DoorCase):
    """Credentials whose check takes its time."""

    def setUp(self) -> None:
        """Decide later."""
        super().setUp()
        self.admission.later = True

    def test_waits(self) -> None:
        """Nothing more is read until it is decided; what was read already goes along."""
        door, transport = self.connect()
        door.dataReceived(upgrade("/", BEARER) + b"\x81")
        door.dataReceived(b"\x80")
        self.assertEqual((self.outcome(transport), transport.producerState), ((0, None), "paused"))
        self.admission.decide()
        self.assertEqual((self.outcome(transport)[1].principal, transport.producerState), (ALICE, "producing"))
        door.dataReceived(b"later")
        self.assertEqual(self.behind["identity"].built[0].received, upgrade("/") + b"\x81\x80later")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_refused(self) -> None:
        """Who is refused then is told so."""
        door, transport = self.connect()
        door.dataReceived(upgrade("/?token=bad"))
        self.admission.decide()
        self.assertEqual(self.outcome(transport), (401, None))
        self.assertEqual((self.clock.getDelayedCalls(), self.counts), ([], ["refused: HTTP 401"]))

    def test_deadline(self) -> None:
        """If it takes too long the request is answered by 503, whatever is found out later."""
        door, transport = self.connect()
        door.dataReceived(upgrade("/", BEARER))
        self.clock.advance(10)
        self.assertEqual((self.outcome(transport), self.admission.dropped), ((503, None), 1))

    def test_lost(self) -> None:
        """A connection that is gone drops the check and leaves nothing."""
        door, transport = self.connect()
        door.dataReceived(upgrade("/", BEARER))
        door.connectionLost()
        self.assertEqual((self.admission.dropped, self.clock.getDelayedCalls()), (1, []))
        self.assertEqual(self.outcome(transport), (0, None))

    def test_inputEnded(self) -> None:
        """A peer that ends its input meanwhile is served, and what serves it is told of the end."""
        door, transport = self.connect()
        door.dataReceived(request("GET / HTTP/1.1", BASIC))
        door.readConnectionLost()
        self.assertFalse(transport.disconnecting)
        self.admission.decide()
        self.assertEqual(self.outcome(transport)[1].principal, ALICE)
        [served] = self.behind["site"].built
        assert isinstance(served, Told)
        self.assertTrue(served.ended)
