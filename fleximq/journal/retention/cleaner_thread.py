"""Removes expired records on its own thread, while the journal is in use."""

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any

from fleximq.errors import NotKept
from fleximq.interfaces import IQueueState
from fleximq.journal.files.journal_context import JournalContext
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.recovery.recovered_state import NoQueueState
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace, SegmentRemoval
from fleximq.journal.retention.segment_rewrite import Stopped

#: Seconds that a stop waits for a running pass.
STOP_TIMEOUT = 10.0
#: The interval between attempts to free space in a full journal, in seconds.
RETRY_INTERVAL = 10.0


@dataclass(eq=False)
class CleanerThread:
    """Runs one pass at a time. All methods, and the reports of a pass, are called on the reactor's thread.

    :param rules: None: no records are removed.
    :param queues: says which records are needed and read.
    :param maxBytes: the approximate limit of the journal's bytes; 0: the capacity of the disk.
    :param roll: begins another segment, since the last one is never cleaned.
    :param passed: called after each pass.
    :param monotonic: seconds of a monotonic clock.
    """

    context: JournalContext
    segments: SegmentTable
    reader: ReaderThread
    rules: RetentionPolicy | None
    queues: IQueueState = field(default_factory=NoQueueState)
    _: KW_ONLY
    maxBytes: int = 0
    roll: Callable[[], None] = lambda: None
    passed: Callable[[], None] = lambda: None
    monotonic: Callable[[], float] = time.monotonic
    _again: float = field(default=0.0, init=False)
    _stopped: bool = field(default=False, init=False)
    _isWanted: bool = field(default=False, init=False)
    _thread: Thread | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        context, rules = self.context, self.rules
        if rules is not None:
            tell = partial(context.callFromThread, context.log), partial(context.callFromThread, self._goneUnread)
            self._removal = SegmentRemoval(
                context.files, context.folder, self.segments, rules, self._exclusively, *tell
            )

    def _goneUnread(self, sentence: str, records: int) -> None:
        self.context.count("expired unread", records)
        self.context.log(sentence)

    def check(self, count: int, waiting: int) -> None:
        """Check the space beside ``waiting`` bytes; if there is none, begins to free some and raises NotKept."""
        if self.maxBytes and self.segments.bytes + waiting >= self.maxBytes:
            self.makeRoom()
            raise NotKept(f"the journal is full: it may have {self.maxBytes} bytes", range(count))

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
        openSegments = frozenset(staged.position for staged in self.segments.staged())
        queues = self.queues
        # Queues opened from now on need only records of later segments.
        state = dict(queues.needed()), openSegments, self.context.now(), self.segments.all, dict(queues.reading())
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
            context = self.context
            context.callFromThread(context.log, f"what has expired could not be taken out of the journal: {error!r}")
            freed = FreedSpace()
        self.context.callFromThread(self._ended, freed, done)

    def _ended(self, freed: FreedSpace, done: Callable[[FreedSpace], None]) -> None:
        self._thread = None
        self.context.count("bytes freed", freed.bytes)
        self.passed()
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
