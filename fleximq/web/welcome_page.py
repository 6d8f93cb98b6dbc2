"""The answer to ``GET /``: a short page with the version, the address of each dialect, and the pages of the broker.

HTML for browsers, plain text otherwise. It has no scripts and no text from the request.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from twisted.web.iweb import IRequest
from twisted.web.resource import IResource, Resource
from zope.interface import implementer

from fleximq import __version__

SERVER = f"FlexiMQ/{__version__}".encode()


class WelcomeEntry(NamedTuple):
    """One dialect on the page. In ``reach``, ``{stream}``, ``{web}`` and ``{http}`` are the addresses of each kind."""

    name: str
    purpose: str
    reach: str

    def at(self, address: object, secure: bool = False) -> str:
        """Return the dialect's address at a listener's own address, inside TLS or not."""
        host, path = getattr(address, "host", None), getattr(address, "name", None)
        if host is not None:
            place = f"{f'[{host}]' if ':' in host else host}:{getattr(address, 'port', '')}"
            stream, web = (f"tls://{place}", f"wss://{place}") if secure else (f"tcp://{place}", f"ws://{place}")
        else:
            stream, web = f"unix:{path.decode(errors='replace')}" if path else "this stream", "ws://localhost"
        http = web.replace("ws", "http", 1)
        return self.reach.replace("{stream}", stream).replace("{web}", web).replace("{http}", http)


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
_CONSOLE = "/console/"


def asText(ways: Sequence[WelcomeEntry], address: object, secure: bool = False, console: bool = True) -> str:
    """Return the page as plain text, with these dialects at the listener's own address, inside TLS or not."""
    lines = [f"FlexiMQ {__version__}"]
    if ways:
        lines += [_SPEAKS, ""]
    for way in ways:
        lines += [f"  {way.name:<9} {way.purpose}", f"  {'':<9} {way.at(address, secure)}"]
    return "\n".join([*lines, "", f"For its operators: {' '.join(_pages(console))}", ""])


def asHtml(ways: Sequence[WelcomeEntry], address: object, secure: bool = False, console: bool = True) -> str:
    """Return the same page as HTML."""
    rows = "\n".join(
        f"<dt>{escape(way.name)}</dt><dd>{escape(way.purpose)}<code>{escape(way.at(address, secure))}</code></dd>"
        for way in ways
    )
    spoken = f"<p>{_SPEAKS}</p>\n<dl>\n{rows}\n</dl>\n" if ways else ""
    links = "\n".join(f'<a href="{path}">{path}</a>' for path in _pages(console))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>FlexiMQ</title>\n'
        f'<meta name="viewport" content="width=device-width"><link rel="icon" href="/favicon.svg">'
        f"<style>{_STYLE}</style></head>\n"
        f"<body><main><h1>FlexiMQ<small>{__version__}</small></h1>\n"
        f"{spoken}<p>For its operators:\n{links}</p></main></body></html>\n"
    )


def _pages(console: bool) -> tuple[str, ...]:
    return (_CONSOLE, *_PAGES) if console else _PAGES


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
    """The root of the site, and the answer for unknown paths; ``console``: whether to name the console."""

    isLeaf = True

    def __init__(self, ways: Sequence[WelcomeEntry], console: bool = True) -> None:
        super().__init__()
        self._ways, self._console = tuple(ways), console

    def render(self, request: IRequest) -> bytes:
        """Return the body of the answer: the page, or one line with the error."""
        answer: Any = request
        for name, value in (*COMMON_FIELDS, (b"content-type", b"text/plain; charset=utf-8")):
            answer.setHeader(name, value)
        if answer.path not in (b"/", *_ICONS):
            return _sentence(answer, 404, "There is nothing here; / says what there is.")
        if answer.method not in (b"GET", b"HEAD"):
            answer.setHeader(b"allow", b"GET, HEAD")
            return _sentence(answer, 405, "This page can only be read: GET or HEAD.")
        if answer.path in _ICONS:
            answer.setHeader(b"content-type", b"image/svg+xml")
            return _withoutBody(answer, _ICON)
        answer.setHeader(b"vary", b"Accept")
        answer.setHeader(b"cache-control", b"no-cache")
        accept, form = answer.getHeader(b"accept"), asText
        if prefersHtml(accept and accept.decode("latin-1")):
            form = asHtml
            answer.setHeader(b"content-type", b"text/html; charset=utf-8")
            answer.setHeader(b"content-security-policy", _POLICY)
        return _withoutBody(answer, form(self._ways, answer.getHost(), answer.isSecure(), self._console).encode())


def _sentence(request: Any, code: int, words: str) -> bytes:
    request.setResponseCode(code)
    return _withoutBody(request, f"{words}\n".encode())


def _withoutBody(request: Any, body: bytes) -> bytes:
    """Return the body, empty for HEAD, and set its length."""
    request.setHeader(b"content-length", b"%d" % len(body))
    return b"" if request.method == b"HEAD" else body
