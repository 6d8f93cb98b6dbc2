"""The size of the journal and the number of its topics, their limits, and the reaction to a full journal."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from fleximq.errors import NotKept
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.retention.cleaner_thread import CleanerThread
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.writing.commit import Commit
from fleximq.limits import DEAD

#: The interval between attempts to free space in a full journal, in microseconds.
RETRY_INTERVAL = 10_000_000


class TopicLimit:
    """Limits the topics of the journal; a restart, and dead letters, may add more.

    ``known`` are the topics with committed records, ``pending`` those whose first records await their commit.
    """

    def __init__(self, most: int, known: Collection[str]) -> None:
        self._most = most
        self.known = known
        self.pending: set[str] = set()

    def check(self, topics: Iterable[str], count: int) -> set[str]:
        """Return the new topics among these. Raises NotKept for ``count`` messages if they are too many."""
        new = {each for each in topics if each not in self.known and each not in self.pending}
        most = self._most
        if new and most and len(self.known) + len(self.pending) + len(new) > most:
            if not all(each.startswith(DEAD) for each in new):
                raise NotKept(f"the journal may have at most {most} topics", range(count))
        return new

    def settled(self) -> None:
        """Count the topics of a commit as known."""
        self.pending.difference_update([each for each in self.pending if each in self.known])


@dataclass(eq=False)
class Capacity:
    """Counts the bytes of all segments.

    :param most: the approximate limit; 0: the capacity of the disk.
    :param cleaner: removes expired records; None: no retention.
    :param roll: begins another segment, since the last one is never cleaned.
    :param now: microseconds since 1970.
    :param freed: called with the number of bytes that a pass removed.
    """

    most: int
    segments: SegmentTable
    cleaner: CleanerThread | None
    roll: Callable[[], None]
    now: Callable[[], int]
    freed: Callable[[int], None]
    bytes: int = field(default=0, init=False)
    _again: int = field(default=0, init=False)

    def settled(self, commit: Commit, before: int) -> None:
        """Count a successful commit; ``before`` is the previous end of the journal."""
        # The sum over perhaps thousands of segments is computed only after one begins or is removed.
        self.bytes = self.segments.bytes if commit.begun is not None else self.bytes + commit.end - before

    def check(self, count: int, waiting: int) -> None:
        """Check the space beside ``waiting`` bytes; if there is none, begins to free some and raises NotKept."""
        if self.most and self.bytes + waiting >= self.most:
            self.make()
            raise NotKept(f"the journal is full: it may have {self.most} bytes", range(count))

    def make(self) -> None:
        """Attempt to free space, unless the last attempt was a short time ago."""
        if self.cleaner is None or self.now() < self._again:
            return
        self._again = self.now() + RETRY_INTERVAL
        if self.segments.all[-1].counts:
            self.roll()
        else:
            self.clean()

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Begin a pass of the cleaner; False if one is running, or without retention."""

        def ended(freed: FreedSpace) -> None:
            self.bytes = self.segments.bytes
            if freed.bytes:
                self.freed(freed.bytes)
            done(freed)

        return self.cleaner is not None and self.cleaner.clean(ended)

    def close(self) -> None:
        """End a running pass."""
        if self.cleaner is not None:
            self.cleaner.stop()
