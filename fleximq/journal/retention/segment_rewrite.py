"""Rewrites a sealed segment without its expired records, or several without any as one; frames keep their positions.

The others are replaced by REMOVED frames, each followed by a hole that takes no disk space
(docs/reference/journal-format.rst, "Removed records"). The new file exists next to the old one until it is renamed.

Files of empty segments exist because positions must be continuous while an earlier record is needed. A merged file has
one REMOVED frame from the first to the end of the last. While the others still exist, also after a crash, each is used
itself, and that frame ends where the next file begins.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from fleximq.journal.files.file_system import Files, createAnew, writeAll
from fleximq.journal.files.frame_scan import LARGE, CompleteFrame, DamagedRange, Window, framesOf
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
#: Maximum range of one merged file: after damage to it, this range is scanned.
MAX_MERGED_BYTES = 4 << 30


class Stopped(Exception):
    """The pass was stopped before its end."""


class Damaged(Exception):
    """A segment contains damage, and should stay unchanged."""


def replacementName(base: int) -> str:
    """Return the name of the new file of a segment; the start of a broker removes these files."""
    return f"{segmentName(base)}.new"


@contextmanager
def _newFile(files: Files, path: str) -> Iterator[int]:
    """Make a file for a block, and remove it if the block fails."""
    try:
        with files.closing(createAnew(files, path)) as descriptor:
            yield descriptor
    except Exception:
        with suppress(OSError):
            files.remove(path)
        raise


@dataclass(eq=False)
class SegmentRewrite:
    """The new file of one segment, from its first frame to its last.

    :param staged: the remaining STAGED frames, ``existing`` all of them in all segments.
    :param stopping: polled; True stops the rewrite.
    """

    files: Files
    folder: str
    segment: Segment
    opened: OpenSegments
    judge: RecordFilter
    staged: frozenset[int]
    existing: Mapping[int, StagedBlock]
    stopping: Callable[[], bool]
    _previous: int = field(default=0, init=False)
    _next: int = field(default=0, init=False)
    _removed: "_Removed | None" = field(default=None, init=False)
    _buffers: list[bytes | memoryview] = field(default_factory=list, init=False)

    def write(self) -> Segment | None:
        """Write and sync the file, and return its content; None, and no file, if it has the same records
        and is hardly smaller.

        :raises Damaged: the segment is damaged. Stopped and OSError are raised as well.
        """
        path = f"{self.folder}/{replacementName(self.segment.base)}"
        self._from = self._to = self.segment.base
        with _newFile(self.files, path) as self._descriptor:
            self._copy()
            self.files.truncate(self._descriptor, self.segment.end - self.segment.base)
            self.files.sync(self._descriptor)
            found = self._verified()
        if _contents(found) == _contents(self.segment) and found.bytes * 2 > self.segment.bytes:
            with suppress(OSError):
                self.files.remove(path)
            return None
        return found

    def _copy(self) -> None:
        segment = self.segment
        for each in framesOf(self.opened.window(segment, LARGE), segment.id, segment.base, atHead=True):
            if self.stopping():
                raise Stopped
            if isinstance(each, DamagedRange):
                raise Damaged(each.reason)
            self._take(*each)
        self._endRemoved(segment.end)
        self._flush()

    def _take(self, header: FrameHeader, frame: memoryview) -> None:
        if header.kind in _RECORDS:
            self._takeRecords(header, frame)
        elif header.kind == FrameKind.SEGMENT or (header.kind == FrameKind.STAGED and header.position in self.staged):
            self._keep(header, frame, header.baseOffset)
        elif header.kind == FrameKind.TRANSACTION and self._isKept(header, frame):
            self._keep(header, frame, header.baseOffset + header.count)
        else:
            self._remove(header.position, _recordsIn(header), header.firstTime, header.lastTime)

    def _takeRecords(self, header: FrameHeader, frame: memoryview) -> None:
        batch = decodeRecords(header, frame)
        indexes = self.judge.staying(batch)
        if not indexes:
            self._remove(header.position, header.count, header.firstTime, header.lastTime)
            return
        nextOffset = batch.offsets[-1] + 1
        if len(indexes) < len(batch):
            sparse = encodeSparse(batch.pick(indexes))
            if sparse.length + REMOVED_BYTES <= header.length:
                self._keepSparse(header, sparse, batch.offsets[indexes[-1]] + 1)
                return
        self._keep(header, frame, nextOffset)

    def _isKept(self, header: FrameHeader, frame: memoryview) -> bool:
        """Tell whether a transaction remains: as long as one of its records does, all do. An aborted one remains until
        its staged frames are removed; otherwise they could be committed again.
        """
        transaction = decodeTransaction(header, frame)
        if transaction.aborted:
            return any(position in self.existing for position in transaction.staged)
        try:
            # The first pass finds damage before the filter counts anything; all records together may exceed the memory.
            deque(self.opened.records(header, frame), 0)
            # The filter must see every batch, since it counts bytes.
            staying = [len(self.judge.staying(batch)) for batch in self.opened.records(header, frame)]
        except FrameError as error:
            raise Damaged(str(error)) from error
        return any(staying)

    def _keep(self, header: FrameHeader, frame: memoryview, nextOffset: int) -> None:
        self._endRemoved(header.position)
        self._next = nextOffset
        raw, self._previous = reseal(bytes(frame), self._previous)
        self._put(header.position, [raw])

    def _keepSparse(self, header: FrameHeader, sparse: Frame, nextOffset: int) -> None:
        self._endRemoved(header.position)
        self._seal(header.position, sparse)
        self._next = nextOffset
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
        buffers, self._previous = seal(frame, self.segment.id, position, self._previous, synced=True)
        self._put(position, buffers)

    def _put(self, position: int, buffers: list[bytes | memoryview]) -> None:
        if position != self._to or position - self._from >= _AT_ONCE:
            self._flush()
            self._from = position
        self._buffers += buffers
        self._to = position + sum(map(len, buffers))

    def _flush(self) -> None:
        if self._buffers:
            writeAll(self.files, self._descriptor, self._buffers, self._from - self.segment.base)
            self._buffers = []

    def _verified(self) -> Segment:
        segment = self.segment
        scanned = scanSegment(Window(self.files, self._descriptor, segment.base, segment.end), segment.id)
        if scanned.damaged:
            raise Damaged(f"what was written of it is damaged at {scanned.damaged[0].position}")
        found = scanned.segment
        for transaction, base, count in found.transactions:
            countTransaction(found, transaction, base, staged=self.existing, count=count)
        found.next = max(found.next, segment.next)
        found.clientIds = max(found.clientIds, segment.clientIds)
        return found


@dataclass(slots=True)
class _Removed:
    """Consecutive removed frames."""

    position: int
    offset: int
    firstTime: int
    lastTime: int = 0
    count: int = 0


def _contents(segment: Segment) -> tuple[int, int, int]:
    return segment.records, len(segment.staged), len(segment.transactions)


def _recordsIn(header: FrameHeader) -> int:
    """Return the number of records of a frame that does not itself contain records."""
    return header.count if header.kind in (FrameKind.TRANSACTION, FrameKind.REMOVED) else 0


def isEmpty(segment: Segment) -> bool:
    """Tell whether a segment has no content left."""
    left = segment.counts or segment.staged or segment.transactions or segment.checkpoints or segment.lost
    return bool(segment.removed) and not left


def emptyRuns(segments: Iterable[Segment], span: int = MAX_MERGED_BYTES) -> Iterator[list[Segment]]:
    """Yield the neighbouring segments without content, two or more together."""
    run: list[Segment] = []
    for segment in segments:
        fits = isEmpty(segment) and (not run or (segment.base == run[-1].end and segment.end - run[0].base <= span))
        if not fits:
            if len(run) > 1:
                yield run
            run = []
        if isEmpty(segment):
            run.append(segment)
    if len(run) > 1:
        yield run


def writeMerged(files: Files, folder: str, run: Sequence[Segment], opened: OpenSegments) -> Segment | None:
    """Write and sync the file that will replace these; return its content, None if one is damaged. Raises OSError."""
    frames = [list(framesOf(opened.window(each), each.id, each.base, atHead=True)) for each in run]
    kinds = [[found.header.kind if isinstance(found, CompleteFrame) else None for found in each] for each in frames]
    if any(each != [FrameKind.SEGMENT, FrameKind.REMOVED] for each in kinds):
        return None
    head = frames[0][0]
    removed = [each[1].header for each in frames if isinstance(each[1], CompleteFrame)]
    assert isinstance(head, CompleteFrame)
    raw, previous = reseal(bytes(head.frame), 0)
    count = min(sum(header.count for header in removed), 0xFFFFFFFF)
    end = run[-1].end
    frame = encodeRemoved(end, removed[0].baseOffset, count, removed[0].firstTime, removed[-1].lastTime)
    sealed, _ = seal(frame, run[0].id, run[0].base + len(raw), previous, synced=True)
    return _write(files, f"{folder}/{replacementName(run[0].base)}", [raw, *sealed], run)


def _write(files: Files, path: str, buffers: list[bytes | memoryview], run: Sequence[Segment]) -> Segment:
    base, end = run[0].base, run[-1].end
    with _newFile(files, path) as descriptor:
        writeAll(files, descriptor, buffers, 0)
        files.truncate(descriptor, end - base)
        files.sync(descriptor)
        found = scanSegment(Window(files, descriptor, base, end), run[0].id).segment
    found.next = max(found.next, run[-1].next)
    found.clientIds = max(each.clientIds for each in run)
    return found
