"""The page that says what runs here, asked for over a connection in memory."""

from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import ISSLTransport
from twisted.internet.stdio import PipeAddress
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import alsoProvides

from fleximq import __version__
from fleximq.dialects.registry import OWN, installed
from fleximq.web.site import TIMEOUT, WebSite
from fleximq.web.welcome_page import WelcomeEntry, prefersHtml

ALL = tuple(
    WelcomeEntry(each.title, each.purpose, each.reach) for each in installed().dialects.values() if each.name in OWN
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class Answer:
    """An HTTP answer, taken apart."""

    def __init__(self, raw: bytes) -> None:
        head, self.body = raw.split(b"\r\n\r\n", 1)
        status, *lines = head.decode().split("\r\n")
        self.code = int(status.split(" ")[1])
        self.fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


class WelcomeTests(SynchronousTestCase):
    """What is asked, and what is answered."""

    def ask(
        self,
        line: str = "GET / HTTP/1.1",
        *fields: str,
        body: bytes = b"",
        host: object = None,
        dialects: Any = ALL,
        secure: bool = False,
    ) -> Answer:
        """Return the answer to one request, after which the connection has to be closed."""
        self.reactor: Any = MemoryReactorClock()
        site = WebSite(self.reactor, dialects)
        site.doStart()
        self.addCleanup(site.doStop)
        channel: Any = site.buildProtocol(None)
        transport = StringTransport(hostAddress=host or IPv4Address("TCP", "127.0.0.1", 7890))
        if secure:
            alsoProvides(transport, ISSLTransport)
            transport.setTcpNoDelay = lambda enabled: None  # type: ignore[attr-defined]
        channel.makeConnection(transport)
        channel.dataReceived("\r\n".join((line, "Host: evil<.example", *fields, "", "")).encode() + body)
        self.assertTrue(transport.disconnecting)
        channel.connectionLost(None)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        return Answer(transport.value())

    def test_plainTextNamesVersionAndEachDialectWithItsAddress(self) -> None:
        """Plain text names the version, and each dialect with its address."""
        answer = self.ask()
        text = answer.body.decode()
        self.assertEqual((answer.code, answer.fields["content-type"]), (200, "text/plain; charset=utf-8"))
        self.assertTrue(text.startswith(f"FlexiMQ {__version__}\n"), text)
        for name in ("FlexiMQ", "BlipMQ", "MiniMQ", "Identity"):
            self.assertIn(f"  {name}", text)
        self.assertIn("ws://127.0.0.1:7890/ws", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_browserGetsHTMLWithSameWordsWhoseTagsMatchWithoutScripts(self) -> None:
        """A browser gets HTML with the same words, whose tags match, without scripts."""
        answer = self.ask("GET / HTTP/1.1", f"Accept: {BROWSER}")
        self.assertEqual((answer.code, answer.fields["content-type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", answer.fields["content-security-policy"])
        page = Page()
        page.feed(answer.body.decode())
        self.assertEqual((page.open, page.seen & {"script", "img"}), ([], set()))
        for word in (__version__, "FlexiMQ", "BlipMQ", "MiniMQ", "Identity", "ws://127.0.0.1:7890/ws"):
            self.assertIn(word, page.text)

    def test_policy(self) -> None:
        """The page loads its icon only, but a WebSocket may be opened from the browser's console on it."""
        policy = self.ask("GET / HTTP/1.1", f"Accept: {BROWSER}").fields["content-security-policy"]
        rules = {name: set(sources) for name, *sources in (each.split() for each in policy.split(";"))}
        self.assertEqual((rules["default-src"], rules["img-src"]), ({"'none'"}, {"'self'"}))
        self.assertLessEqual({"ws:", "wss:"}, rules["connect-src"])

    def test_browsersFindIconByPageAndByItsUsualName(self) -> None:
        """Browsers find an icon, by the page and by its usual name."""
        self.assertIn(b'<link rel="icon" href="/favicon.svg">', self.ask("GET / HTTP/1.1", f"Accept: {BROWSER}").body)
        for name in ("svg", "ico"):
            answer = self.ask(f"GET /favicon.{name} HTTP/1.1")
            self.assertEqual((answer.code, answer.fields["content-type"]), (200, "image/svg+xml"))
            self.assertEqual(ElementTree.fromstring(answer.body).tag, "{http://www.w3.org/2000/svg}svg")

    def test_pageLeadsToMetricsHealthAndAPI(self) -> None:
        """The page leads to metrics, health and the API."""
        page = self.ask("GET / HTTP/1.1", f"Accept: {BROWSER}").body
        for path in (b"/metrics", b"/healthz", b"/api/"):
            self.assertIn(b'<a href="%s">' % path, page)

    def test_nothingEchoed(self) -> None:
        """Nothing that the request said stands in the page."""
        for accept in (BROWSER, "text/plain"):
            self.assertNotIn(b"evil", self.ask("GET /?evil HTTP/1.1", f"Accept: {accept}").body)

    def test_someDialects(self) -> None:
        """Only what is served here is named."""
        text = self.ask(dialects=[each for each in ALL if each.name == "Identity"]).body
        self.assertEqual((b"Identity" in text, b"MiniMQ" in text, b"BlipMQ" in text), (True, False, False))

    def test_addresses(self) -> None:
        """Other kinds of addresses are written as a URL has them."""
        self.assertIn(b"ws://[::1]:80/ws", self.ask(host=IPv6Address("TCP", "::1", 80)).body)
        self.assertIn(b"  unix:/run/x or ws://localhost/ws\n", self.ask(host=UNIXAddress(b"/run/x")).body)
        self.assertIn(b"  this stream or ws://localhost/ws\n", self.ask(host=PipeAddress()).body)

    def test_insideTls(self) -> None:
        """Who asks inside TLS is told the URLs of TLS."""
        for fields in ((), (f"Accept: {BROWSER}",)):
            page = self.ask("GET / HTTP/1.1", *fields, secure=True).body
            self.assertIn(b"tls://127.0.0.1:7890 or wss://127.0.0.1:7890/ws", page)
            self.assertNotIn(b"tcp://", page)

    def test_serverIsFlexiMQCachesMayNotMixTwoFormsAndOneRequestIsAll(self) -> None:
        """The server is FlexiMQ, caches may not mix the two forms, and one request is all."""
        fields = self.ask().fields
        self.assertEqual(fields["server"], f"FlexiMQ/{__version__}")
        self.assertEqual((fields["vary"], fields["connection"]), ("Accept", "close"))
        self.assertEqual(fields["x-content-type-options"], "nosniff")

    def test_headAnswersSameWithoutBodyItsLengthIncluded(self) -> None:
        """HEAD answers the same without the body, its length included."""
        got, head = self.ask(), self.ask("HEAD / HTTP/1.1")
        self.assertEqual((head.code, head.body), (200, b""))
        self.assertEqual(head.fields["content-length"], str(len(got.body)))

    def test_otherPath(self) -> None:
        """Other paths are 404, in one line."""
        for path in ("/x", "/x/y?z", "//", "/favicon.png", "/%00"):
            answer = self.ask(f"GET {path} HTTP/1.1")
            self.assertEqual((answer.code, answer.body), (404, b"There is nothing here; / says what there is.\n"), path)
        self.assertEqual(self.ask("HEAD /x HTTP/1.1").body, b"")

    def test_otherMethod(self) -> None:
        """Other methods are 405, and told which ones are not."""
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"):
            answer = self.ask(f"{method} / HTTP/1.1", "Content-Length: 3", body=b"a=b")
            self.assertEqual((answer.code, answer.fields["allow"]), (405, "GET, HEAD"), method)
            self.assertEqual(answer.body, b"This page can only be read: GET or HEAD.\n")

    def test_oldHttp(self) -> None:
        """HTTP/1.0 is answered too."""
        self.assertEqual(self.ask("GET / HTTP/1.0").code, 200)

    def test_requestWhoseBodyDoesNotComeIsGivenUp(self) -> None:
        """A request whose body does not come is given up."""
        reactor: Any = MemoryReactorClock()
        channel: Any = WebSite(reactor, ALL).buildProtocol(None)
        transport = StringTransport()
        channel.makeConnection(transport)
        channel.dataReceived(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
        reactor.advance(TIMEOUT)
        self.assertTrue(transport.disconnecting)
        channel.connectionLost(None)


class PrefersHtmlTests(SynchronousTestCase):
    """What an Accept header means."""

    def test_htmlIsForThoseWhoNameIt(self) -> None:
        """HTML is for those who name it."""
        for accept in (BROWSER, "text/html", "TEXT/HTML; q=0.5", "text/plain;q=0.5, text/html", "text/html,text/plain"):
            self.assertTrue(prefersHtml(accept), accept)

    def test_textIsForAllOthersAndForThoseWhoLikeItBetter(self) -> None:
        """Text is for all others, and for those who like it better."""
        for accept in (
            None,
            "",
            "*/*",
            "text/plain",
            "text/html;q=0",
            "text/html;q=0.4,text/plain;q=0.5",
            "text/html;q=x",
        ):
            self.assertFalse(prefersHtml(accept), accept)


class Page(HTMLParser):
    """Reads HTML and notes which tags are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Note an opened tag; some are never closed."""
        self.seen.add(tag)
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note a closed tag, which has to be the last one opened."""
        if self.open.pop() != tag:
            raise AssertionError(f"{tag} closes another tag")

    def handle_data(self, data: str) -> None:
        """Collect the words."""
        self.text += data
