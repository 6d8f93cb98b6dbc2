"""Requests and replies of the pages: finds the page of a request, and checks access to it.

An error is a JSON object with the key ``error``. Answers are neither cached nor readable by pages of other origins;
:mod:`fleximq.dialects.http.routing.origins` protects the pages from foreign web pages.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any, NamedTuple

import msgpack
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET

from fleximq.errors import BrokerError, Unauthorized
from fleximq.interfaces import IRights
from fleximq.rights import Action
from fleximq.security.credentials import UNTRUSTED
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import ANONYMOUS, Admitted
from fleximq.security.web_sessions import WebSession, WebSessions
from fleximq.status import Status
from fleximq.values.nesting import NestedTooDeeply, checkNesting
from fleximq.web.session_cookie import SessionCookie
from fleximq.web.welcome_page import COMMON_FIELDS

_log = Logger()

JSON = "application/json"
#: Longer numbers are not meaningful, and Python's int is limited to some thousand digits.
_DIGITS = 20
#: The challenge for requests without required credentials.
CHALLENGE = 'Basic realm="FlexiMQ", Bearer realm="FlexiMQ"'
#: The challenge for scripts and parts of a page, for which a browser must not ask its user.
PART_CHALLENGE = 'Bearer realm="FlexiMQ"'
#: The path of the sign-in: the only one that a page may post to without the token of its session.
SIGN_IN = "/console/session"
#: The header with that token.
CSRF = b"x-fleximq-csrf"
#: Statuses that HTTP does not have.
_CODES = {Status.CLIENT_NOT_FOUND: 404, Status.AUTHENTICATION_FAILED: 401, Status.JOIN_REJECTED: 403}


class HttpRefusal(Exception):
    """A request that is answered with ``code`` and one sentence, the text of this exception."""

    def __init__(self, code: int, sentence: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.fields = dict(fields or {})


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An accepted request with its arguments, rights (None without required credentials) and the name for the log.

    ``session`` is the one that its cookie names, if that gives it its rights.
    """

    method: str
    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rights: IRights | None = None
    who: str = ""
    accept: str = ""
    admitted: Admitted | None = None
    session: WebSession | None = None
    cookie: SessionCookie = SessionCookie("", False, "")  # noqa: RUF009  (a value)
    address: Any = None

    @property
    def principal(self) -> str | None:
        """The name of who asks; None for anonymous requests."""
        return None if self.who == ANONYMOUS else self.who

    def may(self, action: Action, name: str) -> bool:
        """Tell whether this request has a right."""
        return self.rights is not None and self.rights.may(action, name)

    def sees(self, topic: str) -> bool:
        """Tell whether a topic may be named in the answer: the request has a right to use it."""
        return any(self.may(action, topic) for action in (Action.SUBSCRIBE, Action.PUBLISH, Action.CONSUME))


class HttpReply(NamedTuple):
    """An answer; ``fields`` are further header fields."""

    body: bytes
    kind: str = JSON
    code: int = 200
    fields: Mapping[str, str] = {}


def numberOf(text: str) -> int | str:
    """Return the integer in a text; the text itself, if it is not an integer or has too many digits."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else text


def jsonReply(value: Any, code: int = 200) -> HttpReply:
    """Return a value as JSON on one line; bytes become base64."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=lambda data: b64encode(data).decode())
    return HttpReply(text.encode() + b"\n", JSON, code)


class Argument(NamedTuple):
    """An argument of a page: its name, what it means, and its type in JSON Schema, which reads the texts of a query."""

    name: str
    words: str
    kind: str = "string"

    def read(self, texts: Sequence[str]) -> Any:
        """Return its value from a query; a text that does not fit the type remains, so that the page refuses it."""
        if self.kind == "array":
            return list(texts)
        if self.kind == "boolean":
            return {"true": True, "false": False}.get(texts[-1], texts[-1])
        return numberOf(texts[-1]) if self.kind == "integer" else texts[-1]


