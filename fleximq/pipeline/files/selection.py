"""Which records are wanted: by topic, offset and time.

How what is to be read is divided among tasks: small values that travel to other processes.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from fleximq.values.patterns import anyOf

#: About how many bytes of a journal one task reads: as many as Spark gives a task of files.
SLICE_BYTES = 128 << 20


class SegmentRange(NamedTuple):
    """Bytes of one segment from the frame at ``position`` on, with offsets from ``first`` up to before ``next``."""

    base: int
    position: int
    until: int
    first: int
    next: int


class Slice(NamedTuple):
    """What one task reads of a journal: records with offsets from ``start`` up to before ``end`` in these pieces.

    ``limit`` is the position behind all that was committed when the slice was made.
    """

    path: str
    journal: str
    start: int
    end: int
    limit: int
    pieces: tuple[SegmentRange, ...]

    @property
    def bytes(self) -> int:
        """How many bytes are read."""
        return sum(piece.until - piece.position for piece in self.pieces)


def divided(
    pieces: Iterable[tuple[SegmentRange, Sequence[tuple[int, int]]]], parts: int
) -> list[tuple[SegmentRange, ...]]:
    """Return pieces in so many groups of about equally many bytes, or fewer where they cannot be cut so small.

    :param pieces: each with the places at which it may be cut, positions with the offsets that begin there.
    """
    pieces = list(pieces)
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
            groups[-1].append(part)
            room -= size
    return [tuple(_joined(group)) for group in groups if group]


def _cut(piece: SegmentRange, cuts: Sequence[tuple[int, int]]) -> list[SegmentRange]:
    parts = []
    for position, offset in cuts:
        if piece.position < position < piece.until:
            parts.append(piece._replace(until=position, next=offset))
            piece = piece._replace(position=position, first=offset)
    return [*parts, piece]


def _joined(parts: Sequence[SegmentRange]) -> list[SegmentRange]:
    """Return parts of the same segment that touch as one."""
    joined: list[SegmentRange] = []
    for part in parts:
        if joined and joined[-1].base == part.base and joined[-1].until == part.position:
            joined[-1] = joined[-1]._replace(until=part.until, next=part.next)
        else:
            joined.append(part)
    return joined


#: Later and larger than all that there is.
FOREVER = (1 << 63) - 1
#: Earlier than all that there is.
NEVER = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Topics:
    """Some topics: those for which all that is given holds; without anything, all of them.

    ``names`` are those wanted, ``pattern`` a regular expression for the whole name, ``levels`` are patterns as in a
    subscription of which one has to match, ``prefixes`` are beginnings that a name must all have.
    """

    names: frozenset[str] | None = None
    pattern: str | None = None
    levels: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return (
            (self.names is None or name in self.names)
            and (self.pattern is None or re.fullmatch(self.pattern, name) is not None)
            and (not self.levels or _matching(self.levels)(name))
            and all(map(name.startswith, self.prefixes))
        )

    @property
    def all(self) -> bool:
        """Whether every topic is wanted."""
        return self.names is None and self.pattern is None and not self.levels and not self.prefixes

    def only(self, names: Iterable[str]) -> "Topics":
        """Return those of these topics that have one of these names."""
        wanted = frozenset(names)
        return replace(self, names=wanted if self.names is None else self.names & wanted)


@lru_cache(maxsize=16)
def _matching(levels: tuple[str, ...]) -> Callable[[str], bool]:
    return anyOf(levels)


@dataclass(frozen=True, slots=True)
class Selection:
    """Records of some topics, with offsets from ``start`` and times from ``since`` on, up to but without the ends.

    Times are microseconds since 1970.
    """

    topics: Topics = Topics()
    start: int = 0
    end: int = FOREVER
    since: int = NEVER
    until: int = FOREVER

    def within(self, start: int, end: int) -> "Selection":
        """Return what of this has offsets in a range."""
        return replace(self, start=max(self.start, start), end=min(self.end, end))

    @property
    def empty(self) -> bool:
        """Whether nothing can be selected, whatever there is."""
        return self.start >= self.end or self.since >= self.until or self.topics.names == frozenset()
