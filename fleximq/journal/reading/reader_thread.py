"""Reads committed records on its own thread, so that the reactor never waits for the disk.

Jobs run one after the other, each within the limits and up to the durable end of its request; a client that needs more
repeats its request. :mod:`fleximq.journal.reading.frame_walk` finds the records.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from fleximq.errors import systemReason
from fleximq.journal.files.file_system import SHORTAGES, Files
from fleximq.journal.files.frame_scan import SMALL, CompleteFrame
from fleximq.journal.files.record_distance import advance
from fleximq.journal.files.segment_index import writeIndex
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.format.frame import FrameError, FrameKind, checkFrame, readHeader
from fleximq.journal.reading.frame_walk import FrameWalk, raisePassing
from fleximq.limits import MEBIBYTE
from fleximq.values.background_thread import startWithoutSignals
from fleximq.values.message import Message
from fleximq.values.message_run import asOne
from fleximq.values.records import StoredBatch

#: Bytes of a record without header and payload: without them, a read of empty records would have no end.
_RECORD_BYTES = 64
#: If few records are selected, a read ends after this multiple of the requested bytes.
_THROUGH = 16
#: Seconds before the next attempt after a shortage.
_PATIENCE = 0.25


class ReaderThread:
    """Answers requests by ``callFromThread(found, ...)``. All methods are called on the reactor's thread.

    :param callFromThread: runs a function on the reactor's thread, as ``lost`` and ``log``.
    :param lost: called with new damage, and with its reason as a clause.
    :param log: called with a sentence about a failed request.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        segments: SegmentTable,
        callFromThread: Callable[..., Any],
        lost: Callable[[LostRange, str], None] = lambda lost, why: None,
        log: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._callFromThread = callFromThread
        self._log = log
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._stopping = Event()
        self._walk = FrameWalk(files, folder, segments, partial(callFromThread, lost))

    def begin(self) -> None:
        """Start the thread, if it does not run, and answer the requests so far."""
        if self._thread is not None:
            return
        self._thread = Thread(target=self._work, name="journal-reader", daemon=True)
        startWithoutSignals(self._thread)

    def stop(self) -> None:
        """Answer the requests so far, and end the thread. Blocks."""
        self._stopping.set()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                break
            job()
        self._walk.opened.close()

    def _ask(
        self, job: Callable[[], Sequence[Any]], found: Callable[..., None], otherwise: Sequence[Any] | None = None
    ) -> None:
        """Run a job, again after a temporary shortage such as of memory, and call ``found`` with its result. After a
        failure ``found`` is called with ``otherwise``, if given.
        """
        end = self._segments.end

        def work() -> None:
            self._walk.opened.end = end
            try:
                answer: Sequence[Any] | None = self._patiently(job)
            except Exception as error:
                self._callFromThread(self._log, f"the journal could not be read: {error!r}")
                answer = otherwise
            if answer is not None:
                self._callFromThread(found, *answer)

        self._jobs.put(work)

    def _patiently(self, job: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        said = False
        while True:
            try:
                return job()
            except OSError as error:
                if error.errno not in SHORTAGES or self._stopping.is_set():
                    raise
                if not said:
                    self._callFromThread(self._log, f"the journal cannot be read for now: {systemReason(error)}")
                    said = True
                self._stopping.wait(_PATIENCE)

    # -- requests ----------------------------------------------------------------------------------

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[Sequence[Message]], None]) -> None:
        """Return the messages with these offsets, in this order, up to about ``most`` bytes, at least one. Damaged and
        removed ones are omitted. After an unexpected failure ``found`` is not called, since an omission would mean that
        the message is lost.
        """
        selected = tuple(offsets)
        end = self._segments.nextOffset
        self._ask(lambda: (self._messages(selected, most, end),), found)

    def fetchRecords(
        self, offsets: Sequence[int], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        """Return the records with these ascending offsets, up to about ``most`` bytes, at least one, and how many of
        the offsets were read. As with :meth:`fetch`, damaged and removed ones are omitted, and ``found`` is not called
        after an unexpected failure.
        """
        selected = tuple(offsets)
        end = self._segments.nextOffset
        self._ask(lambda: self._records(selected, most, end), found)

    def read(
        self, offset: int, selected: Callable[[str], bool], most: int, found: Callable[[list[StoredBatch], int], None]
    ) -> None:
        """Return records from an offset on, about ``most`` bytes, and the offset for the next call. The result may be
        empty before the end, after a long range without selected topics. The same offset again means that the journal
        could not be read. ``selected`` selects topics on the reading thread.
        """
        end = self._segments.nextOffset
        self._ask(lambda: self._read(offset, selected, most, end), found, ([], offset))

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        """Return the offset of the first record of this time (microseconds) or later, else of the next record."""
        end = self._segments.nextOffset
        self._ask(lambda: (self._offsetAt(time, end),), found, (end,))

    def advance(
        self, start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        """Return an offset, and the records and bytes up to it, see
        :func:`fleximq.journal.files.record_distance.advance`. The same offset again, before ``end``, means that the
        journal could not be read.
        """
        self._ask(lambda: advance(self._segments, self._walk.opened, start, end, records, size), found, (start, 0, 0))

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        """Return the position of the first valid frame from a position on, complete frames, and the durable end. They
        have at most ``most`` bytes, or there is only one; they end at damage, at a removed range and at the end of a
        segment. If a frame begins at the position, they are a view without a copy.
        """
        end = self._segments.end
        self._ask(lambda: self._readBytes(position, most, end), found, (end, b"", end))

    def seal(self, base: int) -> None:
        """Write the index of the sealed segment with this base."""

        def write() -> None:
            for segment in self._segments.all:
                if segment.base == base:
                    writeIndex(self._files, self._folder, segment)

        self.call(write)

    def call(self, job: Callable[[], None]) -> None:
        """Run a job between others on the reading thread, such as the replacement of a segment."""

        def work() -> Sequence[Any]:
            job()
            return ()

        self._ask(work, lambda: None)

    # -- on the reading thread ---------------------------------------------------------------------

    def forgetNow(self) -> None:
        """Close all files and clear the caches at once, on the reading thread."""
        self._walk.forget()

    def _messages(self, offsets: Sequence[int], most: int, end: int) -> Sequence[Message]:
        messages: list[Sequence[Message]] = []
        index, size = 0, 0
        while index < len(offsets) and (size < most or not messages):
            batch = self._walk.batchOf(offsets[index]) if offsets[index] < end else None
            if batch is None:
                index += 1
                continue
            held = batch.offsets
            low, high = held[0], held[-1]
            while index < len(offsets) and low <= offsets[index] <= high and (size < most or not messages):
                at = _indexOf(held, offsets[index])
                if at is None:
                    index += 1
                    continue
                few = min(batch.within(at, most - size), len(offsets) - index)
                number = _inBoth(held, at, offsets, index, few)
                picked = batch.pick(range(at, at + number))
                messages.append(picked.queued())
                size += sum(map(len, picked.payloads))
                index += number
        return asOne(messages)

    def _records(self, offsets: Sequence[int], most: int, end: int) -> tuple[list[StoredBatch], int]:
        picked: list[StoredBatch] = []
        index, size = 0, 0
        while index < len(offsets) and (size < most or not picked):
            batch = self._walk.batchOf(offsets[index]) if offsets[index] < end else None
            if batch is None:
                index += 1
                continue
            until = bisect_right(offsets, batch.offsets[-1], index)
            picked.append(batch.pick(_indexesOf(batch.offsets, offsets[index:until])))
            size += picked[-1].size
            index = until
        return picked, index

    def _read(self, offset: int, selected: Callable[[str], bool], most: int, end: int) -> tuple[list[StoredBatch], int]:
        batches: list[StoredBatch] = []
        size = through = 0
        start = offset
        for found in self._walk.fromOffset(offset, selected, min(max(most, SMALL), MEBIBYTE)):
            for batch in found.batches:
                through += batch.size + len(batch) * _RECORD_BYTES
                picked = _behind(batch, start).only(selected)
                if len(picked):
                    batches.append(picked)
                    size += picked.size + len(picked) * _RECORD_BYTES
            offset = max(offset, found.next)
            if size >= most or through >= most * _THROUGH:
                return batches, min(offset, end)
        return batches, end

    def _offsetAt(self, time: int, end: int) -> int:
        for segment in self._segments.all:
            if segment.highest < time:
                continue
            for found in self._walk.of(segment, segment.beforeTime(time)):
                for batch in found.batches:
                    if max(batch.timestamps) >= time:
                        return next(
                            offset for offset, each in zip(batch.offsets, batch.timestamps, strict=True) if each >= time
                        )
        return end

    def _readBytes(self, position: int, most: int, end: int) -> tuple[int, bytes | memoryview, int]:
        allSegments = self._segments.all
        for segment in allSegments[self._segments.ofPosition(position) :]:
            begin = max(position, segment.base)
            portion = self._portion(segment, begin, most)
            if portion:
                return begin, portion, end
            for each in self._walk.frames(segment, segment.beforePosition(begin), MEBIBYTE):
                if isinstance(each, CompleteFrame) and each.header.position >= position:
                    begin = each.header.position
                    return begin, self._portion(segment, begin, most) or each.frame, end
        return end, b"", end

    def _portion(self, segment: Segment, start: int, most: int) -> memoryview:
        """Return the complete frames at a position as a view; empty if there is none, or it is damaged."""
        window = self._walk.opened.window(segment)
        size, previous = 0, None
        try:
            buffer = window.at(start, max(most, SMALL))
            while size < len(buffer):
                header = readHeader(buffer, size)
                if (header.segment, header.position) != (segment.id, start + size):
                    break
                if previous is not None and (header.previous != previous or size + header.length > most):
                    break
                if not size and header.length > len(buffer):
                    buffer = window.at(start, header.length)
                checkFrame(header, buffer[size : size + header.length])
                size, previous = size + header.length, header.crc
                if header.kind == FrameKind.REMOVED:
                    break
        except FrameError:
            pass  # the next read begins there, and reports it
        except OSError as error:
            raisePassing(error)
            return memoryview(b"")
        # The view references the complete buffer, so a small part is copied.
        return buffer[:size] if 2 * size >= len(buffer) else memoryview(bytes(buffer[:size]))


def _indexOf(offsets: Sequence[int], offset: int) -> int | None:
    """Return the index of a number in an ascending sequence, None if it is missing."""
    index = bisect_left(offsets, offset)
    return index if index < len(offsets) and offsets[index] == offset else None


def _inBoth(one: Sequence[int], at: int, other: Sequence[int], index: int, most: int) -> int:
    """Return how many neighbours, up to ``most``, are the same in both from these equal ones on. Some of them may be
    left to the next call.
    """
    number = step = 1
    while number < most:
        step = min(2 * step, most - number)
        if [*one[at + number : at + number + step]] != [*other[index + number : index + number + step]]:
            break
        number += step
    return number


def _indexesOf(offsets: Sequence[int], wanted: Sequence[int]) -> Sequence[int]:
    """Return the indexes of ascending numbers in an ascending sequence, without those that are missing."""
    first, last = _indexOf(offsets, wanted[0]), _indexOf(offsets, wanted[-1])
    if first is not None and last is not None and last - first == wanted[-1] - wanted[0] == len(wanted) - 1:
        return range(first, last + 1)
    return [at for each in wanted if (at := _indexOf(offsets, each)) is not None]


def _behind(batch: StoredBatch, offset: int) -> StoredBatch:
    """Return the records of a batch from this offset on."""
    if not len(batch) or batch.offsets[0] >= offset:
        return batch
    return batch.pick(range(bisect_left(batch.offsets, offset), len(batch)))
