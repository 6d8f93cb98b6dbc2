"""The paths of plain HTTP in one table, by which requests are answered and the OpenAPI document is made.

A path has a *root*, a name and perhaps an *action*, its last segment. The name is everything between them: percent-
encoded bytes are decoded once, as UTF-8, and nothing else is changed. So ``a/b`` and ``a%2Fb`` are the same name,
``.`` and ``..`` are ordinary segments, and a name that ends with an action is written with ``%2F`` before it. Where a
path has two names, the first is one segment, and the second everything after it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from fleximq.dialects.http.format.request_head import HttpError


class Parameter(NamedTuple):
    """An argument of a route: a query parameter and, if ``field`` is set, a header field. ``schema`` is a type of JSON
    Schema.
    """

    name: str
    schema: str
    words: str
    field: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One method of one shape of path.

    ``act`` is called with the :class:`fleximq.dialects.http.operations.exchange.Exchange` of each complete request.
    ``parameters`` are the arguments that it takes, others are refused.
    ``takes`` are the content types of its body, none without one; ``answers`` has a sentence about each status.
    ``right`` and ``words`` are for documents.
    """

    method: str
    root: str
    names: tuple[str, ...]
    act: Callable[[Any], None]
    words: str
    right: str
    action: str = ""
    parameters: tuple[Parameter, ...] = ()
    takes: tuple[str, ...] = ()
    answers: Mapping[int, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The shape of its paths, as in OpenAPI."""
        return "/".join(["", self.root, *(f"{{{each}}}" for each in self.names), *filter(None, [self.action])])


class Routes:
    """The routes of a table by their paths."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.all = routes
        self._byShape: dict[tuple[str, str], dict[str, Route]] = {}
        for each in routes:
            self._byShape.setdefault((each.root, each.action), {})[each.method] = each

    def __iter__(self) -> Iterator[Route]:
        return iter(self.all)

    def find(self, path: str) -> tuple[Mapping[str, Route], tuple[str, ...]]:
        """Return the routes of a path by method, and the names in it.

        :raises HttpError: 404 for a path without any, 400 for a name that is not UTF-8.
        """
        _, root, *rest = path.split("/")
        isAction = len(rest) > 1 and rest[-1] != "" and (root, rest[-1]) in self._byShape
        action = rest.pop() if isAction else ""
        found = self._byShape.get((root, action))
        if root in _MISSPELT:
            raise HttpError(404, f"there is no path /{root}/, did you mean /{_MISSPELT[root]}/?")
        if found is None:
            raise HttpError(404, _UNKNOWN)
        most = len(next(iter(found.values())).names)
        names = tuple(map(decoded, "/".join(rest).split("/", most - 1)))
        if len(names) < most or not names[0]:
            raise HttpError(404, _UNKNOWN)
        return found, names


_UNKNOWN = "no such path; /openapi.json lists them"
#: The first segments of paths that this protocol serves; all others belong to the web site.
ROOTS = frozenset({"topics", "queues", "request", "schedules"})
#: The first segments of paths that mean others.
_MISSPELT = {"topic": "topics", "queue": "queues", "requests": "request", "schedule": "schedules"}
_SERVED = ROOTS.union(_MISSPELT)


def isServed(path: str) -> bool:
    """Return whether a path belongs to plain HTTP and not to the web site."""
    return path[1:].partition("/")[0] in _SERVED and path.count("/") > 1


def decoded(text: str) -> str:
    """Return percent-encoded text; raises HttpError 400 if it is malformed or not UTF-8."""
    if "%" not in text:
        return text
    for part in text.split("%")[1:]:
        if len(part) < 2 or not all(each in "0123456789abcdefABCDEF" for each in part[:2]):
            raise HttpError(400, "a percent sign must be followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text).decode()
    except ValueError:
        raise HttpError(400, "percent-encoded text must be UTF-8") from None
