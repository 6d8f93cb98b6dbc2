"""Requests and replies of the pages, and protection against requests that a browser was tricked into.

A foreign web page can make a browser on this machine send requests to the broker, and a host name that resolves to this
machine (DNS rebinding) can make the answers readable. So the ``Host`` of a request must be an address or a name of this
machine, unless host names are trusted because the broker also serves other machines; and a request that changes state
must contain JSON, and must not originate from a page of another origin.
"""

import json
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fleximq.interfaces import IRights
from fleximq.rights import Action
from fleximq.security.peer_address import isAddress, isOwnName

JSON = "application/json"
#: Longer numbers are not meaningful, and Python's int is limited to some thousand digits.
_DIGITS = 20


class HttpRefusal(Exception):
    """A request that is answered with ``code`` and one sentence, the text of this exception."""

    def __init__(self, code: int, sentence: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.fields = dict(fields or {})


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An accepted request.

    ``rights`` are None without required credentials. ``arguments`` are those of the query, or of the posted JSON
    object. ``who`` is the principal's name for the log.
    """

    method: str
    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rights: IRights | None = None
    who: str = ""
    accept: str = ""

    def may(self, action: Action, name: str) -> bool:
        """Tell whether this request has a right."""
        return self.rights is not None and self.rights.may(action, name)

    def sees(self, topic: str) -> bool:
        """Tell whether a topic may be named in the answer: the request has a right to use it."""
        return any(self.may(action, topic) for action in (Action.SUBSCRIBE, Action.PUBLISH, Action.CONSUME))


class HttpReply(NamedTuple):
    """An answer."""

    body: bytes
    kind: str = JSON
    code: int = 200


def numberOf(text: str) -> int | str:
    """Return the integer in a text; the text itself, if it is not an integer or has too many digits."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else text


def jsonReply(value: Any, code: int = 200) -> HttpReply:
    """Return a value as JSON on one line."""
    return HttpReply(json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n", JSON, code)


class Page(NamedTuple):
    """One path: its function, and the required right.

    ``action`` None: no right is required. ``post``: the request changes state.
    """

    answer: Callable[[PageRequest], Coroutine[Any, Any, HttpReply]]
    action: Action | None = Action.READ
    post: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """The allowed methods."""
        return ("POST",) if self.post else ("GET", "HEAD")


def checkHost(host: str | None, namesTrusted: bool, added: Collection[str] = ()) -> None:
    """Check that a request was meant for this broker.

    :param host: the value of its ``Host`` field; None without one, as browsers never send.
    :param namesTrusted: accept any name.
    :param added: origins that the operator has allowed; their hosts are accepted.
    :raises HttpRefusal: 403.
    """
    if host is None or namesTrusted:
        return
    name = _nameOf(f"//{host}")
    if not name or not (isAddress(name) or isOwnName(name) or name in {_nameOf(each) for each in added}):
        raise HttpRefusal(403, "ask by an address or as localhost: other names are not trusted here")


def checkPost(kind: str | None, origin: str | None, host: str | None, site: str | None, added: Collection[str]) -> None:
    """Check that a request that changes state does not originate from a foreign page.

    :param kind: its ``Content-Type``.
    :param site: its ``Sec-Fetch-Site``.
    :raises HttpRefusal: 415 for another type than JSON, 403 for another origin.
    """
    if (kind or "").partition(";")[0].strip().lower() != JSON:
        raise HttpRefusal(415, f"what is posted must be {JSON}")
    if origin is not None and origin in added:
        return
    foreign = origin is not None and (host is None or urlsplit(origin.lower()).netloc != host.lower())
    if foreign or site not in (None, "same-origin", "none"):
        raise HttpRefusal(403, "pages of this origin are not admitted, see --allowed-origin")


def _nameOf(url: str) -> str:
    try:
        return urlsplit(url.lower()).hostname or ""
    except ValueError:
        return ""
