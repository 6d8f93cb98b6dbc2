"""Which records to read, by topic, offset and time; and their division among tasks. The values can be pickled."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from fleximq.limits import SYSTEM
from fleximq.values.patterns import anyOf

#: Approximate bytes of a journal that one task reads: the size of Spark's file partitions.
SLICE_BYTES = 128 << 20


class SegmentRange(NamedTuple):
    """Bytes of one segment from the frame at ``position`` on, with offsets from ``first`` up to before ``next``."""

    base: int
    position: int
    until: int
    first: int
    next: int


class Slice(NamedTuple):
    """The part of a journal that one task reads: offsets from ``start`` to before ``end`` in these pieces. ``limit`` is
    the position of the durable end when the slice was made.
    """

    path: str
    journal: str
    start: int
    end: int
    limit: int
    pieces: tuple[SegmentRange, ...]

    @property
    def bytes(self) -> int:
        """The number of bytes to read."""
        return sum(piece.until - piece.position for piece in self.pieces)


def divided(
    pieces: Sequence[tuple[SegmentRange, Sequence[tuple[int, int]]]], parts: int
) -> list[tuple[SegmentRange, ...]]:
    """Divide segment ranges into so many groups of about equal size, or fewer if they cannot be cut so small. Each has
    the positions at which it may be cut, and the offsets that begin there.
    """
    total = sum(piece.until - piece.position for piece, _ in pieces)
    share = max(1, -(-total // max(1, parts)))
    groups: list[list[SegmentRange]] = [[]]
    room = share
    for piece, cuts in pieces:
        for part in _cut(piece, cuts):
            size = part.until - part.position
            if groups[-1] and size - room > room:
                groups.append([])
                room += share
            room -= size
            last = groups[-1][-1] if groups[-1] else None
            if last is not None and last.base == part.base and last.until == part.position:
                groups[-1][-1] = last._replace(until=part.until, next=part.next)
            else:
                groups[-1].append(part)
    return [tuple(group) for group in groups if group]


def _cut(piece: SegmentRange, cuts: Sequence[tuple[int, int]]) -> list[SegmentRange]:
    parts = []
    for position, offset in cuts:
        if piece.position < position < piece.until:
            parts.append(piece._replace(until=position, next=offset))
            piece = piece._replace(position=position, first=offset)
    return [*parts, piece]


#: Greater than every offset and time.
FOREVER = (1 << 63) - 1
#: Less than every time.
NEVER = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Topics:
    """A selection of topics by all given conditions: accepted names, a regular expression for the full name,
    subscription patterns of which one has to match, prefixes of the name, and a function. No selection has topics of
    the broker, whose records are values and scheduled messages.
    """

    names: frozenset[str] | None = None
    pattern: str | None = None
    levels: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    accepts: Callable[[str], bool] | None = None

    def __contains__(self, name: str) -> bool:
        return (
            not name.startswith(SYSTEM)
            and (self.names is None or name in self.names)
            and (self.pattern is None or re.fullmatch(self.pattern, name) is not None)
            and (not self.levels or _matching(self.levels)(name))
            and all(map(name.startswith, self.prefixes))
            and (self.accepts is None or self.accepts(name))
        )

    @property
    def all(self) -> bool:
        """Whether every topic but the broker's own ones is selected."""
        return self == _ALL_TOPICS

    def only(self, names: Iterable[str]) -> "Topics":
        """Return this selection, restricted to these names."""
        wanted = frozenset(names)
        return replace(self, names=wanted if self.names is None else self.names & wanted)


_ALL_TOPICS = Topics()


@lru_cache(maxsize=16)
def _matching(levels: tuple[str, ...]) -> Callable[[str], bool]:
    return anyOf(levels)


@dataclass(frozen=True, slots=True)
class Selection:
    """Records with offsets ``start`` to before ``end`` and times ``since`` to before ``until``, in microseconds."""

    topics: Topics = Topics()
    start: int = 0
    end: int = FOREVER
    since: int = NEVER
    until: int = FOREVER

    def within(self, start: int, end: int) -> "Selection":
        """Return this selection, restricted to a range of offsets."""
        return replace(self, start=max(self.start, start), end=min(self.end, end))
