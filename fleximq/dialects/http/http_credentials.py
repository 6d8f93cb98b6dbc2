"""Credentials in an HTTP request: ``Authorization``, or a query parameter where a browser's page cannot set headers.

Pure: a head in, credentials out. :func:`withoutCredentials` cuts them out of a request, so that what serves it, and
may log it, never sees them. docs/dialects.rst, "Credentials".
"""

import base64
from typing import NamedTuple
from urllib.parse import unquote_plus

from twisted.cred.credentials import ICredentials
from zope.interface import implementer

from fleximq.dialects.http.request_head import RequestHead
from fleximq.security.credentials import ApiKey, Password, Token

#: The query parameters that hold credentials.
_PARAMETERS = {"token": Token, "api_key": ApiKey}
#: What a 401 asks for.
CHALLENGES = ('Basic realm="FlexiMQ", charset="UTF-8"', 'Bearer realm="FlexiMQ"')


@implementer(ICredentials)
class Unreadable:
    """Something was shown that no checker can look into: malformed, of an unknown kind, or more than one thing."""


class Shown(NamedTuple):
    """What a request shows.

    ``knownToPage`` says that a page in a browser must have known the credentials itself: browsers add those of
    ``Authorization`` by themselves, whosever page it is.
    """

    credentials: ICredentials | None
    knownToPage: bool = False


def shownIn(head: RequestHead) -> Shown:
    """Return the credentials that a request shows, or that it shows none."""
    authorizations = head.fields.get("authorization", ())
    parameters = [each for each in map(_parameter, _queryOf(head.target)) if each is not None]
    if len(authorizations) + len(parameters) > 1:
        return Shown(Unreadable())
    if parameters:
        return Shown(parameters[0], knownToPage=True)
    return Shown(_authorization(authorizations[0]) if authorizations else None)


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
            return Unreadable()
        if colon:
            return Password(username, password)
    return Unreadable()