class Page(NamedTuple):
    """One path: its function, the required right, None for none, and whether the request changes state.

    ``words`` is a sentence about it, and ``arguments`` are those of the query, or of the posted JSON object.
    ``everywhere``: in a cluster, nodes that do not own the journal answer it too. ``also`` has further methods.
    """

    answer: Callable[[PageRequest], Coroutine[Any, Any, HttpReply]]
    action: Action | None = Action.READ
    post: bool = False
    words: str = ""
    arguments: Sequence[Argument] = ()
    everywhere: bool = False
    also: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """The allowed methods."""
        return (("POST",) if self.post else ("GET", "HEAD")) + self.also


class Pages(Resource):
    """All paths; ``renewed`` returns an earlier admission with today's rights or raises Unauthorized.

    A request without credentials of its own has those of its session, if there are ``sessions``.
    """

    isLeaf = True

    def __init__(
        self,
        welcome: IResource,
        pages: Mapping[str, Page],
        renewed: Callable[[Admitted], Admitted],
        audit: Callable[..., None],
        sessions: WebSessions | None = None,
    ) -> None:
        super().__init__()
        self._welcome, self._pages, self._renewed, self._audit = welcome, pages, renewed, audit
        self._sessions = sessions

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
        request.notifyFinish().addErrback(gone.append)
        answering.addErrback(_wordsOf, request)
        answering.addCallback(self._audited, request, path)
        answering.addCallback(lambda reply: None if gone else _write(request, reply))
        answering.addErrback(lambda failure: _log.failure("an answer could not be written", failure))
        return NOT_DONE_YET

    def takesBody(self, request: Any, method: str, path: bytes) -> bool:
        """Return whether a request with this head is answered after its body."""
        page = self._pages.get(path.decode("latin-1"))
        if page is None or method != "POST":
            return False
        try:
            self._check(request, method, path.decode("latin-1"), page)
        except (HttpRefusal, BrokerError):
            return False
        return True

    async def _answer(self, request: Any, path: str, page: Page) -> HttpReply:
        """Check the request, again after its body, which may arrive long after its head, and answer it."""
        method = request.method.decode("latin-1")
        admitted, session = self._check(request, method, path, page)
        rights = None if admitted is None else admitted.rights
        request.arguments = (
            _posted(request.content.read()) if method == "POST" else _queried(request.args, page.arguments)
        )
        accept, cookie = _field(request, b"accept") or "", SessionCookie.of(request)
        who, address = _nameOf(admitted), request.getClientAddress()
        return await page.answer(
            PageRequest(method, path, request.arguments, rights, who, accept, admitted, session, cookie, address)
        )

    def _check(self, request: Any, method: str, path: str, page: Page) -> tuple[Admitted | None, WebSession | None]:
        """Return the current rights of a request; raises HttpRefusal or BrokerError for one that is refused."""
        if method not in page.methods:
            allowed = ", ".join(page.methods)
            raise HttpRefusal(405, f"this path takes {allowed} only", {"allow": allowed})
        if method == "POST" and (_field(request, b"content-type") or "").partition(";")[0].strip().lower() != JSON:
            raise HttpRefusal(415, f"what is posted must be {JSON}")  # a foreign page needs leave to post this type
        if not getattr(request.channel.transport, "peerIsTrusted", True):
            raise HttpRefusal(401, UNTRUSTED)
        admitted, session = self._identified(request, page)
        request.who = _nameOf(admitted)
        isSignIn = path == SIGN_IN and method == "POST"
        if session is not None and method not in ("GET", "HEAD") and not isSignIn:
            token = request.getHeader(CSRF) or b""
            if not compare_digest(token, session.csrf.encode()):
                raise HttpRefusal(403, "the token of this session is missing in X-FlexiMQ-CSRF, or another one")
        if page.action is not None:
            if admitted is None:
                raise Unauthorized("credentials are required")
            if not admitted.rights.may(page.action, path[1:]):
                raise HttpRefusal(403, "not permitted")
        return admitted, session

    def _identified(self, request: Any, page: Page) -> tuple[Admitted | None, WebSession | None]:
        """Return whose request this is, and its session if there are no other credentials."""
        admitted: Admitted | None = getattr(request.channel, "admitted", None)
        cookie = SessionCookie.of(request).text if self._sessions is not None else ""
        if self._sessions is None or not cookie or (admitted is not None and admitted.principal is not None):
            return (None if admitted is None else self._renewed(admitted)), None
        session = self._sessions.find(cookie)
        if session is not None:
            try:
                return self._renewed(session.admitted), session
            except BrokerError:
                self._sessions.end(cookie)
                raise
        if page.action is not None:
            raise Unauthorized("this session has ended, sign in again")
        return (None if admitted is None else self._renewed(admitted)), None

    def _audited(self, reply: HttpReply, request: Any, path: str) -> HttpReply:
        """Record an act, or a refusal, and return its answer."""
        page, isPost = self._pages[path], request.method == b"POST"
        refused = reply.code in (401, 403) and (isPost or page.action is not None)
        if refused or (page.action is Action.ADMIN and page.post and isPost):
            who = {
                "principal": getattr(request, "who", _nameOf(getattr(request.channel, "admitted", None))),
                "address": peerAddress(request.getClientAddress()),
                "dialect": "http",
                "path": path,
            }
            error = {} if reply.code < 400 else {"reason": f"{reply.code} {json.loads(reply.body)['error']}"}
            arguments = None if refused else getattr(request, "arguments", None)
            self._audit("refused" if refused else "admin", arguments, **who, **error)
        return reply


