"""Removes expired records on its own thread, while the journal is in use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any

from fleximq.journal.files.file_system import Files
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace, SegmentRemoval
from fleximq.journal.retention.segment_rewrite import Stopped

#: Seconds that a stop waits for a running pass.
STOP_TIMEOUT = 10.0


@dataclass(eq=False)
class CleanerThread:
    """Runs one pass at a time. All methods, ``log`` and ``unread`` are called on the reactor's thread.

    :param needed: returns, by topic, the lowest offset that a queue needs.
    :param now: microseconds since 1970.
    :param log: called with a sentence about a failure.
    :param reading: returns the next offset of each consumer group.
    :param unread: see :class:`SegmentRemoval`.
    """

    files: Files
    folder: str
    segments: SegmentTable
    rules: RetentionPolicy
    reader: ReaderThread
    needed: Callable[[], Mapping[str, int]]
    now: Callable[[], int]
    callFromThread: Callable[..., object]
    log: Callable[[str], None]
    reading: Callable[[], Mapping[str, int]] = dict
    unread: Callable[[str, int], None] = lambda sentence, records: None

    def __post_init__(self) -> None:
        call = self.callFromThread
        self._retention = SegmentRemoval(
            self.files,
            self.folder,
            self.segments,
            self.rules,
            self._exclusively,
            partial(call, self.log),
            partial(call, self.unread),
        )
        self._stopped = False
        self._thread: Thread | None = None

    def clean(self, done: Callable[[FreedSpace], None] = lambda freed: None) -> bool:
        """Begin a pass, and call ``done`` on this thread at its end; False if one is running."""
        if self._stopped or self._thread is not None:
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
        self._retention.stop()
        thread = self._thread
        if thread is not None:
            thread.join(STOP_TIMEOUT)
            return not thread.is_alive()
        return True

    def _work(self, state: tuple[Any, ...], done: Callable[[FreedSpace], None]) -> None:
        try:
            freed = self._retention.clean(*state)
        except Exception as error:
            self.callFromThread(self.log, f"what has expired could not be taken out of the journal: {error!r}")
            freed = FreedSpace()
        self.callFromThread(self._ended, freed, done)

    def _ended(self, freed: FreedSpace, done: Callable[[FreedSpace], None]) -> None:
        self._thread = None
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
