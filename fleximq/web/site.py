"""The web site: which page answers a request, and whether it may be asked for.

What is wrong is one JSON object with an ``error``. No answer is kept by caches or read by pages of other origins.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

from fleximq.errors import BrokerError
from fleximq.rights import EVERYTHING
from fleximq.security.principal import ANONYMOUS, Admitted
from fleximq.status import Status
from fleximq.web.request import JSON, HttpRefusal, HttpReply, Page, Visit, checkHost, checkPost, jsonReply, numberOf
from fleximq.web.welcome_page import SERVER, OneRequestChannel, WelcomeEntry, WelcomePage, WelcomeSite

_log = Logger("fleximq.web.site")

Renewed = Callable[[Admitted], Admitted]

#: What a visitor is asked for where credentials are required.
CHALLENGE = 'Basic realm="FlexiMQ", Bearer realm="FlexiMQ"'
#: Statuses that are none of HTTP's own.
_CODES = {Status.CLIENT_NOT_FOUND: 404}


class AdmittedChannel(OneRequestChannel):
    """Knows who asks.

    ``admitted`` is set by whoever hands the connection over; None where credentials are required and none were shown.
    """

    admitted: Admitted | None = None


def everybody() -> Admitted:
    """Let those who show nothing do everything."""
    return Admitted(None, EVERYTHING)


@implementer(IResource)
class Pages(Resource):
    """All paths.

    :param welcome: what answers the root.
    :param pages: what answers all others, by path.
    :param renewed: returns who was let in a while ago, as today; raises Unauthorized.
    :param namesTrusted: tells whether requests may name this broker as they like, see :mod:`fleximq.web.request`.
    :param origins: returns those that an operator has allowed.
    """

    isLeaf = True

    def __init__(
        self,
        welcome: IResource,
        pages: Mapping[str, Page],
        renewed: Renewed,
        namesTrusted: Callable[[], bool],
        origins: Callable[[], Collection[str]],
    ) -> None:
        super().__init__()
        self._welcome = welcome
        self._pages = dict(pages)
        self._renewed = renewed
        self._namesTrusted = namesTrusted
        self._origins = origins

    def render(self, request: Any) -> Any:
        """Answer a request, perhaps later."""
        path = request.path.decode("latin-1")
        if path not in self._pages:
            return self._welcome.render(request)
        answering = Deferred.fromCoroutine(self._answer(request, path, self._pages[path]))
        gone: list[object] = []
        request.notifyFinish().addErrback(lambda failure: gone.append(failure))
        answering.addErrback(_wordsOf, request)
        answering.addCallback(lambda reply: None if gone else _write(request, reply))
        answering.addErrback(lambda failure: _log.failure("an answer could not be written", failure))
        return NOT_DONE_YET

    async def _answer(self, request: Any, path: str, page: Page) -> HttpReply:
        method = request.method.decode("latin-1")
        host = _field(request, b"host")
        origins = self._origins()
        checkHost(host, self._namesTrusted(), origins)
        if method not in page.methods:
            allowed = ", ".join(page.methods)
            raise HttpRefusal(405, f"this path takes {allowed} only", {"allow": allowed})
        if page.post:
            site = _field(request, b"sec-fetch-site")
            checkPost(_field(request, b"content-type"), _field(request, b"origin"), host, site, origins)
        visit = self._visit(request, method, path, page)
        if page.action is not None and not visit.may(page.action, path[1:]):
            if visit.rights is None:
                raise HttpRefusal(401, "credentials are required", {"www-authenticate": CHALLENGE})
            raise HttpRefusal(403, "not permitted")
        return await page.answer(visit)

    def _visit(self, request: Any, method: str, path: str, page: Page) -> Visit:
        """Return the request with the rights of now: its body may have come long after its head was let in."""
        admitted: Admitted | None = getattr(request.channel, "admitted", None)
        admitted = None if admitted is None else self._renewed(admitted)
        principal = None if admitted is None else admitted.principal
        return Visit(
            method,
            path,
            _posted(request.content.read()) if page.post else _queried(request.args),
            None if admitted is None else admitted.rights,
            ANONYMOUS if principal is None else principal.name,
            _field(request, b"accept") or "",
        )


class WebSite(WelcomeSite):
    """Serves the welcome page and all others.

    :param ways: the dialects that are reached at the same address.
    :param nobody: returns what those may do who show no credentials, None if they have to show some.
    :param renewed: returns who was let in a while ago, as today; raises Unauthorized.
    """

    protocol = AdmittedChannel

    def __init__(
        self,
        reactor: IReactorTime,
        ways: Sequence[WelcomeEntry],
        pages: Mapping[str, Page],
        nobody: Callable[[], Admitted | None] = everybody,
        namesTrusted: Callable[[], bool] = lambda: False,
        origins: Callable[[], Collection[str]] = tuple,
        renewed: Renewed = lambda admitted: admitted,
    ) -> None:
        super().__init__(reactor, ways, Pages(WelcomePage(ways), pages, renewed, namesTrusted, origins))
        self._nobody = nobody

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Return a channel that lets somebody in who shows nothing."""
        channel: Any = super().buildProtocol(addr)
        channel.admitted = self._nobody()
        return channel


def _field(request: Any, name: bytes) -> str | None:
    """Return what a request says under this name; whatever bytes these are, they are text."""
    value: bytes | None = request.getHeader(name)
    return None if value is None else value.decode("latin-1")


def _queried(arguments: Mapping[bytes, Sequence[bytes]]) -> dict[str, Any]:
    """Return the arguments of a query; what is a whole number becomes one where a listing counts with it."""
    found = {name.decode("latin-1"): values[-1].decode("utf-8", "replace") for name, values in arguments.items()}
    return {name: numberOf(value) if name == "limit" else value for name, value in found.items()}


def _posted(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise HttpRefusal(400, "what was posted is not JSON") from None
    if not isinstance(value, dict):
        raise HttpRefusal(400, "what is posted must be a JSON object")
    return value


def _wordsOf(failure: Failure, request: Any) -> HttpReply:
    """Return what is answered to a request that failed."""
    error = failure.value
    if isinstance(error, HttpRefusal):
        for name, value in error.fields.items():
            request.setHeader(name.encode(), value.encode())
        return jsonReply({"error": str(error)}, error.code)
    if isinstance(error, BrokerError):
        return jsonReply({"error": str(error)}, _CODES.get(error.status, int(error.status)))
    _log.failure("{path} could not be answered", failure, path=request.path.decode("latin-1"))
    return jsonReply({"error": "internal error"}, 500)


def _write(request: Any, reply: HttpReply) -> None:
    request.setResponseCode(reply.code)
    for name, value in (
        (b"server", SERVER),
        (b"content-type", reply.kind.encode() + (b"; charset=utf-8" if reply.kind == JSON else b"")),
        (b"content-length", b"%d" % len(reply.body)),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ):
        request.setHeader(name, value)
    if request.method != b"HEAD":
        request.write(reply.body)
    request.finish()
