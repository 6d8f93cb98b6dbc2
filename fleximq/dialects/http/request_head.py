"""The head of an HTTP/1 request as a value, and what it asks for.

Pure: bytes in, values out. What follows from them is for :mod:`fleximq.dialects.http.request_router`.

Credentials in an HTTP request: ``Authorization``, or a query parameter where a browser's page cannot set headers.

Pure: a head in, credentials out. :func:`withoutCredentials` cuts them out of a request, so that what serves it, and
may log it, never sees them. docs/dialects.rst, "Credentials".
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote_plus

from twisted.cred.credentials import ICredentials
from zope.interface import implementer

from fleximq.security.credentials import ApiKey, Password, Token

#: The longest head, from the first byte to the empty line, inclusive.
HEAD_BYTES = 16 * 1024
#: The longest body that anything here has a use for.
BODY_BYTES = 64 * 1024

#: Paths that mean FlexiMQ over WebSocket, document 6.2; all others mean Identity.
FLEXIMQ_PATHS = frozenset({"/ws", "/messaging"})
_SUBPROTOCOLS = frozenset({"fleximq", "identity"})

_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


class HttpError(Exception):
    """A request that is answered with ``code`` and closed; the text is the sentence for the client.

    ``challenges`` are the values of ``WWW-Authenticate`` in the answer.
    """

    def __init__(self, code: int, sentence: str, challenges: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.code = code
        self.challenges = challenges


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and header fields; the names of fields are in lower case, their values in order of arrival.

    Its ``repr`` shows the method only: there may be credentials in all the rest.
    """

    method: str
    target: str = field(repr=False)
    fields: Mapping[str, tuple[str, ...]] = field(repr=False)

    @classmethod
    def parse(cls, raw: bytes) -> "RequestHead":
        """Read a whole head, without its empty line.

        :raises HttpError: 400 for what is no HTTP, 505 for another version of it, 413 for a body that is too large.
        """
        first, *lines = raw.decode("latin-1").split("\r\n")
        line = _REQUEST_LINE.fullmatch(first)
        if line is None:
            raise HttpError(400, "the request line is malformed")
        if line[3] != "1":
            raise HttpError(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
        fields: dict[str, tuple[str, ...]] = {}
        for each in lines:
            found = _FIELD.fullmatch(each)
            if found is None:
                raise HttpError(400, "a header field is malformed")
            name = found[1].lower()
            fields[name] = (*fields.get(name, ()), found[2].rstrip(" \t"))
        head = cls(line[1], line[2], fields)
        head._checkBody()
        return head

    def _checkBody(self) -> None:
        length = self.only("content-length") or "0"
        if not re.fullmatch("[0-9]+", length, re.ASCII):
            raise HttpError(400, "Content-Length is no number")
        if "transfer-encoding" in self.fields or len(length) > 9 or int(length) > BODY_BYTES:
            raise HttpError(413, f"a body of at most {BODY_BYTES} bytes, announced by Content-Length, is taken")

    def only(self, name: str) -> str | None:
        """Return the value of a field that may stand only once, None if it is absent.

        :raises HttpError: 400 if it stands more often.
        """
        values = self.fields.get(name, ())
        if len(values) > 1:
            raise HttpError(400, f"the header field {name} stands more than once")
        return values[0] if values else None

    def listed(self, name: str) -> list[str]:
        """Return the elements of a field that holds a list, as written."""
        return [each.strip(" \t") for value in self.fields.get(name, ()) for each in value.split(",")]

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def isUpgrade(self) -> bool:
        """Whether this asks for a WebSocket."""
        return self.method == "GET" and "websocket" in (each.lower() for each in self.listed("upgrade"))


def webSocketDialect(head: RequestHead, offered: frozenset[str]) -> str:
    """Return which of the offered dialects a WebSocket request asks for: by subprotocol, else by path.

    The client's first subprotocol that names a dialect wins over the path; unknown ones say nothing.

    :raises HttpError: 403 or 404 where the dialect it asks for is not offered here.
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


#: The query parameters that hold credentials.
_PARAMETERS = {"token": Token, "api_key": ApiKey}
#: What a 401 asks for.
CHALLENGES = ('Basic realm="FlexiMQ", charset="UTF-8"', 'Bearer realm="FlexiMQ"')


@implementer(ICredentials)
class UnreadableCredentials:
    """Something was shown that no checker can look into: malformed, of an unknown kind, or more than one thing."""


class ShownCredentials(NamedTuple):
    """What a request shows.

    ``knownToPage`` says that a page in a browser must have known the credentials itself: browsers add those of
    ``Authorization`` by themselves, whosever page it is.
    """

    credentials: ICredentials | None
    knownToPage: bool = False


def credentialsIn(head: RequestHead) -> ShownCredentials:
    """Return the credentials that a request shows, or that it shows none."""
    authorizations = head.fields.get("authorization", ())
    parameters = [each for each in map(_parameter, _queryOf(head.target)) if each is not None]
    if len(authorizations) + len(parameters) > 1:
        return ShownCredentials(UnreadableCredentials())
    if parameters:
        return ShownCredentials(parameters[0], knownToPage=True)
    return ShownCredentials(_authorization(authorizations[0]) if authorizations else None)


def withoutCredentials(raw: bytes) -> bytes:
    """Return the head of a request, which is well-formed, without the credentials in it."""
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
    kind = _PARAMETERS.get(unquote_plus(name))
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
