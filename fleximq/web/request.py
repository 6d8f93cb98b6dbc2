"""Requests and replies of the pages. :mod:`fleximq.dialects.http.origins` protects them from foreign web pages."""

import json
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fleximq.interfaces import IRights
from fleximq.rights import Action

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
    """Return a value as JSON on one line; bytes become base64."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=lambda data: b64encode(data).decode())
    return HttpReply(text.encode() + b"\n", JSON, code)


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