def _nameOf(admitted: Admitted | None) -> str:
    return ANONYMOUS if admitted is None or admitted.principal is None else admitted.principal.name


def _field(request: Any, name: bytes) -> str | None:
    """Return a header field as text, regardless of its bytes."""
    value: bytes | None = request.getHeader(name)
    return None if value is None else value.decode("latin-1")


def _queried(query: Mapping[bytes, Sequence[bytes]], arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return the arguments of a query that the page takes."""
    found = {name.decode("latin-1"): [each.decode("utf-8", "replace") for each in query[name]] for name in query}
    return {each.name: each.read(found[each.name]) for each in arguments if each.name in found}


def _posted(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise HttpRefusal(400, "what was posted is not JSON") from None
    if not isinstance(value, dict):
        raise HttpRefusal(400, "what is posted must be a JSON object")
    try:
        checkNesting(value)
        msgpack.packb(value)  # as for other nodes
    except NestedTooDeeply as error:
        raise HttpRefusal(400, f"what was posted is {error}") from None
    except (UnicodeEncodeError, OverflowError):
        raise HttpRefusal(400, "what was posted has half a surrogate pair, or a number of more than 64 bits") from None
    return value


def _wordsOf(failure: Failure, request: Any) -> HttpReply:
    error = failure.value
    if isinstance(error, HttpRefusal):
        return jsonReply({"error": str(error)}, error.code)._replace(fields=error.fields)
    if isinstance(error, BrokerError):
        code = _CODES.get(error.status, int(error.status))
        isPart = request.getHeader(b"sec-fetch-dest") not in (None, b"document")
        challenge = {"www-authenticate": PART_CHALLENGE if isPart else CHALLENGE}
        return jsonReply({"error": str(error)}, code)._replace(fields=challenge if code == 401 else {})
    _log.failure("{path} could not be answered", failure, path=request.path.decode("latin-1"))
    return jsonReply({"error": "internal error"}, 500)


def _write(request: Any, reply: HttpReply) -> None:
    request.setResponseCode(reply.code)
    for name, value in (
        *COMMON_FIELDS,
        *((name.encode(), value.encode()) for name, value in reply.fields.items()),
        (b"content-type", reply.kind.encode() + (b"; charset=utf-8" if reply.kind == JSON else b"")),
        (b"content-length", b"%d" % len(reply.body)),
    ):
        request.setHeader(name, value)
    if request.method != b"HEAD":
        request.write(reply.body)
    request.finish()
