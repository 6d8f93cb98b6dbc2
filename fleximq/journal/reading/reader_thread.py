"""Reads committed records on its own thread, so that the reactor never waits for the disk.

Jobs run one after the other, each within the limits and up to the durable end of its request; a client that needs more
repeats its request. A frame's check sum is verified before its records are used. Damage is skipped, reported once, and
never changed.

This file is hot: a frame of 1,000 records of 100 bytes costs 0.1 us a record, from the file's bytes to a batch.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple

from fleximq.errors import systemReason
from fleximq.journal.files.file_system import SHORTAGES, Files
from fleximq.journal.files.frame_scan import SMALL, CompleteFrame, DamagedRange, framesOf
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.record_distance import advance
from fleximq.journal.files.segment_index import writeIndex
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.format.frame import FrameError, FrameHeader, FrameKind, checkFrame, readHeader
from fleximq.limits import MEBIBYTE
from fleximq.values.background_thread import startWithoutSignals
from fleximq.values.message import Message
from fleximq.values.records import StoredBatch

#: The number of frames with cached records.
_DECODED = 8
#: The number of cached positions: the end of one read is the usual start of the next.
_RESUMED = 256
#: Bytes of a record without header and payload: without them, a read of empty records would have no end.
_RECORD_BYTES = 64
#: If few records are selected, a read ends after this multiple of the requested bytes.
_THROUGH = 16
#: Seconds before the next attempt after a shortage.
_PATIENCE = 0.25


class _FrameRecords(NamedTuple):
    """The records of a frame, and the offset after them."""

    batches: list[StoredBatch]
    next: int


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
        self._lost = lost
        self._log = log
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._stopping = Event()
        self._opened = OpenSegments(files, folder, segments)
        self._decoded: OrderedDict[int, list[StoredBatch]] = OrderedDict()
        self._resumed: OrderedDict[int, int] = OrderedDict()

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
        self._opened.close()

    def _ask(
        self, job: Callable[[], Sequence[Any]], found: Callable[..., None], otherwise: Sequence[Any] | None = None
    ) -> None:
        """Run a job, again after a temporary shortage such as of memory, and call ``found`` with its result. After a
        failure ``found`` is called with ``otherwise``, if given.
        """
        end = self._segments.end

        def work() -> None:
            self._opened.end = end
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

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[list[Message]], None]) -> None:
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
        self._ask(lambda: advance(self._segments, self._opened, start, end, records, size), found, (start, 0, 0))

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
        self._opened.close()
        self._decoded.clear()
        self._resumed.clear()

    def _messages(self, offsets: Sequence[int], most: int, end: int) -> list[Message]:
        messages: list[Message] = []
        index, size = 0, 0
        while index < len(offsets) and (size < most or not messages):
            batch = self._batchOf(offsets[index]) if offsets[index] < end else None
            if batch is None:
                index += 1
                continue
            held = batch.offsets
            low, high = held[0], held[-1]
            while index < len(offsets) and low <= offsets[index] <= high and (size < most or not messages):
                at = _indexOf(held, offsets[index])
                index += 1
                if at is not None:
                    messages.append(batch.message(at))
                    size += len(messages[-1].payload)
        return messages

    def _records(self, offsets: Sequence[int], most: int, end: int) -> tuple[list[StoredBatch], int]:
        picked: list[StoredBatch] = []
        index, size = 0, 0
        while index < len(offsets) and (size < most or not picked):
            batch = self._batchOf(offsets[index]) if offsets[index] < end else None
            if batch is None:
                index += 1
                continue
            until = bisect_right(offsets, batch.offsets[-1], index)
            picked.append(batch.pick(_indexesOf(batch.offsets, offsets[index:until])))
            size += picked[-1].size
            index = until
        return picked, index

    def _batchOf(self, offset: int) -> StoredBatch | None:
        """Return the batch whose range of offsets contains this one; None if there is none."""
        for batches in reversed(self._decoded.values()):
            for batch in batches:
                if batch.offsets[0] <= offset <= batch.offsets[-1]:
                    return batch
        for found in self._from(offset):
            for batch in found.batches:
                if offset <= batch.offsets[-1]:
                    return batch if batch.offsets[0] <= offset else None
            if found.next > offset:
                return None
        return None

    def _read(self, offset: int, selected: Callable[[str], bool], most: int, end: int) -> tuple[list[StoredBatch], int]:
        batches: list[StoredBatch] = []
        size = through = 0
        start = offset
        for found in self._from(offset, selected, min(max(most, SMALL), MEBIBYTE)):
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
            for found in self._walk(segment, segment.beforeTime(time)):
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
            for each in self._frames(segment, segment.beforePosition(begin), MEBIBYTE):
                if isinstance(each, CompleteFrame) and each.header.position >= position:
                    begin = each.header.position
                    return begin, self._portion(segment, begin, most) or each.frame, end
        return end, b"", end

    def _portion(self, segment: Segment, start: int, most: int) -> memoryview:
        """Return the complete frames at a position as a view; empty if there is none, or it is damaged."""
        window = self._opened.window(segment)
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
            _raisePassing(error)
            return memoryview(b"")
        # The view references the complete buffer, so a small part is copied.
        return buffer[:size] if 2 * size >= len(buffer) else memoryview(bytes(buffer[:size]))

    # -- through the frames ------------------------------------------------------------------------

    def _from(
        self, offset: int, selected: Callable[[str], bool] | None = None, size: int = SMALL
    ) -> Iterator[_FrameRecords]:
        """Yield the records of all frames from the one with this offset, or its successor, if a topic is selected."""
        allSegments = self._segments.all
        index = self._segments.ofOffset(offset) if allSegments else 0
        resumed = self._resumed.pop(offset, None)
        for segment in allSegments[index:]:
            if selected is not None and not any(map(selected, tuple(segment.counts))):
                yield _FrameRecords([], min(segment.next, self._segments.nextOffset))
                continue
            start = segment.before(offset)
            if resumed is not None and start <= resumed < segment.end:
                start = resumed
            for found in self._walk(segment, start, size, offset):
                if found.next > offset:
                    yield found

    def _walk(self, segment: Segment, start: int, size: int = SMALL, offset: int = 0) -> Iterator[_FrameRecords]:
        """Yield the records of a segment's frames from this position, of transactions only those from ``offset`` on."""
        for each in self._frames(segment, start, size):
            if isinstance(each, DamagedRange):
                continue
            header = each.header
            if header.count and header.kind == FrameKind.TRANSACTION:
                yield from self._published(segment, each, offset)
            elif header.count and header.kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS):
                batches = self._decode(segment, each)
                nextOffset = max(header.baseOffset + header.count, *(batch.offsets[-1] + 1 for batch in batches), 0)
                self._resume(nextOffset, header.position + header.length)
                yield _FrameRecords(batches, nextOffset)

    def _decode(self, segment: Segment, each: CompleteFrame) -> list[StoredBatch]:
        position = each.header.position
        batches = self._decoded.pop(position, None)
        if batches is None:
            header = each.header
            try:
                batches = [batch for batch in self._opened.records(*each) if len(batch)]
            except FrameError as error:
                self._report(segment, position, header.length, header.baseOffset, _behindOf(header), error)
                batches = []
        self._know(position, batches)
        return batches

    def _published(self, segment: Segment, each: CompleteFrame, offset: int) -> Iterator[_FrameRecords]:
        """Yield the records of a transaction, one staged frame at a time: all together may exceed the memory."""
        header = each.header
        end = _behindOf(header)
        lost = partial(self._reportPart, segment, header)
        try:
            portions = self._opened.portions(*each, lost)
            for portion in portions[bisect_right(portions, offset, key=lambda portion: portion.next) :]:
                batches = self._decoded.pop(portion.position, None)
                if batches is None:
                    batch = self._opened.staged(portion, lost)
                    batches = [] if batch is None else [batch]
                self._know(portion.position, batches)
                self._resume(portion.next, header.position + (header.length if portion.next == end else 0))
                yield _FrameRecords(batches, portion.next)
        except (FrameError, OSError) as error:
            _raisePassing(error)
            lost(header.baseOffset, end, error)
        self._resume(end, header.position + header.length)
        yield _FrameRecords([], end)

    def _know(self, position: int, batches: list[StoredBatch]) -> None:
        self._decoded[position] = batches
        if len(self._decoded) > _DECODED:
            self._decoded.popitem(last=False)

    def _resume(self, offset: int, position: int) -> None:
        self._resumed[offset] = position
        if len(self._resumed) > _RESUMED:
            self._resumed.popitem(last=False)

    def _frames(self, segment: Segment, start: int, size: int = SMALL) -> Iterator[CompleteFrame | DamagedRange]:
        """Yield the frames and damaged ranges of a segment from this position, and report the damage."""
        damage: DamagedRange | None = None
        position = start
        last: FrameHeader | None = None
        while position < min(segment.end, self._opened.end):
            try:
                for each in framesOf(self._opened.window(segment, size), segment.id, position):
                    if isinstance(each, CompleteFrame):
                        if damage is not None:
                            self._reportDamage(segment, damage, last, each.header.baseOffset)
                            damage = None
                        last = each.header
                        position = last.position + last.length
                    else:
                        damage = each
                        position = each.until
                    yield each
                break
            except OSError as error:
                _raisePassing(error)
                damage = DamagedRange(position, segment.behind(position), f"it cannot be read: {systemReason(error)}")
                position = damage.until
                yield damage
        if damage is not None:
            self._reportDamage(segment, damage, last, segment.next)

    def _reportDamage(
        self, segment: Segment, damage: DamagedRange, before: FrameHeader | None, nextOffset: int
    ) -> None:
        first = segment.offsetAt(damage.position) if before is None else before.baseOffset + _records(before)
        self._report(
            segment, damage.position, damage.until - damage.position, min(first, nextOffset), nextOffset, damage.reason
        )

    def _report(self, segment: Segment, position: int, length: int, first: int, nextOffset: int, why: object) -> None:
        if not any(lost.position <= position < lost.position + lost.length for lost in segment.lost):
            self._lose(segment, LostRange(position, length, first, nextOffset), why)

    def _reportPart(self, segment: Segment, header: FrameHeader, first: int, nextOffset: int, why: object) -> None:
        """Report lost offsets of a transaction; it may have more."""
        if not any(lost.first <= first and nextOffset <= lost.next for lost in segment.lost):
            self._lose(segment, LostRange(header.position, header.length, first, nextOffset), why)

    def _lose(self, segment: Segment, lost: LostRange, why: object) -> None:
        segment.lost.append(lost)
        if segment is not self._segments.all[-1]:
            with suppress(OSError):
                writeIndex(self._files, self._folder, segment)
        self._callFromThread(self._lost, lost, str(why))


def _raisePassing(error: Exception) -> None:
    """Raise an error that is a temporary shortage."""
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        raise error


def _behindOf(header: FrameHeader) -> int:
    return header.baseOffset + header.count


def _records(header: FrameHeader) -> int:
    """Return the number of offsets that a frame assigns to its records."""
    return header.count if header.kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS, FrameKind.TRANSACTION) else 0


def _indexOf(offsets: Sequence[int], offset: int) -> int | None:
    """Return the index of a number in an ascending sequence, None if it is missing."""
    index = bisect_left(offsets, offset)
    return index if index < len(offsets) and offsets[index] == offset else None


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
