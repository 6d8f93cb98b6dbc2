"""One request as the pages here see it, and what they answer.

Which requests a browser may have been tricked into.

A page from anywhere can make a browser on this machine send requests here, and a name that was bent to this machine's
address (DNS rebinding) lets it read the answers. So the ``Host`` of a request must be an address or a name of this
machine, unless names are trusted because this is no broker for its own machine alone; and what changes something must
come as JSON, and not from a page of another origin.
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
#: No number that is meant has more digits, and Python's int takes no more than some thousands.
_DIGITS = 20


class HttpRefusal(Exception):
    """A request that is answered with ``code`` and one sentence, the text of this."""

    def __init__(self, code: int, sentence: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.fields = dict(fields or {})


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that was let through.

    ``rights`` are those of who asks, None if it has shown no credentials where some are required. ``arguments`` are
    those of the query, or of the JSON object that was posted. ``who`` is the visitor's name for the log.
    """

    method: str
    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rights: IRights | None = None
    who: str = ""
    accept: str = ""

    def may(self, action: Action, name: str) -> bool:
        """Tell whether this visitor may do that."""
        return self.rights is not None and self.rights.may(action, name)

    def sees(self, topic: str) -> bool:
        """Tell whether a topic may be named to this visitor: one that it may do something with."""
        return any(self.may(action, topic) for action in (Action.SUBSCRIBE, Action.PUBLISH, Action.CONSUME))


class HttpReply(NamedTuple):
    """A body of this kind."""

    body: bytes
    kind: str = JSON
    code: int = 200


def numberOf(text: str) -> int | str:
    """Return the whole number that a text spells; the text, if that is none or has more digits than anybody means."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else text


def jsonReply(value: Any, code: int = 200) -> HttpReply:
    """Return a value as JSON on one line."""
    return HttpReply(json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n", JSON, code)


class Page(NamedTuple):
    """One path: what answers it, and which right that needs.

    ``name`` is what the right is for, the path without its first slash by default; ``action`` None: no right is needed.
    ``post`` says that it changes something.
    """

    answer: Callable[[Visit], Coroutine[Any, Any, HttpReply]]
    action: Action | None = Action.READ
    post: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it answers to."""
        return ("POST",) if self.post else ("GET", "HEAD")


def checkHost(host: str | None, namesTrusted: bool, added: Collection[str] = ()) -> None:
    """See that a request was meant for this broker.

    :param host: the value of its ``Host`` field, None if there is none: no browser leaves it out.
    :param namesTrusted: whether any name will do.
    :param added: origins that an operator has allowed; their hosts are good as well.
    :raises HttpRefusal: 403.
    """
    if host is None or namesTrusted:
        return
    name = _nameOf(f"//{host}")
    if not name or not (isAddress(name) or isOwnName(name) or name in {_nameOf(each) for each in added}):
        raise HttpRefusal(403, "ask by an address or as localhost: other names are not trusted here")


def checkPost(kind: str | None, origin: str | None, host: str | None, site: str | None, added: Collection[str]) -> None:
    """See that a request that changes something does not come from somebody else's page.

    :param kind: its ``Content-Type``.
    :param site: its ``Sec-Fetch-Site``.
    :raises HttpRefusal: 415 for another kind than JSON, 403 for another origin.
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
