"""Start, end and batch limits of a read. Offsets count all topics, so the next one of a journal is its progress."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple, Protocol

from fleximq.journal.files.record_distance import Distance
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.files.selection import FOREVER

_log = logging.getLogger("fleximq.pipeline")
#: The next offset of each journal, in the order of their ids.
Offsets = dict[str, int]
_DIGITS = 19
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordsMissing(PipelineError):
    """Requested records are damaged or removed by retention; the text names their offsets."""


class StartKind(Enum):
    """The meaning of a point's value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


class Point(NamedTuple):
    """A point in a journal; ``value`` is an offset or a time in microseconds since 1970."""

    kind: StartKind
    value: int = 0


EARLIEST, LATEST = Point(StartKind.EARLIEST), Point(StartKind.LATEST)
#: Kafka's numbers for the first and the next offset are -2 and -1.
_WORDS = {"earliest": EARLIEST, "latest": LATEST, "-2": EARLIEST, "-1": LATEST}


class OffsetSource(Protocol):
    """A journal: its first retained and its next offset, and that of the first record of a time, or else the next."""

    def bounds(self) -> Any: ...

    def offsetAt(self, time: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Points:
    """A point for each journal: that of ``named`` under its id, or else ``others``."""

    others: Point
    named: Mapping[str, Point] = field(default_factory=dict)

    def of(self, journal: str) -> Point:
        """Return the point for a journal."""
        return self.named.get(journal, self.others)

    def check(self, what: str, journals: Iterable[str]) -> None:
        """Check that all named journals are among those that are read; raises OptionRefused for another one."""
        known = sorted(journals)
        for journal in self.named:
            if journal not in known:
                raise OptionRefused(
                    f"the {what} is given for the journal {journal!r}, but there is only {', '.join(known) or 'none'}"
                )


def pointsOf(name: str, written: str, others: Point) -> Points:
    """Read ``startingOffsets`` and its companions: ``earliest`` (or -2, as for Kafka), ``latest`` (-1), an offset, or
    JSON with one for each journal; ``others`` is for journals that it does not name. Raises OptionRefused.
    """
    return _points(name, written.strip(), others, _offset)


def timesOf(name: str, written: str, others: Point) -> Points:
    """Read ``startingTimestamp`` likewise: milliseconds since 1970, ISO 8601, or JSON with one for each journal."""
    return _points(name, written.strip(), others, _time)


def _points(name: str, text: str, others: Point, read: Callable[[str, Any, str], Point]) -> Points:
    if not text.startswith("{"):
        return Points(read(name, text, text))
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not fields:
        raise OptionRefused(f"the option {name!r} is {text!r}, but must be JSON with a value for each journal's id")
    words = {journalId: str(value) if type(value) in (int, str) else "" for journalId, value in fields.items()}
    return Points(others, {journalId: read(name, value, words[journalId]) for journalId, value in fields.items()})


def _isNumber(text: str, most: int = FOREVER) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) <= most


def _offset(name: str, written: Any, text: str) -> Point:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _isNumber(text):
        raise OptionRefused(f"the option {name!r} has {written!r}, but must have earliest, latest or an offset")
    return Point(StartKind.OFFSET, max(1, int(text)))  # 0 is the first offset of Kafka


def _time(name: str, written: Any, text: str) -> Point:
    if _isNumber(text, FOREVER // 1000):
        return Point(StartKind.TIME, int(text) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionRefused(
            f"the option {name!r} has {written!r}, but must have milliseconds since 1970 or a time, e.g. "
            "2026-01-31T12:00:00Z"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return Point(StartKind.TIME, (moment - _EPOCH) // timedelta(microseconds=1))


def resolved(point: Point, journal: OffsetSource) -> int:
    """Return the offset of a point."""
    if point.kind is StartKind.TIME:
        return journal.offsetAt(point.value)
    if point.kind is StartKind.OFFSET:
        return point.value
    return int(journal.bounds().first if point.kind is StartKind.EARLIEST else journal.bounds().next)


def startOf(point: Point, journal: Any, fail: bool) -> int:
    """Return the offset of a point that a read can start from; another one is reported by :func:`reportLoss`."""
    start = resolved(point, journal)
    return checked(journal.id, start, journal.bounds(), fail) if point.kind is StartKind.OFFSET else start


def checked(journal: str, start: int, bounds: Any, fail: bool) -> int:
    """Return the retained offset nearest to a start; if it differs, that is reported by :func:`reportLoss`."""
    reachable = int(min(max(start, bounds.first), bounds.next))
    if start < reachable:
        reportLoss(
            f"journal {journal} has no offsets {start} to {bounds.first - 1} any more: retention has removed them", fail
        )
    elif start > reachable:
        reportLoss(f"journal {journal} has no offset {start} yet: the next one is {bounds.next}", fail)
    return reachable


def reportLoss(sentence: str, fail: bool) -> None:
    """Raise RecordsMissing with a sentence about missing records, or log it unless ``fail``."""
    if fail:
        raise RecordsMissing(f"{sentence} (the option failOnDataLoss=false reads on)")
    _log.warning("%s", sentence)


def ordered(offsets: Mapping[str, int]) -> Offsets:
    """Return offsets ordered by id, because Spark compares their JSON as text."""
    return {journal: offsets[journal] for journal in sorted(offsets)}


#: Advances from one offset of a journal up to another, by at most so many records and so many bytes.
Advance = Callable[[str, int, int, int | None, int | None], Distance]


def batchEnd(
    start: Mapping[str, int], end: Mapping[str, int], records: int | None, size: int | None, advance: Advance
) -> Offsets:
    """Return the end of a micro-batch from ``start`` to ``end`` at most, of about so many records and bytes; None:
    unlimited. Journals with long backlogs share the rest of a limit evenly. ``advance`` takes at least one record.
    """
    if records is None and size is None:
        return ordered({**start, **end})
    reached = {**end, **start}
    waiting = [journal for journal in sorted(end) if reached[journal] < end[journal]]
    while waiting:
        behind = []
        for number, journal in enumerate(waiting):
            if not (_some(records) and _some(size)):
                return ordered(reached)
            left = len(waiting) - number
            found = advance(journal, reached[journal], end[journal], _share(records, left), _share(size, left))
            reached[journal] = found.offset
            records = None if records is None else records - found.records
            size = None if size is None else size - found.bytes
            if found.offset < end[journal]:
                behind.append(journal)
        if len(behind) == len(waiting):
            break
        waiting = behind
    return ordered(reached)


def _some(left: int | None) -> bool:
    return left is None or left > 0


def _share(left: int | None, among: int) -> int | None:
    return None if left is None else -(-left // among)
