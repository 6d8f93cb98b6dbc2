"""The head of an HTTP/1 request as a value, and the dialect and credentials that it names.

Credentials are in ``Authorization``, or in a query parameter for web pages that cannot set headers. The web site, which
may log requests, never sees them. docs/reference/dialects.rst, "Credentials".
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from twisted.cred.credentials import ICredentials
from zope.interface import implementer

from fleximq.security.credentials import ApiKey, Password, Token

#: Maximum size of a head, including its empty line.
HEAD_BYTES = 16 * 1024
#: Maximum number of header fields.
FIELDS = 100
#: Maximum size of a body: no page accepts more.
BODY_BYTES = 64 * 1024

#: Paths of FlexiMQ over WebSocket, document 6.2; all others mean Identity.
FLEXIMQ_PATHS = frozenset({"/ws", "/messaging"})
_SUBPROTOCOLS = frozenset({"fleximq", "identity"})

_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)")


class HttpError(Exception):
    """A request is answered with ``code``, the text, ``challenges`` (``WWW-Authenticate``) and further header
    ``fields``, whole lines; then the connection is closed.
    """

    def __init__(self, code: int, sentence: str, challenges: Sequence[str] = (), fields: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.code = code
        self.challenges = challenges
        self.fields = fields


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and header fields; field names are in lower case, values in order of arrival.

    ``isLatest``: the request is HTTP/1.1 or newer, so that its connection stays open unless it says otherwise. Its
    ``repr`` shows only the method: all other parts may contain credentials.
    """

    method: str
    target: str = field(repr=False)
    fields: Mapping[str, tuple[str, ...]] = field(repr=False)
    isLatest: bool = field(default=True, repr=False)

    @classmethod
    def parse(cls, raw: bytes) -> "RequestHead":
        """Parse a complete head, without its empty line.

        :raises HttpError: 400 if it is malformed, 505 for another HTTP version, 431 for more than
            :data:`FIELDS` fields.
        """
        first, *lines = raw.decode("latin-1").split("\r\n")
        line = _REQUEST_LINE.fullmatch(first)
        if line is None:
            raise HttpError(400, "the request line is malformed")
        if line[3] != "1":
            raise HttpError(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
        if len(lines) > FIELDS:
            raise HttpError(431, f"the head of a request may have {FIELDS} fields")
        fields: dict[str, tuple[str, ...]] = {}
        for each in lines:
            found = _FIELD.fullmatch(each)
            if found is None:
                raise HttpError(400, "a header field is malformed")
            name = found[1].lower()
            fields[name] = (*fields.get(name, ()), found[2].strip(" \t"))
        return cls(line[1], line[2], fields, line[4] != "0")

    def checkBody(self) -> None:
        """Raise HttpError 400 or 413 for a body that no page of the web site takes."""
        length = self.only("content-length") or "0"
        if not re.fullmatch("[0-9]+", length, re.ASCII):
            raise HttpError(400, "Content-Length is no number")
        if "transfer-encoding" in self.fields or len(length) > 9 or int(length) > BODY_BYTES:
            raise HttpError(413, f"a body of at most {BODY_BYTES} bytes, announced by Content-Length, is taken")

    def only(self, name: str) -> str | None:
        """Return the value of a field that may occur once, None if it is absent.

        :raises HttpError: 400 if it occurs more often.
        """
        values = self.fields.get(name, ())
        if len(values) > 1:
            raise HttpError(400, f"the header field {name} occurs more than once")
        return values[0] if values else None

    def listed(self, name: str) -> list[str]:
        """Return the elements of a list field, as written."""
        return [each.strip(" \t") for value in self.fields.get(name, ()) for each in value.split(",")]

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def isUpgrade(self) -> bool:
        """Whether this requests a WebSocket."""
        return self.method == "GET" and "websocket" in (each.lower() for each in self.listed("upgrade"))


def webSocketDialect(head: RequestHead, offered: frozenset[str]) -> str:
    """Return which of the offered dialects a WebSocket request names: by subprotocol, else by path.

    The first subprotocol that names a dialect takes precedence over the path; unknown ones are ignored.

    :raises HttpError: 403 or 404 if that dialect is not offered here.
    """
    known = _SUBPROTOCOLS | offered
    named = [each for each in head.listed("sec-websocket-protocol") if each in known]
    for each in named:
        if each in offered:
            return each
    if named:
        raise HttpError(403, f"the subprotocol {named[0]} is not served on this listener")
    dialect = "fleximq" if head.path in FLEXIMQ_PATHS else "identity"
    if dialect not in offered:
        raise HttpError(404, f"the dialect {dialect} is not served on this listener")
    return dialect


#: The query parameters with credentials.
CREDENTIAL_PARAMETERS = {"token": Token, "api_key": ApiKey}
#: The challenges of a 401.
CHALLENGES: tuple[str, ...] = ('Basic realm="FlexiMQ", charset="UTF-8"', 'Bearer realm="FlexiMQ"')


def challengesFor(head: RequestHead) -> tuple[str, ...]:
    """Return the challenges for a request: a browser asks its user for a password for a page, not for parts of one."""
    return CHALLENGES if head.fields.get("sec-fetch-dest", ("document",)) == ("document",) else CHALLENGES[1:]


@implementer(ICredentials)
class UnreadableCredentials:
    """Credentials that no checker accepts: malformed, of an unknown kind, or more than one."""


def credentialsIn(head: RequestHead) -> ICredentials | None:
    """Return the credentials in a request, if any."""
    authorizations = head.fields.get("authorization", ())
    parameters = [each for each in map(_parameter, _queryOf(head.target)) if each is not None]
    if len(authorizations) + len(parameters) > 1:
        return UnreadableCredentials()
    if parameters:
        return parameters[0]
    return _authorization(authorizations[0]) if authorizations else None


def withoutCredentials(raw: bytes) -> bytes:
    """Return a well-formed head without its credentials."""
    first, *lines = raw.split(b"\r\n")
    method, target, version = first.decode("latin-1").split(" ")
    path = target.partition("?")[0]
    kept = "&".join(each for each in _queryOf(target) if _parameter(each) is None)
    line = f"{method} {path}{'?' if kept else ''}{kept} {version}".encode("latin-1")
    return b"\r\n".join([line, *(each for each in lines if not each.lower().startswith(b"authorization:"))])


def _queryOf(target: str) -> list[str]:
    return target.partition("?")[2].split("&")


def _parameter(text: str) -> ICredentials | None:
    name, _, value = text.partition("=")
    kind = CREDENTIAL_PARAMETERS.get(unquote_plus(name))
    return None if kind is None else kind(unquote_plus(value))


def _authorization(value: str) -> ICredentials:
    scheme, _, rest = value.partition(" ")
    rest = rest.strip(" ")
    if scheme.lower() == "bearer" and rest:
        return Token(rest)
    if scheme.lower() == "basic":
        try:
            username, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except ValueError:
            return UnreadableCredentials()
        if colon:
            return Password(username, password)
    return UnreadableCredentials()
