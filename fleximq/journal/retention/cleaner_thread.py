"""Removes expired records on its own thread, while the journal is in use, and counts the bytes of the journal."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any

from fleximq.errors import NotKept
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace, SegmentRemoval
from fleximq.journal.retention.segment_rewrite import Stopped
from fleximq.journal.writing.commit import Commit

#: Seconds that a stop waits for a running pass.
STOP_TIMEOUT = 10.0
#: The interval between attempts to free space in a full journal, in seconds.
RETRY_INTERVAL = 10.0


@dataclass(eq=False)
class CleanerThread:
    """Runs one pass at a time; ``bytes`` is the size of all segments. All methods, ``log`` and ``unread`` are called on
    the reactor's thread.

    :param rules: None: no records are removed.
    :param needed: returns, by topic, the lowest offset that a queue needs.
    :param now: microseconds since 1970.
    :param log: called with a sentence about a failure.
    :param reading: returns the next offset of each consumer group.
    :param unread: see :class:`SegmentRemoval`.
    :param most: the approximate limit of ``bytes``; 0: the capacity of the disk.
    :param roll: begins another segment, since the last one is never cleaned.
    :param freed: called with the number of bytes that a pass removed.
    :param monotonic: seconds of a monotonic clock.
    """

    files: Files
    folder: str
    segments: SegmentTable
    rules: RetentionPolicy | None
    reader: ReaderThread
    needed: Callable[[], Mapping[str, int]]
    now: Callable[[], int]
    callFromThread: Callable[..., object]
    log: Callable[[str], None]
    reading: Callable[[], Mapping[str, int]] = dict
    unread: Callable[[str, int], None] = lambda sentence, records: None
    most: int = 0
    roll: Callable[[], None] = lambda: None
    freed: Callable[[int], None] = lambda number: None
    monotonic: Callable[[], float] = time.monotonic
    bytes: int = field(default=0, init=False)
    _again: float = field(default=0.0, init=False)
    _stopped: bool = field(default=False, init=False)
    _isWanted: bool = field(default=False, init=False)
    _thread: Thread | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.rules is not None:
            tell = partial(self.callFromThread, self.log), partial(self.callFromThread, self.unread)
            self._removal = SegmentRemoval(self.files, self.folder, self.segments, self.rules, self._exclusively, *tell)

    def settled(self, commit: Commit, before: int) -> None:
        """Count a successful commit; ``before`` is the previous end of the journal."""
        # The sum over perhaps thousands of segments is computed only after one begins or is removed.
        self.bytes = self.segments.bytes if commit.begun is not None else self.bytes + commit.end - before

    def check(self, count: int, waiting: int) -> None:
        """Check the space beside ``waiting`` bytes; if there is none, begins to free some and raises NotKept."""
        if self.most and self.bytes + waiting >= self.most:
            self.makeRoom()
            raise NotKept(f"the journal is full: it may have {self.most} bytes", range(count))

    def makeRoom(self) -> None:
        """Attempt to free space, unless the last attempt was a short time ago."""
        if self.rules is None or self.monotonic() < self._again:
            return
        self._again = self.monotonic() + RETRY_INTERVAL
        if self.segments.all[-1].counts:
            self.roll()
        else:
            self.clean()

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Begin a pass, and call ``done`` on this thread at its end; False if one is running, or without rules. After
        the running one another follows, since it does not see segments that were completed meanwhile.
        """
        self._isWanted = self._thread is not None
        if self.rules is None or self._stopped or self._isWanted:
            return False
        open = frozenset(staged.position for staged in self.segments.staged())
        # Queues opened from now on need only records of later segments.
        state = dict(self.needed()), open, self.now(), self.segments.all, dict(self.reading())
        self._thread = Thread(target=lambda: self._work(state, done), name="journal-cleaner", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> bool:
        """End a running pass, before the reader is stopped. Blocks for some seconds; False if the pass continues."""
        self._stopped = True
        if self._thread is None:
            return True
        self._removal.stop()
        self._thread.join(STOP_TIMEOUT)
        return not self._thread.is_alive()

    def _work(self, state: tuple[Any, ...], done: Callable[[FreedSpace], None]) -> None:
        try:
            freed = self._removal.clean(*state)
        except Exception as error:
            self.callFromThread(self.log, f"what has expired could not be taken out of the journal: {error!r}")
            freed = FreedSpace()
        self.callFromThread(self._ended, freed, done)

    def _ended(self, freed: FreedSpace, done: Callable[[FreedSpace], None]) -> None:
        self._thread = None
        self.bytes = self.segments.bytes
        if freed.bytes:
            self.freed(freed.bytes)
        if self._removal.endsByAge and not self._stopped:
            self._removal.endsByAge = False
            self.roll()
        if self._isWanted:
            self.clean()
        done(freed)

    def _exclusively(self, work: Callable[[], None]) -> None:
        """Run work on the reading thread, clear its caches, and return after that."""
        ended = Event()
        failures: list[Exception] = []

        def job() -> None:
            try:
                work()
            except Exception as error:
                failures.append(error)
            finally:
                self.reader.forgetNow()
                ended.set()

        self.reader.call(job)
        while not ended.wait(STOP_TIMEOUT):
            if self._stopped:
                raise Stopped
        if failures:
            raise failures[0]
