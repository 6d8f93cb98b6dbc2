"""Shared by all broker paths: checks of arguments, and paged listings."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Any, NamedTuple

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.errors import BadRequest, NoCapacity, NotStored

Arguments = Mapping[str, Any]


#: A path's function: takes the broker, the requester, its arguments, and the callback for the answer, a value for
#: MessagePack or a :class:`~fleximq.errors.BrokerError`; it may be called before the function returns or later.
Path = Callable[[Broker, ConnectedClient, Arguments, "Answer"], None]
Answer = Callable[[Any], None]

#: Rows of a page without ``limit``.
PAGE = 100
_MAX_PAGE = 1000
#: So many names are looked at in one turn of the reactor.
_LOOKED_AT = _MAX_PAGE + 1
#: Maximum number of names that are looked at for a page.
_LOOKED_AT_IN_ALL = 20 * _LOOKED_AT
_MAX_NUMBER = (1 << 63) - 1


def page(arguments: Arguments, kind: type, first: Any) -> tuple[Any, int]:
    """Return the key after which a listing continues, and its number of rows; raises BadRequest if one is wrong."""
    after = arguments.get("after", first)
    if isinstance(after, bool) or not isinstance(after, kind):
        raise BadRequest(f"'after' must be of type {kind.__name__}")
    if isinstance(after, int) and after > _MAX_NUMBER:
        raise BadRequest(f"'after' must be at most {_MAX_NUMBER}")
    return after, number(arguments, "limit", PAGE, _MAX_PAGE, least=1)


class Listing(NamedTuple):
    """The rows of one listing, with keys larger than ``after``, in the order of their keys.

    ``show`` returns a row as it is answered; ``sees`` selects the rows to list.
    """

    title: str
    rows: Iterable[Any]
    key: Callable[[Any], Any]
    show: Callable[[Any], Any]
    after: Any
    limit: int
    sees: Callable[[Any], bool] = lambda row: True

    def answer(self, broker: Broker, answer: Callable[[dict[str, Any]], None]) -> None:
        """Answer with one page of rows and ``next``, the key after which to continue, or nil; each turn looks at
        :data:`_LOOKED_AT` rows.
        """
        begin(broker, self._steps(answer))

    def atOnce(self) -> dict[str, Any]:
        """Return the value that :meth:`answer` passes to its callback; for few rows."""
        answers: list[dict[str, Any]] = []
        for _ in self._steps(answers.append):
            pass
        return answers[0]

    def _steps(self, answer: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        title, rows, key, show, after, limit, sees = self
        waiting = iter(tuple(rows))
        found: list[Any] = []
        while True:
            some = list(islice(waiting, _LOOKED_AT))
            found = nsmallest(limit + 1, [*found, *(row for row in some if key(row) > after and sees(row))], key)
            if len(some) < _LOOKED_AT:
                break
            yield
        more = len(found) > limit
        answer({title: [show(row) for row in found[:limit]], "next": key(found[limit - 1]) if more else None})


def seenNames(
    broker: Broker,
    sees: Callable[[str], bool],
    names: Callable[[int, str], list[str]],
    after: str,
    limit: int,
    answer: Callable[[list[str], str | None], None],
) -> None:
    """Call ``answer`` with a page of names and the name after which to continue, or None; perhaps in a later turn.

    The page is shorter than ``limit`` if many names are not shown: :data:`_LOOKED_AT_IN_ALL` are looked at. ``sees``
    selects the names to show, ``names`` returns the first so many names from one on, in order.
    """
    found: list[str] = []

    def steps() -> Iterator[None]:
        start = after and after + "\0"
        for _ in range(_LOOKED_AT_IN_ALL // _LOOKED_AT):
            some = names(_LOOKED_AT, start)
            found.extend(filter(sees, some))
            if len(some) < _LOOKED_AT or len(found) > limit:
                answer(found[:limit], found[limit - 1] if len(found) > limit else None)
                return
            start = some[-1] + "\0"
            yield
        answer(found[:limit], some[-1])

    begin(broker, steps())


def begin(broker: Broker, steps: Iterator[None]) -> None:
    """Take the first step at once, and the others in later turns."""
    if next(steps, steps) is None:
        broker.slices.run(steps)


def number(
    arguments: Arguments, name: str, otherwise: int | None = None, most: int = _MAX_NUMBER, least: int = 0
) -> int:
    """Return an argument that is a whole number, required unless ``otherwise`` is its default; raises BadRequest."""
    value = arguments.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name!r} must be a whole number from {least} to {most}")
    return value


def text(arguments: Arguments, name: str, most: int) -> str:
    """Return an argument that is a string, not empty, of at most so many bytes; raises BadRequest."""
    value = arguments.get(name)
    if not isinstance(value, str) or not 0 < _bytesOf(value) <= most:
        raise BadRequest(f"{name!r} must be a string of 1 to {most} bytes")
    return value


def _bytesOf(value: str) -> int:
    """Return the size of a text in UTF-8; 0 if it cannot be encoded, like half a surrogate pair from JSON."""
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        return 0


def array(arguments: Arguments, name: str, most: int = _MAX_NUMBER) -> list[Any]:
    """Return an argument that is an array of at most so many items; raises BadRequest."""
    value = arguments.get(name)
    if not isinstance(value, list):
        raise BadRequest(f"{name!r} must be an array")
    if len(value) > most:
        raise BadRequest(f"{name!r} may be at most {most}")
    return value


def answerStored(broker: Broker, answer: Answer, value: Any) -> None:
    """Answer with a value when the changes so far are on disk; with NotStored while the journal is read-only."""
    broker.whenStored(lambda reason: answer(value if reason is None else NotStored(reason)))


def journalOf(broker: Broker) -> Any:
    """Return the journal; raises NoCapacity if the broker has none on disk."""
    if not broker.journal.onDisk:
        raise NoCapacity("there is no journal: the broker was started without --journal")
    return broker.journal
