"""How much the journal has, how much it may have, and what is done when it is full."""

from collections.abc import Callable

from fleximq.errors import NotKept
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.retention.cleaner_thread import CleanerThread
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.writing.commit import Commit

#: How often it is tried to make room in a journal that is full, in microseconds.
RETRY_INTERVAL = 10_000_000


class Capacity:
    """Counts the bytes of all segments.

    :param most: the most that they may have, about; 0: as much as the disk has.
    :param cleaner: takes out what may go; None: nothing may.
    :param roll: lets another segment begin, for nothing is taken out of the last one.
    :param now: microseconds since 1970.
    :param freed: told how many bytes a pass took out.
    """

    def __init__(
        self,
        most: int,
        segments: SegmentTable,
        cleaner: CleanerThread | None,
        roll: Callable[[], None],
        now: Callable[[], int],
        freed: Callable[[int], None],
    ) -> None:
        self.bytes = 0
        self._most = most
        self._segments = segments
        self._cleaner = cleaner
        self._roll = roll
        self._now = now
        self._freed = freed
        self._again = 0

    def settled(self, commit: Commit, before: int) -> None:
        """Count a commit that is safe; ``before`` is where the journal ended without it."""
        # The sum over all segments is for when one begins, or is removed; there may be thousands of them.
        self.bytes = self._segments.bytes if commit.begun is not None else self.bytes + commit.end - before

    def check(self, count: int, waiting: int) -> None:
        """See that there is room for something more; ``waiting`` bytes are on their way to the disk.

        :raises NotKept: there is none; then it is tried to make some.
        """
        if self._most and self.bytes + waiting >= self._most:
            self._make()
            raise NotKept(f"the journal is full: it may have {self._most} bytes", range(count))

    def _make(self) -> None:
        if self._cleaner is None or self._now() < self._again:
            return
        self._again = self._now() + RETRY_INTERVAL
        if self._segments.all[-1].counts:
            self._roll()
        else:
            self.clean()

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Begin a pass of the cleaner; False if one is still going on, or there is nothing that may go."""

        def ended(freed: FreedSpace) -> None:
            self.bytes = self._segments.bytes
            if freed.bytes:
                self._freed(freed.bytes)
            done(freed)

        return self._cleaner is not None and self._cleaner.clean(ended)

    def close(self) -> None:
        """Let a pass end."""
        if self._cleaner is not None:
            self._cleaner.stop()
