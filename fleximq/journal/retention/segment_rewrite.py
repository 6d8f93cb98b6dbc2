"""Rewrites a sealed segment without its expired records: each remaining frame keeps its position.

The others are replaced by REMOVED frames, each followed by a hole that takes no disk space
(docs/reference/journal-format.rst, "Removed records"). The new file exists next to the old one until it is renamed.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from fleximq.journal.files.file_system import Files, writeAll
from fleximq.journal.files.frame_scan import LARGE, DamagedRange, Window, framesOf
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_index import scanSegment
from fleximq.journal.files.segment_summary import Segment, StagedBlock, countTransaction
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.format.control_frames import REMOVED_BYTES, decodeTransaction, encodeRemoved
from fleximq.journal.format.frame import Frame, FrameError, FrameHeader, FrameKind, reseal, seal
from fleximq.journal.format.record_columns import decodeRecords, encodeSparse
from fleximq.journal.retention.retention_rules import RecordFilter

#: The size of one write.
_AT_ONCE = 1 << 20
_RECORDS = (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS)


class Stopped(Exception):
    """The pass was stopped before its end."""


class Damaged(Exception):
    """A segment contains damage, and should stay unchanged."""


def replacementName(base: int) -> str:
    """Return the name of the new file of a segment; the start of a broker removes such files."""
    return f"{segmentName(base)}.new"


class SegmentRewrite:
    """The new file of one segment, from its first frame to its last.

    :param staged: the remaining STAGED frames.
    :param existing: all STAGED frames of all segments.
    :param stopping: polled; True stops the rewrite.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        segment: Segment,
        opened: OpenSegments,
        judge: RecordFilter,
        staged: frozenset[int],
        existing: Mapping[int, StagedBlock],
        stopping: Callable[[], bool],
    ) -> None:
        self._files = files
        self._path = f"{folder}/{replacementName(segment.base)}"
        self._segment = segment
        self._opened = opened
        self._judge = judge
        self._staged = staged
        self._existing = existing
        self._stopping = stopping
        self._previous = self._next = 0
        self._removed: _Removed | None = None
        self._buffers: list[bytes | memoryview] = []
        self._from = self._to = segment.base

    def write(self) -> Segment | None:
        """Write and sync the file, and return its content; None, and no file, if it is hardly smaller.

        :raises Damaged: the segment is damaged.
        :raises Stopped: ``stopping`` returned True.
        :raises OSError: the file cannot be written.
        """
        if self._files.exists(self._path):
            self._files.remove(self._path)
        self._descriptor = self._files.create(self._path)
        try:
            try:
                self._copy()
                self._files.truncate(self._descriptor, self._segment.end - self._segment.base)
                self._files.sync(self._descriptor)
                found = self._verified()
            finally:
                self._files.close(self._descriptor)
        except Exception:
            self._discard()
            raise
        if found.bytes * 2 > self._segment.bytes:
            self._discard()
            return None
        return found

    def _discard(self) -> None:
        with suppress(OSError):
            self._files.remove(self._path)

    def _copy(self) -> None:
        segment = self._segment
        for each in framesOf(self._opened.window(segment, LARGE), segment.id, segment.base, atHead=True):
            if self._stopping():
                raise Stopped
            if isinstance(each, DamagedRange):
                raise Damaged(each.reason)
            self._take(*each)
        self._endRemoved(segment.end)
        self._flush()

    def _take(self, header: FrameHeader, frame: memoryview) -> None:
        if header.kind in _RECORDS:
            self._takeRecords(header, frame)
        elif header.kind == FrameKind.SEGMENT or (header.kind == FrameKind.STAGED and header.position in self._staged):
            self._keep(header, frame, header.baseOffset)
        elif header.kind == FrameKind.TRANSACTION and self._isKept(header, frame):
            self._keep(header, frame, header.baseOffset + header.count)
        else:
            self._remove(header.position, _recordsIn(header), header.firstTime, header.lastTime)

    def _takeRecords(self, header: FrameHeader, frame: memoryview) -> None:
        batch = decodeRecords(header, frame)
        indexes = self._judge.staying(batch)
        if not indexes:
            self._remove(header.position, header.count, header.firstTime, header.lastTime)
            return
        next = batch.offsets[-1] + 1
        if len(indexes) < len(batch):
            sparse = encodeSparse(batch.pick(indexes))
            if sparse.length + REMOVED_BYTES <= header.length:
                self._keepSparse(header, sparse, batch.offsets[indexes[-1]] + 1)
                return
        self._keep(header, frame, next)

    def _isKept(self, header: FrameHeader, frame: memoryview) -> bool:
        """Tell whether a transaction remains: as long as one of its records does, all do.

        An aborted one remains until its staged frames are removed; otherwise they could be committed again.
        """
        transaction = decodeTransaction(header, frame)
        if transaction.aborted:
            return any(position in self._existing for position in transaction.staged)
        try:
            # The first pass finds damage before the filter counts anything; all records together may exceed the memory.
            deque(self._opened.records(header, frame), 0)
            # The filter must see every batch, since it counts bytes.
            staying = [len(self._judge.staying(batch)) for batch in self._opened.records(header, frame)]
        except FrameError as error:
            raise Damaged(str(error)) from error
        return any(staying)

    # -- writing -----------------------------------------------------------------------------------

    def _keep(self, header: FrameHeader, frame: memoryview, next: int) -> None:
        self._endRemoved(header.position)
        self._next = next
        raw, self._previous = reseal(bytes(frame), self._previous)
        self._put(header.position, [raw])

    def _keepSparse(self, header: FrameHeader, sparse: Frame, next: int) -> None:
        self._endRemoved(header.position)
        self._seal(header.position, sparse)
        self._next = next
        taken = header.count - sparse.count
        self._remove(header.position + sparse.length, taken, header.firstTime, header.lastTime)

    def _remove(self, position: int, count: int, firstTime: int, lastTime: int) -> None:
        if self._removed is None:
            self._removed = _Removed(position, self._next, firstTime)
        self._removed.count += count
        self._removed.lastTime = lastTime

    def _endRemoved(self, until: int) -> None:
        removed, self._removed = self._removed, None
        if removed is not None:
            count = min(removed.count, 0xFFFFFFFF)
            frame = encodeRemoved(until, removed.offset, count, removed.firstTime, removed.lastTime)
            self._seal(removed.position, frame)

    def _seal(self, position: int, frame: Frame) -> None:
        # All earlier bytes of a sealed segment are on disk.
        buffers, self._previous = seal(frame, self._segment.id, position, self._previous, synced=True)
        self._put(position, buffers)

    def _put(self, position: int, buffers: list[bytes | memoryview]) -> None:
        if position != self._to or position - self._from >= _AT_ONCE:
            self._flush()
            self._from = position
        self._buffers += buffers
        self._to = position + sum(map(len, buffers))

    def _flush(self) -> None:
        if self._buffers:
            writeAll(self._files, self._descriptor, self._buffers, self._from - self._segment.base)
            self._buffers = []

    def _verified(self) -> Segment:
        """Read the written file, and return its content."""
        segment = self._segment
        scanned = scanSegment(Window(self._files, self._descriptor, segment.base, segment.end), segment.id)
        if scanned.damaged:
            raise Damaged(f"what was written of it is damaged at {scanned.damaged[0].position}")
        found = scanned.segment
        for transaction, base, count in found.transactions:
            countTransaction(found, transaction, base, staged=self._existing, count=count)
        found.next = max(found.next, segment.next)
        found.clientIds = max(found.clientIds, segment.clientIds)
        return found


class _Removed:
    """Consecutive removed frames."""

    __slots__ = ("count", "firstTime", "lastTime", "offset", "position")

    def __init__(self, position: int, offset: int, time: int) -> None:
        self.position = position
        self.offset = offset
        self.count = 0
        self.firstTime = self.lastTime = time


def _recordsIn(header: FrameHeader) -> int:
    """Return the number of records of a frame that does not itself contain records."""
    return header.count if header.kind in (FrameKind.TRANSACTION, FrameKind.REMOVED) else 0
