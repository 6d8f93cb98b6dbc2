"""How what is to be read is divided among tasks: small values that travel to other processes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: About how many bytes of a journal one task reads: as many as Spark gives a task of files.
SLICE_BYTES = 128 << 20


class Piece(NamedTuple):
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
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """How many bytes are read."""
        return sum(piece.until - piece.position for piece in self.pieces)


def divided(pieces: Iterable[tuple[Piece, Sequence[tuple[int, int]]]], parts: int) -> list[tuple[Piece, ...]]:
    """Return pieces in so many groups of about equally many bytes, or fewer where they cannot be cut so small.

    :param pieces: each with the places at which it may be cut, positions with the offsets that begin there.
    """
    pieces = list(pieces)
    total = sum(piece.until - piece.position for piece, _ in pieces)
    share = max(1, -(-total // max(1, parts)))
    groups: list[list[Piece]] = [[]]
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


def _cut(piece: Piece, cuts: Sequence[tuple[int, int]]) -> list[Piece]:
    parts = []
    for position, offset in cuts:
        if piece.position < position < piece.until:
            parts.append(piece._replace(until=position, next=offset))
            piece = piece._replace(position=position, first=offset)
    return [*parts, piece]


def _joined(parts: Sequence[Piece]) -> list[Piece]:
    """Return parts of the same segment that touch as one."""
    joined: list[Piece] = []
    for part in parts:
        if joined and joined[-1].base == part.base and joined[-1].until == part.position:
            joined[-1] = joined[-1]._replace(until=part.until, next=part.next)
        else:
            joined.append(part)
    return joined
