"""What the broker's paths have in common: their shape, their arguments, and listings that come in pages."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any

from fleximq.broker.envelope import ConnectedClient
from fleximq.errors import BadRequest, NoCapacity

if TYPE_CHECKING:
    from fleximq.broker.broker import Broker

Arguments = Mapping[str, Any]
#: Takes who asks, and arguments, and gives a value for MessagePack, or an error, to the last one; now or later.
Path = Callable[["Broker", ConnectedClient, Arguments, Callable[[Any], None]], None]

_PAGE = 100
_MAX_PAGE = 1000
_MAX_NUMBER = (1 << 63) - 1


def page(arguments: Arguments, kind: type, first: Any) -> tuple[Any, int]:
    """Return after which key a listing is to go on, and how many rows are wanted.

    :raises BadRequest: one of the two has a wrong type or value.
    """
    after = arguments.get("after", first)
    limit = arguments.get("limit", _PAGE)
    if isinstance(after, bool) or not isinstance(after, kind):
        raise BadRequest(f"'after' must be of type {kind.__name__}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_PAGE:
        raise BadRequest(f"'limit' must be a whole number from 1 to {_MAX_PAGE}")
    return after, limit


def listing(
    title: str, rows: Iterable[Any], key: Callable[[Any], Any], after: Any, limit: int, show: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return one page of rows, and under ``next`` the key to go on after, or nil."""
    found = nsmallest(limit + 1, (row for row in rows if key(row) > after), key)
    more = len(found) > limit
    return {title: [show(row) for row in found[:limit]], "next": key(found[limit - 1]) if more else None}


class SortedNames:
    """Names in their order, which is found anew only where others are asked for than the last time.

    For listings so long that every page would put all of it in order: a page costs 0.03 us for each name that there is,
    or nothing where the mapping is the one of the last time. One that was given is not changed any more.
    """

    def __init__(self) -> None:
        self._names: Mapping[str, Any] = {}
        self._sorted: list[str] = []

    def after(self, names: Mapping[str, Any], after: str) -> Iterator[str]:
        """Return those of the names that come after this one, in order."""
        if names is not self._names:
            if len(names) != len(self._sorted) or not all(map(names.__contains__, self._sorted)):
                self._sorted = sorted(names)
            self._names = names
        return islice(self._sorted, bisect_right(self._sorted, after), None)


def number(arguments: Arguments, name: str, otherwise: int | None = None, most: int = _MAX_NUMBER) -> int:
    """Return an argument that is a whole number from 0 on.

    :param otherwise: what it is if it is left out; None: it may not be.
    :raises BadRequest: it is missing, or something else.
    """
    value = arguments.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadRequest(f"{name!r} must be a whole number from 0 to {most}")
    return value


def text(arguments: Arguments, name: str, most: int) -> str:
    """Return an argument that is a string, not empty, of at most so many bytes.

    :raises BadRequest: it is missing, or something else.
    """
    value = arguments.get(name)
    if not isinstance(value, str) or not 0 < _bytesOf(value) <= most:
        raise BadRequest(f"{name!r} must be a string of 1 to {most} bytes")
    return value


def _bytesOf(value: str) -> int:
    """Return how long a text is in UTF-8; 0 if it is none, as half a pair that JSON has spelt."""
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        return 0


def array(arguments: Arguments, name: str) -> list[Any]:
    """Return an argument that is an array.

    :raises BadRequest: it is missing, or something else.
    """
    value = arguments.get(name)
    if not isinstance(value, list):
        raise BadRequest(f"{name!r} must be an array")
    return value


def journalOf(broker: "Broker") -> Any:
    """Return the journal.

    :raises NoCapacity: there is none on disk.
    """
    if not broker.journal.onDisk:
        raise NoCapacity("there is no journal")
    return broker.journal
