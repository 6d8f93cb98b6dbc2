"""The web site: finds the page of a request, and checks access to it.

An error is a JSON object with the key ``error``. Answers are neither cached nor readable by pages of other origins.
"""

import json
from collections.abc import Callable, Mapping, Sequence
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
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import ANONYMOUS, Admitted
from fleximq.status import Status
from fleximq.web.request import JSON, HttpRefusal, HttpReply, Page, PageRequest, jsonReply, numberOf
from fleximq.web.welcome_page import (
    COMMON_FIELDS,
    OneRequestChannel,
    RequestRules,
    WelcomeEntry,
    WelcomePage,
    WelcomeSite,
)

_log = Logger()

Renewed = Callable[[Admitted], Admitted]

#: The challenge for requests without required credentials.
CHALLENGE = 'Basic realm="FlexiMQ", Bearer realm="FlexiMQ"'
#: Statuses that HTTP does not have.
_CODES = {Status.CLIENT_NOT_FOUND: 404}


class AdmittedChannel(OneRequestChannel):
    """A channel with the principal of its connection.

    ``admitted`` is set at the handover of the connection; None without required credentials.
    """

    admitted: Admitted | None = None

    def allHeadersReceived(self) -> None:
        """Take no body for a request that is refused in any case, so that it is answered now."""
        request: Any = self.requests[-1]
        site: Any = self.factory
        if not site.resource.takesBody(request, self._command.decode("latin-1"), self._path.partition(b"?")[0]):
            self.length = 0
            request.requestHeaders.removeHeader(b"expect")
        super().allHeadersReceived()


def unrestricted() -> Admitted:
    """Return a principal with unrestricted rights for requests without credentials."""
    return Admitted(None, EVERYTHING)


@implementer(IResource)
class Pages(Resource):
    """All paths.

    :param welcome: answers the root.
    :param pages: the other pages, by path.
    :param renewed: returns an earlier admission with today's rights; raises Unauthorized.
    :param audit: records an act or a refusal, see :class:`fleximq.broker.broker.Broker`.
    """

    isLeaf = True

    def __init__(
        self, welcome: IResource, pages: Mapping[str, Page], renewed: Renewed, audit: Callable[..., None]
    ) -> None:
        super().__init__()
        self._audit = audit
        self._welcome = welcome
        self._pages = dict(pages)
        self._renewed = renewed

    def render(self, request: Any) -> Any:
        """Answer a request, perhaps later."""
        path = request.path.decode("latin-1")
        if path not in self._pages:
            if not path.startswith("/api/"):
                return self._welcome.render(request)
            _write(request, jsonReply({"error": "no such path; /api/ lists them"}, 404))
            return NOT_DONE_YET
        answering = Deferred.fromCoroutine(self._answer(request, path, self._pages[path]))
        gone: list[object] = []
        request.notifyFinish().addErrback(lambda failure: gone.append(failure))
        answering.addErrback(_wordsOf, request)
        answering.addCallback(self._audited, request, path)
        answering.addCallback(lambda reply: None if gone else _write(request, reply))
        answering.addErrback(lambda failure: _log.failure("an answer could not be written", failure))
        return NOT_DONE_YET

    def takesBody(self, request: Any, method: str, path: bytes) -> bool:
        """Return whether a request with this head is answered after its body."""
        page = self._pages.get(path.decode("latin-1"))
        if page is None or not page.post:
            return False
        try:
            self._check(request, method, path.decode("latin-1"), page)
        except (HttpRefusal, BrokerError):
            return False
        return True

    async def _answer(self, request: Any, path: str, page: Page) -> HttpReply:
        """Check the request, again after its body, which may arrive long after its head, and answer it."""
        method = request.method.decode("latin-1")
        admitted = self._check(request, method, path, page)
        principal = None if admitted is None else admitted.principal
        request.arguments = _posted(request.content.read()) if page.post else _queried(request.args)
        return await page.answer(
            PageRequest(
                method,
                path,
                request.arguments,
                None if admitted is None else admitted.rights,
                ANONYMOUS if principal is None else principal.name,
                _field(request, b"accept") or "",
            )
        )

    def _check(self, request: Any, method: str, path: str, page: Page) -> Admitted | None:
        """Return the current rights of a request; raises HttpRefusal or BrokerError for one that is refused."""
        if method not in page.methods:
            allowed = ", ".join(page.methods)
            raise HttpRefusal(405, f"this path takes {allowed} only", {"allow": allowed})
        if page.post and (_field(request, b"content-type") or "").partition(";")[0].strip().lower() != JSON:
            raise HttpRefusal(415, f"what is posted must be {JSON}")  # a foreign page needs leave to post this type
        admitted: Admitted | None = getattr(request.channel, "admitted", None)
        admitted = None if admitted is None else self._renewed(admitted)
        if page.action is not None:
            if admitted is None:
                raise HttpRefusal(401, "credentials are required", {"www-authenticate": CHALLENGE})
            if not admitted.rights.may(page.action, path[1:]):
                raise HttpRefusal(403, "not permitted")
        return admitted

    def _audited(self, reply: HttpReply, request: Any, path: str) -> HttpReply:
        """Record an act, or a refusal, and return its answer."""
        refused = reply.code in (401, 403)
        if refused or (self._pages[path].post and request.method == b"POST"):
            admitted: Admitted | None = getattr(request.channel, "admitted", None)
            principal = None if admitted is None else admitted.principal
            who = {
                "principal": ANONYMOUS if principal is None else principal.name,
                "address": peerAddress(request.getClientAddress()),
                "dialect": "http",
                "path": path,
            }
            error = {} if reply.code < 400 else {"reason": f"{reply.code} {json.loads(reply.body)['error']}"}
            arguments = None if refused else getattr(request, "arguments", None)
            self._audit("refused" if refused else "admin", arguments, **who, **error)
        return reply


class WebSite(WelcomeSite):
    """Serves the welcome page and all others.

    :param ways: the dialects at the same address.
    :param nobody: returns the rights of requests without credentials, None if credentials are required.
    :param renewed: returns an earlier admission with today's rights; raises Unauthorized.
    :param rules: the limits of requests.
    :param audit: as for :class:`Pages`.
    """

    protocol = AdmittedChannel

    def __init__(
        self,
        reactor: IReactorTime,
        ways: Sequence[WelcomeEntry],
        pages: Mapping[str, Page],
        nobody: Callable[[], Admitted | None] = unrestricted,
        renewed: Renewed = lambda admitted: admitted,
        rules: RequestRules | None = None,
        audit: Callable[..., None] = lambda *arguments, **fields: None,
    ) -> None:
        super().__init__(reactor, ways, Pages(WelcomePage(ways), pages, renewed, audit), rules)
        self._nobody = nobody

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Return a channel with the rights of requests without credentials."""
        channel: Any = super().buildProtocol(addr)
        channel.admitted = self._nobody()
        return channel


def _field(request: Any, name: bytes) -> str | None:
    """Return a header field as text, regardless of its bytes."""
    value: bytes | None = request.getHeader(name)
    return None if value is None else value.decode("latin-1")


def _queried(arguments: Mapping[bytes, Sequence[bytes]]) -> dict[str, Any]:
    """Return the arguments of a query; ``limit`` becomes an integer if possible."""
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
    """Return the answer to a request that failed."""
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
        *COMMON_FIELDS,
        (b"content-type", reply.kind.encode() + (b"; charset=utf-8" if reply.kind == JSON else b"")),
        (b"content-length", b"%d" % len(reply.body)),
    ):
        request.setHeader(name, value)
    if request.method != b"HEAD":
        request.write(reply.body)
    request.finish()
