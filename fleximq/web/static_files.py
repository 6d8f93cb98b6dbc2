"""The files of the console and the JavaScript client, which the broker serves from its own package.

The table of files is fixed at its first use, so that no path of a request reaches the file system. Anyone may read
them: the page that asks for credentials is among them, and they say nothing about this broker.
"""

import gzip
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from twisted.web.resource import IResource, Resource

from fleximq.web.welcome_page import COMMON_FIELDS

#: The path of the console's page, and of the JavaScript client.
CONSOLE, CLIENT = "/console/", "/fleximq.js"
_KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
#: Scripts, styles and connections are those of this broker alone, text never becomes markup, and no page shows it in
#: a frame.
_POLICY = (
    b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_PAGE_FIELDS = (
    *((name, _POLICY if name == b"content-security-policy" else value) for name, value in COMMON_FIELDS),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class StaticFile(NamedTuple):
    """A file: its type, its bytes, the same compressed (empty if that is not shorter), and its entity tag."""

    kind: str
    body: bytes
    packed: bytes
    tag: bytes

    @classmethod
    def of(cls, name: str, body: bytes) -> "StaticFile":
        """Make the file of this name and content."""
        packed = gzip.compress(body, mtime=0)
        tag = b'W/"%s"' % hashlib.sha256(body).hexdigest()[:24].encode()
        kind = _KINDS.get(name.rpartition(".")[2], "text/plain; charset=utf-8")
        return cls(kind, body, packed if len(packed) < len(body) else b"", tag)


@cache
def staticFiles() -> Mapping[str, StaticFile]:
    """Return all files by path; reads them at the first call. ``/console/`` is its index."""
    package = files("fleximq.web")
    found = dict(_below(package / "console", CONSOLE))
    if f"{CONSOLE}index.html" in found:
        found[CONSOLE] = found.pop(f"{CONSOLE}index.html")
    client = package / "static" / "fleximq.js"
    if client.is_file():
        found[CLIENT] = StaticFile.of(client.name, client.read_bytes())
    return found


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, StaticFile]]:
    for each in folder.iterdir() if folder.is_dir() else ():
        if each.name.startswith((".", "_")):
            continue
        if each.is_dir():
            yield from _below(each, f"{path}{each.name}/")
        else:
            yield f"{path}{each.name}", StaticFile.of(each.name, each.read_bytes())


class StaticPages(Resource):
    """Answers requests for the files; ``other`` answers all others.

    :param console: whether the console is served.
    :param cors: returns the header lines by which a page of an origin may load the JavaScript client.
    """

    isLeaf = True

    def __init__(self, other: IResource, console: bool, cors: Callable[[str | None], Sequence[str]]) -> None:
        super().__init__()
        self._other, self._console, self._cors = other, console, cors

    def render(self, request: Any) -> Any:
        """Return the body of the answer."""
        path = request.path.decode("latin-1")
        if not (path == CLIENT or (self._console and path.startswith("/console"))):
            return self._other.render(request)
        if path == "/console":
            return _redirection(request)
        file = staticFiles().get(path)
        if file is None:
            return self._other.render(request)
        if path == CLIENT:
            origin = request.getHeader(b"origin")
            for line in self._cors(None if origin is None else origin.decode("latin-1")):
                name, _, value = line.partition(": ")
                request.setHeader(name.encode(), value.encode("latin-1"))
        return _answer(request, file)


def _redirection(request: Any) -> bytes:
    for name, value in (*COMMON_FIELDS, (b"location", CONSOLE.encode()), (b"content-length", b"0")):
        request.setHeader(name, value)
    request.setResponseCode(308)
    return b""


def _answer(request: Any, file: StaticFile) -> bytes:
    isPage = file.kind.startswith("text/html")
    for name, value in _PAGE_FIELDS if isPage else COMMON_FIELDS:
        request.setHeader(name, value)
    if request.method not in (b"GET", b"HEAD"):
        request.setHeader(b"allow", b"GET, HEAD")
        request.setHeader(b"content-length", b"0")
        request.setResponseCode(405)
        return b""
    request.setHeader(b"content-type", file.kind.encode())
    request.responseHeaders.addRawHeader(b"vary", b"Accept-Encoding")
    body = file.body
    if file.packed and _takesGzip(request.getHeader(b"accept-encoding") or b""):
        body = file.packed
        request.setHeader(b"content-encoding", b"gzip")
    if not isPage:
        request.setHeader(b"cache-control", b"no-cache")
        request.setHeader(b"etag", file.tag)
        if file.tag in [each.strip() for each in (request.getHeader(b"if-none-match") or b"").split(b",")]:
            request.setResponseCode(304)
            return b""
    request.setHeader(b"content-length", b"%d" % len(body))
    return b"" if request.method == b"HEAD" else body


def _takesGzip(accepted: bytes) -> bool:
    """Return whether an ``Accept-Encoding`` field names gzip without the quality 0."""
    for each in accepted.lower().split(b","):
        name, *parameters = (part.strip() for part in each.split(b";"))
        if name == b"gzip":
            return not any(one.startswith(b"q=0") and not one[2:].strip(b"0.") for one in parameters)
    return False
