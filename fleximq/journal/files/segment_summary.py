"""One segment as it is known in memory: where it stands, a sparse index of it, and what it has of every topic.

It is some hundred bytes for each 64 KiB of the file. One thread adds to it while others look things up without a lock:
what is looked up only grows.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from fleximq.journal.files.topic_counts import Count
from fleximq.journal.format.control_frames import Lost, Transaction
from fleximq.values.records import Bounds

#: About how many bytes lie between two entries of the index.
APART = 64 << 10
#: Earlier than every time.
NEVER = -(1 << 63)


class Staged(NamedTuple):
    """A STAGED frame: its position, for whom it is, when it came, and what it has; offsets in ``tally`` are places."""

    position: int
    query: str
    batch: int
    time: int
    count: int  # type: ignore[assignment]  # nobody counts the values of this tuple
    tally: Mapping[str, Bounds]


class Segment:
    """One segment: the file ``<base>.fxj``.

    ``base`` and ``end`` are the positions of its first frame and behind its last one; ``first`` and ``next`` the
    offsets of the first record that is or could have been in it, and of the first behind it. ``highest`` is the
    latest time of its records. ``offsets``, ``times`` and ``positions`` are the index: from this position on, there are
    records from this offset on, and all before it in the segment are of this time or earlier. ``counts`` says what it
    has of each topic, ``lost`` what of it is damaged. ``checkpoints`` are positions; ``clientIds`` is the largest
    number of a note of client ids; ``removed`` counts bytes that were taken out.
    """

    __slots__ = (
        "base",
        "checkpoints",
        "clientIds",
        "counts",
        "end",
        "first",
        "highest",
        "id",
        "lost",
        "next",
        "offsets",
        "positions",
        "removed",
        "staged",
        "times",
        "transactions",
    )

    def __init__(self, base: int, id: int) -> None:
        self.base = self.end = base
        self.id = id
        self.first = self.next = 0
        self.highest = NEVER
        self.offsets = array("Q")
        self.times = array("q")
        self.positions = array("Q")
        self.counts: dict[str, Count] = {}
        self.lost: list[Lost] = []
        self.staged: list[Staged] = []
        self.transactions: list[tuple[Transaction, int, int]] = []
        self.checkpoints: list[int] = []
        self.clientIds = 0
        self.removed = 0

    @property
    def bytes(self) -> int:
        """How many bytes its file takes."""
        return self.end - self.base - self.removed

    @property
    def records(self) -> int:
        """How many records are in it."""
        return sum(count[4] for count in self.counts.values())

    def entry(self, position: int, offset: int) -> None:
        """Let the index lead to this position, if the last entry is far enough before it."""
        if self.positions:
            if position - self.positions[-1] < APART:
                return
        else:
            self.first = offset
        # Whoever looks up meanwhile begins with times or offsets, and finds the rest there.
        self.positions.append(position)
        self.times.append(self.highest)
        self.offsets.append(offset)

    def before(self, offset: int) -> int:
        """Return the position of a frame at or before the one that has this offset."""
        place = bisect_right(self.offsets, offset) - 1
        return self.positions[place] if place >= 0 else self.base

    def beforeTime(self, time: int) -> int:
        """Return the position of a frame at or before the first one that has a record of this time or later."""
        place = bisect_left(self.times, time, hi=len(self.offsets)) - 1
        return self.positions[place] if place >= 0 else self.base

    def beforePosition(self, position: int) -> int:
        """Return the position of a frame at or before this position."""
        place = bisect_right(self.positions, position) - 1
        return self.positions[place] if place >= 0 else self.base

    def offsetAt(self, position: int) -> int:
        """Return the offset of a record at or before this position."""
        place = bisect_right(self.positions, position) - 1
        return self.offsets[place] if place >= 0 else self.first

    def behind(self, position: int) -> int:
        """Return the position of the first entry of the index behind this position, or where the segment ends."""
        place = bisect_right(self.positions, position)
        return self.positions[place] if place < len(self.positions) else self.end
