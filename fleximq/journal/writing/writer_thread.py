"""Writes one commit after the other, on its own thread.

A commit is one group of frames, written at once and synced once, according to ``fsync``. After the first error nothing
is written or synced until :meth:`CommitWriter.reopen`, and every later commit is refused for the same reason: it is
unknown which part of the failed group is on disk, and a second sync could succeed without it.

Old bytes are dropped from the system's cache: on a virtual machine, which receives its pages on first use, a MiB costs
0.3 ms of system time in reused pages and 2 ms in new ones; and the cached data of other programs stays cached.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from errno import ENOENT
from queue import Empty, SimpleQueue
from threading import Thread

from zope.interface import Interface, implementer

from fleximq.config.journal_options import Fsync
from fleximq.errors import systemReason
from fleximq.journal.files.file_system import Files, mayPass, writeAll
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.format.frame import Frame, FrameKind, seal
from fleximq.journal.writing.commit import Commit, ICommitLog
from fleximq.values.background_thread import startWithoutSignals

#: The last bytes that stay in the system's cache, for readers of recent records.
CACHED_BYTES = 16 << 20
#: Older bytes are dropped in steps of this size.
_PORTION = 1 << 20
#: So many bytes of frames are written at once, or one frame with more.
_WRITTEN_BYTES = 1 << 19


class ActiveSegment:
    """A new file DIR/<position>.fxj, with the random number ``id`` in all its frames. All methods raise OSError.
    ``base`` is the position of its first byte, ``end`` that after its last; ``unsynced``: bytes were written since the
    last sync. The file survives a power loss after a sync of it and of its folder.
    """

    def __init__(self, files: Files, folder: str, position: int, segmentId: int) -> None:
        self._files = files
        self._descriptor = files.create(f"{folder}/{segmentName(position)}")
        self.id = segmentId
        self._previous = 0
        self._synced = True
        self._forgotten = 0
        self.base = self.end = position
        self.unsynced = False

    def write(self, frames: Iterable[Frame], hurry: bool) -> list[tuple[int, Frame]]:
        """Append frames, and return them with their positions; those of records lose their bodies. Each portion is
        written before the next frame is encoded, so that its memory is reused. ``hurry``: a sync follows, so the disk
        may begin with the first portions.
        """
        written: list[tuple[int, Frame]] = []
        buffers: list[bytes | memoryview] = []
        start = self.end
        self.unsynced = True
        for frame in frames:
            written.append((self.end, frame))
            sealed, self._previous = seal(frame, self.id, self.end, self._previous, self._synced)
            self._synced = False
            buffers += sealed
            self.end += frame.length
            if frame.kind is FrameKind.RECORDS:
                frame.pieces = ()
            if self.end - start >= _WRITTEN_BYTES:
                writeAll(self._files, self._descriptor, buffers, start - self.base)
                if hurry:
                    self._files.beginSync(self._descriptor, start - self.base, self.end - start)
                start = self.end
                buffers = []
        if buffers:
            writeAll(self._files, self._descriptor, buffers, start - self.base)
        return written

    def sync(self) -> None:
        """Return when all written bytes survive a power loss; after an error some may not: do not call this again."""
        self._files.sync(self._descriptor)
        self.unsynced = False
        self._synced = True
        until = self.end - self.base - CACHED_BYTES
        if until - self._forgotten >= _PORTION:
            self._files.forget(self._descriptor, self._forgotten, until - self._forgotten)
            self._forgotten = until

    def checkThere(self) -> None:
        """Raise FileNotFoundError if the file was deleted: writes to it would be lost at the end of the process."""
        if self._files.isGone(self._descriptor):
            raise FileNotFoundError(ENOENT, "the journal's files were deleted")

    def cut(self, end: int) -> None:
        """Remove the bytes of a failed group from this position on. Raises OSError if they remain in the file."""
        self._files.truncate(self._descriptor, end - self.base)

    def close(self) -> None:
        """Close the file."""
        if not self.unsynced:
            self._files.forget(self._descriptor, self._forgotten, 0)
        self._files.close(self._descriptor)


@implementer(ICommitLog)
class CommitWriter:
    """The end of the journal on the writer's thread. Not for concurrent use.

    :param end: the position after the last valid frame; the first commit must open a segment there.
    :param randomId: returns 64 random bits.
    :param seconds: a monotonic clock.
    """

    most = 1

    def __init__(
        self,
        files: Files,
        folder: str,
        fsync: Fsync,
        end: int,
        randomId: Callable[[], int],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._folder = folder
        self._always = fsync.mode == "always"
        self._interval = fsync.milliseconds / 1000 if fsync.mode == "interval" else None
        self._end = end
        self._randomId = randomId
        self._seconds = seconds
        self._segment: ActiveSegment | None = None
        self._sealed: ActiveSegment | None = None
        self._due: float | None = None
        self._broken: str | None = None
        #: Whether the cause of the last failure may pass without an operator.
        self.mayRecover = False

    def carryOut(self, commit: Commit) -> None:
        """Write a commit and fill in its result. Never raises."""
        if self._broken is not None:
            commit.reason = self._broken
            return
        began = self._seconds()
        try:
            self._carryOut(commit)
        except Exception as error:
            commit.error = error
            commit.reason = self._break(error)
        commit.seconds = self._seconds() - began

    def _carryOut(self, commit: Commit) -> None:
        if commit.opening is not None:
            self._roll(commit)
        segment = self._segment
        if segment is None:
            raise ValueError("no segment is open")
        commit.written = segment.write(commit.frames(segment), self._always)
        self._syncIfDue(segment, commit.opening is not None or commit.closing is not None)
        segment.checkThere()
        commit.end = self._end = segment.end
        commit.length = segment.end - segment.base

    def _roll(self, commit: Commit) -> None:
        if self._segment is not None and self._segment.unsynced:
            self._segment.sync()
        segment = ActiveSegment(self._files, self._folder, self._end, self._randomId())
        self._sealed, self._segment = self._segment, segment
        commit.begun = segment.base, segment.id

    def _syncIfDue(self, segment: ActiveSegment, mustSync: bool) -> None:
        if self._always or mustSync:
            segment.sync()
            self._due = None
        elif self._interval is not None and self._due is None:
            self._due = self._seconds() + self._interval
        if segment.base == self._end:  # this is its first commit, so its name is not on disk yet
            self._files.syncFolder(self._folder)
        if self._sealed is not None:
            self._sealed.close()
            self._sealed = None

    def checkFile(self) -> str | None:
        """Check that the active file exists; if not, return the reason and refuse later commits."""
        if self._broken is None and self._segment is not None:
            try:
                self._segment.checkThere()
            except OSError as error:
                return self._break(error)
        return None

    @property
    def wait(self) -> float | None:
        """The seconds until :meth:`syncDue` should be called; None: not needed."""
        return None if self._due is None else max(0.0, self._due - self._seconds())

    def syncDue(self) -> str | None:
        """Sync if it is due; return the reason of a failure."""
        if self._due is None or self._segment is None or self._seconds() < self._due:
            return None
        self._due = None
        try:
            self._segment.sync()
        except OSError as error:
            return self._break(error)
        return None

    def _break(self, error: Exception) -> str:
        """Refuse later writes and syncs; remove the unreported bytes, if the disk allows it."""
        self._broken, self.mayRecover = reasonOf(error), mayPass(error)
        self._due = None
        segment = self._segment
        if segment is not None:
            with suppress(OSError):
                if segment.base == self._end:
                    self._files.remove(f"{self._folder}/{segmentName(segment.base)}")
                else:
                    segment.cut(self._end)
        return self._broken

    def reopen(self, verify: Callable[[int], int]) -> str | None:
        """Close the failed file, verify the data on disk, and accept a commit that opens a segment; return why it
        failed, or None. ``verify`` cuts the journal at the given position, or at the last valid frame before it, and
        returns that position.
        """
        self.close()
        try:
            name = f"{self._folder}/{segmentName(self._end)}"
            if self._files.exists(name):
                self._files.remove(name)
            self._end = verify(self._end)
        except Exception as error:
            self._broken, self.mayRecover = reasonOf(error), mayPass(error)
        else:
            self._broken, self.mayRecover = None, False
        return self._broken

    def close(self) -> None:
        """Close the file, unchanged."""
        segments = self._segment, self._sealed
        self._segment = self._sealed = self._due = None
        for segment in segments:
            if segment is not None:
                with suppress(OSError):
                    segment.close()


def reasonOf(error: Exception) -> str:
    """Return the reason of a failure; for errors of the system its own text."""
    if isinstance(error, OSError) and error.strerror:
        return systemReason(error)
    return str(error) or type(error).__name__


class IWorker(Interface):
    """Runs work that may wait for the disk."""

    def start() -> None:
        """Start."""

    def hand(work: Callable[[], object], done: Callable[[], None]) -> None:
        """Run the work, later or on another thread, in order; :meth:`drain` then calls ``done``."""

    def remind(seconds: float, call: Callable[[], None]) -> None:
        """Have :meth:`drain` call this after a delay."""

    def drain(seconds: float = 0.0) -> bool:
        """Call the ``done`` of finished work, waiting up to ``seconds`` for the first; False if there was none."""

    def stop(seconds: float) -> bool:
        """End after all work; False if it takes longer than ``seconds``."""


@implementer(IWorker)
class WriterThread:
    """A thread that runs the given work, and the log's syncs in between; ``failed`` gets the reason of a failed one."""

    def __init__(self, log: CommitWriter, callFromThread: Callable[..., object], failed: Callable[[str], None]) -> None:
        self._log = log
        self._callFromThread = callFromThread
        self._failed = failed
        self._work: SimpleQueue[tuple[Callable[[], object], Callable[[], None]] | float | None] = SimpleQueue()
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._reminder: Callable[[], None] | None = None
        self._alarm: float | None = None
        self._thread = Thread(target=self._run, name="journal writer", daemon=True)

    def start(self) -> None:
        startWithoutSignals(self._thread)

    def hand(self, work: Callable[[], object], done: Callable[[], None]) -> None:
        self._work.put((work, done))

    def remind(self, seconds: float, call: Callable[[], None]) -> None:
        """See :class:`IWorker`; one at a time."""
        self._reminder = call
        self._work.put(seconds)

    def drain(self, seconds: float = 0.0) -> bool:
        try:
            done = self._done.get(timeout=seconds) if seconds > 0 else self._done.get_nowait()
        except Empty:
            return False
        while True:
            done()
            try:
                done = self._done.get_nowait()
            except Empty:
                return True

    def stop(self, seconds: float) -> bool:
        self._work.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # -- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=self._timeout())
            except Empty:
                self._inBetween()
                continue
            if work is None:
                return
            if isinstance(work, float):
                self._alarm = time.monotonic() + work
                continue
            work[0]()
            self._tell(work[1])
            self._inBetween()

    def _timeout(self) -> float | None:
        alarm = None if self._alarm is None else max(0.0, self._alarm - time.monotonic())
        return min((wait for wait in (self._log.wait, alarm) if wait is not None), default=None)

    def _inBetween(self) -> None:
        reason = self._log.syncDue()
        if reason is not None:
            self._tell(lambda: self._failed(reason))
        if self._alarm is not None and time.monotonic() >= self._alarm and self._reminder is not None:
            self._alarm = None
            self._tell(self._reminder)

    def _tell(self, done: Callable[[], None]) -> None:
        self._done.put(done)
        self._callFromThread(self.drain)
