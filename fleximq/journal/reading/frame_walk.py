"""The records of committed frames, in order, and the damage between them.

A frame's check sum is verified before its records are used. Damage is skipped, reported once, and never changed. The
records of the last few frames are cached, and the positions at which reads have ended.

This file is hot: a frame of 1,000 records of 100 bytes costs 0.1 us a record, from the file's bytes to a batch.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from fleximq.errors import systemReason
from fleximq.journal.files.file_system import SHORTAGES, Files
from fleximq.journal.files.frame_scan import SMALL, CompleteFrame, DamagedRange, framesOf
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_index import writeIndex
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.format.frame import FrameError, FrameHeader, FrameKind
from fleximq.values.records import StoredBatch

#: The number of frames with cached records.
_DECODED = 8
#: The number of cached positions: the end of one read is the usual start of the next.
_RESUMED = 256


class FrameRecords(NamedTuple):
    """The records of a frame, and the offset after them."""

    batches: list[StoredBatch]
    next: int


class FrameWalk:
    """Walks through the frames of a journal, on one thread. ``opened`` has the open files.

    :param lost: called with new damage, and with its reason as a clause.
    """

    def __init__(
        self, files: Files, folder: str, segments: SegmentTable, lost: Callable[[LostRange, str], object]
    ) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._lost = lost
        self.opened = OpenSegments(files, folder, segments)
        self._decoded: OrderedDict[int, list[StoredBatch]] = OrderedDict()
        self._resumed: OrderedDict[int, int] = OrderedDict()

    def forget(self) -> None:
        """Close all files and clear the caches."""
        self.opened.close()
        self._decoded.clear()
        self._resumed.clear()

    def batchOf(self, offset: int) -> StoredBatch | None:
        """Return the batch whose range of offsets contains this one; None if there is none."""
        for batches in reversed(self._decoded.values()):
            for batch in batches:
                if batch.offsets[0] <= offset <= batch.offsets[-1]:
                    return batch
        for found in self.fromOffset(offset):
            for batch in found.batches:
                if offset <= batch.offsets[-1]:
                    return batch if batch.offsets[0] <= offset else None
            if found.next > offset:
                return None
        return None

    def fromOffset(
        self, offset: int, selected: Callable[[str], bool] | None = None, size: int = SMALL
    ) -> Iterator[FrameRecords]:
        """Yield the records of all frames from the one with this offset, or its successor, if a topic is selected."""
        allSegments = self._segments.all
        index = self._segments.ofOffset(offset) if allSegments else 0
        resumed = self._resumed.pop(offset, None)
        for segment in allSegments[index:]:
            if selected is not None and not any(map(selected, tuple(segment.counts))):
                yield FrameRecords([], min(segment.next, self._segments.nextOffset))
                continue
            start = segment.before(offset)
            if resumed is not None and start <= resumed < segment.end:
                start = resumed
            for found in self.of(segment, start, size, offset):
                if found.next > offset:
                    yield found

    def of(self, segment: Segment, start: int, size: int = SMALL, offset: int = 0) -> Iterator[FrameRecords]:
        """Yield the records of a segment's frames from this position, of transactions only those from ``offset`` on."""
        for each in self.frames(segment, start, size):
            if isinstance(each, DamagedRange):
                continue
            header = each.header
            if header.count and header.kind == FrameKind.TRANSACTION:
                yield from self._published(segment, each, offset)
            elif header.count and header.kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS):
                batches = self._decode(segment, each)
                nextOffset = max(header.baseOffset + header.count, *(batch.offsets[-1] + 1 for batch in batches), 0)
                self._resume(nextOffset, header.position + header.length)
                yield FrameRecords(batches, nextOffset)

    def _decode(self, segment: Segment, each: CompleteFrame) -> list[StoredBatch]:
        position = each.header.position
        batches = self._decoded.pop(position, None)
        if batches is None:
            header = each.header
            try:
                batches = [batch for batch in self.opened.records(*each) if len(batch)]
            except FrameError as error:
                self._report(segment, position, header.length, header.baseOffset, _behindOf(header), error)
                batches = []
        self._know(position, batches)
        return batches

    def _published(self, segment: Segment, each: CompleteFrame, offset: int) -> Iterator[FrameRecords]:
        """Yield the records of a transaction, one staged frame at a time: all together may exceed the memory."""
        header = each.header
        end = _behindOf(header)
        lost = partial(self._reportPart, segment, header)
        try:
            portions = self.opened.portions(*each, lost)
            for portion in portions[bisect_right(portions, offset, key=lambda portion: portion.next) :]:
                batches = self._decoded.pop(portion.position, None)
                if batches is None:
                    batch = self.opened.staged(portion, lost)
                    batches = [] if batch is None else [batch]
                self._know(portion.position, batches)
                self._resume(portion.next, header.position + (header.length if portion.next == end else 0))
                yield FrameRecords(batches, portion.next)
        except (FrameError, OSError) as error:
            raisePassing(error)
            lost(header.baseOffset, end, error)
        self._resume(end, header.position + header.length)
        yield FrameRecords([], end)

    def _know(self, position: int, batches: list[StoredBatch]) -> None:
        self._decoded[position] = batches
        if len(self._decoded) > _DECODED:
            self._decoded.popitem(last=False)

    def _resume(self, offset: int, position: int) -> None:
        self._resumed[offset] = position
        if len(self._resumed) > _RESUMED:
            self._resumed.popitem(last=False)

    def frames(self, segment: Segment, start: int, size: int = SMALL) -> Iterator[CompleteFrame | DamagedRange]:
        """Yield the frames and damaged ranges of a segment from this position, and report the damage."""
        damage: DamagedRange | None = None
        position = start
        last: FrameHeader | None = None
        while position < min(segment.end, self.opened.end):
            try:
                for each in framesOf(self.opened.window(segment, size), segment.id, position):
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
                raisePassing(error)
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
        self._lost(lost, str(why))


def raisePassing(error: Exception) -> None:
    """Raise an error that is a temporary shortage."""
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        raise error


def _behindOf(header: FrameHeader) -> int:
    return header.baseOffset + header.count


def _records(header: FrameHeader) -> int:
    """Return the number of offsets that a frame assigns to its records."""
    return header.count if header.kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS, FrameKind.TRANSACTION) else 0
