"""The answer to ``GET /``: a short page with the version, the address of each dialect, and the pages of the broker.

HTML for browsers, plain text otherwise. It has no scripts and no text from the request.
"""

from collections.abc import Callable, Sequence
from html import escape
from http import HTTPStatus
from typing import Any, NamedTuple

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request, Site
from zope.interface import implementer

from fleximq import __version__
from fleximq.values.unadmitted_budget import BufferCharge, UnadmittedBudget

SERVER = f"FlexiMQ/{__version__}".encode()
#: Seconds from the connection to the end of its request, unless the site is given others.
DEADLINE = 10.0
#: Seconds that a peer has to read its answer, and to close after an error.
TIMEOUT, LINGER = 60.0, 5.0


class WelcomeEntry(NamedTuple):
    """One dialect on the page: its name, its purpose and its address.

    In ``reach``, ``{stream}`` and ``{web}`` are replaced by the addresses of streams and WebSockets.
    """

    name: str
    purpose: str
    reach: str

    def at(self, address: object, secure: bool = False) -> str:
        """Return the dialect's address at a listener's own address, inside TLS or not."""
        host = getattr(address, "host", None)
        if host is not None:
            place = f"{f'[{host}]' if ':' in host else host}:{getattr(address, 'port', '')}"
            stream, web = ("tls", "wss") if secure else ("tcp", "ws")
            return self._reachedBy(f"{stream}://{place}", f"{web}://{place}")
        path: bytes | None = getattr(address, "name", None)
        stream = f"unix:{path.decode(errors='replace')}" if path else "this stream"
        return self._reachedBy(stream, "ws://localhost")

    def _reachedBy(self, stream: str, web: str) -> str:
        return self.reach.replace("{stream}", stream).replace("{web}", web)


_STYLE = """
:root{color-scheme:light dark;--ink:#1d2433;--soft:#5c667a;--line:#d9deea;--paper:#fbfcfe;--mark:#2f6fde}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf3;--soft:#98a3b8;--line:#2b3448;--paper:#10151f;--mark:#7fb0ff}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.6 system-ui,sans-serif}
main{max-width:44rem;margin:12vh auto;padding:0 1.5rem}
h1{font-size:2.4rem;line-height:1.1;margin:0;letter-spacing:-.02em}
h1 small{font-size:1rem;font-weight:400;color:var(--soft);letter-spacing:0;margin-left:.5rem}
p{color:var(--soft);margin:.75rem 0 2.5rem}
dl{display:grid;grid-template-columns:max-content 1fr;margin:0}
dt,dd{margin:0;padding:.9rem 0;border-top:1px solid var(--line)}
dt{padding-right:1.5rem;font-weight:600;color:var(--mark)}
a{color:var(--mark)}
code{display:block;color:var(--soft);font:.85rem/1.5 ui-monospace,monospace;overflow-wrap:anywhere}
"""

#: No resources are loaded; connections are allowed for experiments with WebSockets in the browser's console.
_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; connect-src 'self' ws: wss:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


#: Header fields of all answers: foreign pages cannot use them, nor caches store them.
COMMON_FIELDS = (
    (b"server", SERVER),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


#: The picture of the site: three messages in a frame.
_ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#2f6fde"/>'
    b'<path d="M3 5h10M3 8h7M3 11h10" stroke="#fff" stroke-width="1.6"/></svg>'
)
_ICONS = (b"/favicon.ico", b"/favicon.svg")
_SPEAKS = "One message broker, one space of topics. It speaks:"
#: The pages of every port that answers HTTP.
_PAGES = ("/healthz", "/readyz", "/metrics", "/api/")


def asText(ways: Sequence[WelcomeEntry], address: object, secure: bool = False) -> str:
    """Return the page as plain text, with these dialects at the listener's own address, inside TLS or not."""
    lines = [f"FlexiMQ {__version__}"]
    if ways:
        lines += [_SPEAKS, ""]
    for way in ways:
        lines += [f"  {way.name:<9} {way.purpose}", f"  {'':<9} {way.at(address, secure)}"]
    return "\n".join([*lines, "", f"For its operators: {' '.join(_PAGES)}", ""])


def asHtml(ways: Sequence[WelcomeEntry], address: object, secure: bool = False) -> str:
    """Return the page as HTML, with these dialects at the listener's own address, inside TLS or not."""
    rows = "\n".join(
        f"<dt>{escape(way.name)}</dt><dd>{escape(way.purpose)}<code>{escape(way.at(address, secure))}</code></dd>"
        for way in ways
    )
    spoken = f"<p>{_SPEAKS}</p>\n<dl>\n{rows}\n</dl>\n" if ways else ""
    links = "\n".join(f'<a href="{path}">{path}</a>' for path in _PAGES)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>FlexiMQ</title>\n'
        f'<meta name="viewport" content="width=device-width"><link rel="icon" href="/favicon.svg">'
        f"<style>{_STYLE}</style></head>\n"
        f"<body><main><h1>FlexiMQ<small>{__version__}</small></h1>\n"
        f"{spoken}<p>For its operators:\n{links}</p></main></body></html>\n"
    )


def prefersHtml(accept: str | None) -> bool:
    """Tell whether an ``Accept`` header prefers HTML, or likes it as much as plain text."""
    liking: dict[str, float] = {}
    for each in (accept or "").lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        liking[kind] = next((_quality(one) for one in parameters if one.startswith("q=")), 1.0)
    return liking.get("text/html", 0.0) > 0 and liking["text/html"] >= liking.get("text/plain", 0.0)


