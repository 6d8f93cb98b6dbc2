"""The segment files that are open for reading: opened on first use, and closed when too many are open."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from errno import EIO
from typing import NamedTuple

from fleximq.journal.files.file_system import Files
from fleximq.journal.files.frame_scan import SMALL, Window, frameAt
from fleximq.journal.files.segment_summary import Segment, assignOffsets
from fleximq.journal.files.segment_table import SegmentTable, segmentName
from fleximq.journal.format.control_frames import decodeTransaction
from fleximq.journal.format.frame import HEADER_BYTES, FrameError, FrameHeader, FrameKind, readHeader
from fleximq.journal.format.record_columns import decodeRecords, decodeStaged
from fleximq.values.records import StoredBatch

#: The maximum number of open files.
_MOST = 64
_WITH_RECORDS = (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS)
_GONE = "what was staged is not there"


#: Called with offsets, from one to another (exclusive), whose staged frames are damaged or gone, and with the reason.
_Lost = Callable[[int, int, Exception], None]


class CommittedBlock(NamedTuple):
    """A staged frame, and the offsets of its records from ``first`` to ``next`` (exclusive), given by a transaction."""

    position: int
    first: int
    next: int


class _CommittedBlocks(NamedTuple):
    """The blocks of a transaction, and the offsets without a block, with the reason."""

    frame: FrameHeader
    portions: Sequence[CommittedBlock]
    gap: tuple[int, int] | None
    why: Exception


class OpenSegments:
    """Reads frames and their records, on one thread. Bytes from ``end`` on are not read: set it to the durable end
    before each use. All methods that read raise OSError if a file cannot be read, and FrameError if a frame contradicts
    itself or, without ``lost``, records are lost.
    """

    def __init__(self, files: Files, folder: str, segments: SegmentTable, end: int = 0) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._open: OrderedDict[int, tuple[Segment, int]] = OrderedDict()
        self._placed: _CommittedBlocks | None = None
        self.end = end

    def window(self, segment: Segment, size: int = SMALL) -> Window:
        """Return a view of the committed part of a segment's file."""
        return Window(self._files, self._descriptor(segment), segment.base, min(segment.end, self.end), size)

    def _descriptor(self, segment: Segment) -> int:
        known = self._open.pop(segment.base, None)
        if known is not None and known[0] is not segment:
            self._files.close(known[1])
            known = None
        if known is None:
            known = segment, self._files.open(f"{self._folder}/{segmentName(segment.base)}")
        self._open[segment.base] = known
        if len(self._open) > _MOST:
            _, (_, oldest) = self._open.popitem(last=False)
            self._files.close(oldest)
        return known[1]

    def close(self) -> None:
        """Close all files; the next use opens them again."""
        self._placed = None
        while self._open:
            _, (_, descriptor) = self._open.popitem()
            self._files.close(descriptor)

    def records(self, header: FrameHeader, frame: memoryview, lost: _Lost | None = None) -> Iterator[StoredBatch]:
        """Yield the records that a valid frame publishes: its own, or those of staged frames. The records of a
        transaction may exceed the memory, so its staged frames are read one by one.
        """
        if header.kind in _WITH_RECORDS:
            yield decodeRecords(header, frame)
        elif header.kind == FrameKind.TRANSACTION:
            for portion in self.portions(header, frame, lost):
                batch = self.staged(portion, lost)
                if batch is not None:
                    yield batch

    def portions(self, header: FrameHeader, frame: memoryview, lost: _Lost | None = None) -> Sequence[CommittedBlock]:
        """Return the staged frames that a transaction publishes, according to their headers."""
        if self._placed is None or self._placed.frame != header:
            self._placed = self._place(header, frame)
        blocks = self._placed
        if blocks.gap is not None:
            if lost is None:
                raise blocks.why
            lost(*blocks.gap, blocks.why)
        return blocks.portions

    def _place(self, header: FrameHeader, frame: memoryview) -> _CommittedBlocks:
        transaction = decodeTransaction(header, frame)
        if transaction.aborted:
            return _CommittedBlocks(header, (), None, FrameError(_GONE))
        counts, why = self._counts(transaction.staged, self._unchecked)
        if None in counts or sum(filter(None, counts)) != header.count:
            counts, why = self._counts(transaction.staged, self._checked)
        offsets, gap = assignOffsets(counts, header.baseOffset, header.count)
        portions = [
            CommittedBlock(position, first, first + count)
            for position, count, first in zip(transaction.staged, counts, offsets, strict=True)
            if count and first is not None
        ]
        return _CommittedBlocks(header, portions, gap, why)

    def staged(self, portion: CommittedBlock, lost: _Lost | None = None) -> StoredBatch | None:
        """Return the records of a staged frame, with the offsets from its transaction; None if it is damaged."""
        position, first, nextOffset = portion
        segment = self._segmentAt(position)
        try:
            batch = decodeStaged(*frameAt(self.window(segment), position, segment.id))[1]
        except (FrameError, OSError) as error:
            why = _damage(error)
            if lost is None:
                raise why from error
            lost(first, nextOffset, why)
            return None
        batch.offsets = range(first, nextOffset)
        return batch

    def _counts(self, staged: Iterable[int], find: Callable[[int], FrameHeader]) -> tuple[list[int | None], Exception]:
        """Return the number of records of each staged frame, None for a damaged one, and the last damage."""
        counts: list[int | None] = []
        why: Exception = FrameError(_GONE)
        for position in staged:
            try:
                counts.append(find(position).count)
            except (FrameError, OSError) as error:
                why = _damage(error)
                counts.append(None)
        return counts, why

    def _checked(self, position: int) -> FrameHeader:
        """Return the header of the frame staged at a position, after verifying its check sum."""
        segment = self._segmentAt(position)
        return frameAt(self.window(segment), position, segment.id)[0]

    def _unchecked(self, position: int) -> FrameHeader:
        segment = self._segmentAt(position)
        header = readHeader(self.window(segment, HEADER_BYTES).at(position, HEADER_BYTES))
        if (header.position, header.segment, header.kind) != (position, segment.id, FrameKind.STAGED):
            raise FrameError(_GONE)
        return header

    def _segmentAt(self, position: int) -> Segment:
        segments = self._segments
        segment = segments.all[segments.ofPosition(position)]
        if not segment.base <= position < segment.end:
            raise FrameError(f"nothing is staged at {position}")
        return segment


def _damage(error: Exception) -> Exception:
    """Return an error that means damage; raise any other."""
    if isinstance(error, OSError) and error.errno != EIO:
        raise error
    return error