def _quality(parameter: str) -> float:
    try:
        return float(parameter[2:])
    except ValueError:
        return 0.0


@implementer(IResource)
class WelcomePage(Resource):
    """The root of the site, and the answer for unknown paths."""

    isLeaf = True

    def __init__(self, ways: Sequence[WelcomeEntry]) -> None:
        super().__init__()
        self._ways = tuple(ways)

    def render(self, request: IRequest) -> bytes:
        """Return the body of the answer: the page, or one line with the error."""
        answer: Any = request
        for name, value in COMMON_FIELDS:
            answer.setHeader(name, value)
        answer.setHeader(b"content-type", b"text/plain; charset=utf-8")
        if answer.path not in (b"/", *_ICONS):
            return _sentence(answer, 404, "There is nothing here; / says what there is.")
        if answer.method not in (b"GET", b"HEAD"):
            answer.setHeader(b"allow", b"GET, HEAD")
            return _sentence(answer, 405, "This page can only be read: GET or HEAD.")
        if answer.path in _ICONS:
            answer.setHeader(b"content-type", b"image/svg+xml")
            return _withoutBody(answer, _ICON)
        return _withoutBody(answer, self._page(answer))

    def _page(self, request: Any) -> bytes:
        request.setHeader(b"vary", b"Accept")
        request.setHeader(b"cache-control", b"no-cache")
        address, secure = request.getHost(), request.isSecure()
        accept = request.getHeader(b"accept")
        if not prefersHtml(accept and accept.decode("latin-1")):
            return asText(self._ways, address, secure).encode()
        request.setHeader(b"content-type", b"text/html; charset=utf-8")
        request.setHeader(b"content-security-policy", _POLICY)
        return asHtml(self._ways, address, secure).encode()


def _sentence(request: Any, code: int, words: str) -> bytes:
    request.setResponseCode(code)
    return _withoutBody(request, f"{words}\n".encode())


def _withoutBody(request: Any, body: bytes) -> bytes:
    """Return the body, empty for HEAD, and set its length."""
    request.setHeader(b"content-length", b"%d" % len(body))
    return b"" if request.method == b"HEAD" else body


class OneRequestChannel(HTTPChannel):
    """Answers one request and closes: the next request may be for a WebSocket, which the request router handles.

    The request must be complete before the deadline, which counts from ``connectedAt``, the clock's time, if another
    protocol handled the connection first. Its bytes are charged as those of a connection that is not admitted.
    """

    factory: "WelcomeSite"
    connectedAt: float | None = None
    _timer: IDelayedCall | None = None
    _isAnswered = False

    def connectionMade(self) -> None:
        """Start the deadline of the request."""
        site = self.factory
        self._charge = BufferCharge(site.unadmitted)
        now = site.clock.seconds()
        began = now if self.connectedAt is None else self.connectedAt
        self._within(max(0.0, began + site.deadline - now), lambda: self._refuse(408))
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        """Process a read within the budget."""
        if self._isAnswered:
            return
        if self._charge.change(self._charge.size + len(data)):
            super().dataReceived(data)
        else:
            self._refuse(503)

    def allContentReceived(self) -> None:
        """Stop the deadline; the answer may take longer."""
        self._within(None)
        super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        """Close, at the latest after :data:`TIMEOUT`."""
        self._isAnswered = True
        self._within(TIMEOUT, self.forceAbortClient)
        super().requestDone(request)

    def forceAbortClient(self) -> None:
        """Close now; Twisted would log every such connection."""
        self._timer = None
        transport: Any = self.transport
        transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop the timer, and release the budget."""
        self._within(None)
        self._charge.change(0)
        super().connectionLost(reason)

    def _within(self, seconds: float | None, act: Callable[[], None] = lambda: None) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None if seconds is None else self.factory.clock.callLater(seconds, act)

    def _refuse(self, code: int) -> None:
        self._isAnswered = True
        transport: Any = self.transport
        self.factory.refused(transport.getPeer(), code)
        head = f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        transport.write(head.encode())
        self._within(LINGER, self.forceAbortClient)
        self.loseConnection()

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """Close the connection after each request, and announce that."""
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False


class RequestRules(NamedTuple):
    """The limits of requests: the budget of their bytes, and the seconds from the connection to their end.

    ``refused`` is called with the peer and the status of each request that exceeds one.
    """

    unadmitted: UnadmittedBudget
    deadline: float = DEADLINE
    refused: Callable[[Any, int], None] = lambda peer, code: None


class WelcomeSite(Site):
    """Serves the welcome page.

    :param reactor: the clock of its timeouts.
    :param ways: the dialects at the same address, in the order of the page.
    :param root: a resource in place of the page.
    :param rules: the limits of requests.
    """

    noisy = False
    protocol = OneRequestChannel  # type: ignore[assignment]

    def __init__(
        self,
        reactor: IReactorTime,
        ways: Sequence[WelcomeEntry],
        root: IResource | None = None,
        rules: RequestRules | None = None,
    ) -> None:
        super().__init__(
            root or WelcomePage(ways), Request, timeout=None, reactor=reactor, parsePOSTFormSubmission=False
        )
        self.clock = reactor
        self.unadmitted, self.deadline, self.refused = rules or RequestRules(UnadmittedBudget())

    def startFactory(self) -> None:
        """Open no access log: the page is public and the same for all."""
