"""The segments' files as they are read: opened when they are first looked into, and closed when many are open."""

from collections import OrderedDict
from collections.abc import Callable
from errno import EIO

from fleximq.journal.columns import decodeRecords, decodeStaged
from fleximq.journal.counting import placed
from fleximq.journal.damage import frameAt
from fleximq.journal.files import Files
from fleximq.journal.frame import FrameError, FrameHeader, Kind
from fleximq.journal.indexed import Segment
from fleximq.journal.marks import decodeTransaction
from fleximq.journal.segment import segmentName
from fleximq.journal.segments import Segments
from fleximq.journal.window import SMALL, Window
from fleximq.records import Batch

#: How many files are open at once.
_MOST = 64
_WITH_RECORDS = (Kind.RECORDS, Kind.SPARSE_RECORDS)


class OpenSegments:
    """Reads frames and their records; used by one thread.

    Nothing behind ``end`` is looked at: it is set to the durable end before each use.
    """

    def __init__(self, files: Files, folder: str, segments: Segments) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._open: OrderedDict[int, tuple[Segment, int]] = OrderedDict()
        self.end = 0

    def window(self, segment: Segment, size: int = SMALL) -> Window:
        """Return a view of a segment's file, as far as it is committed.

        :raises OSError: the file is not there, or cannot be opened.
        """
        end = min(segment.end, self.end)
        return Window(self._files, self._descriptor(segment), segment.base, end, size)

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
        """Close all files; they are opened again when they are looked into."""
        while self._open:
            _, (_, descriptor) = self._open.popitem()
            self._files.close(descriptor)

    def records(
        self, header: FrameHeader, frame: memoryview, lost: Callable[[int, int, Exception], None] | None = None
    ) -> list[Batch]:
        """Return the records that a whole frame makes visible: its own, or those of the frames staged before.

        :param lost: told of offsets, from one up to before another, whose staged frames are damaged or gone.
        :raises FrameError: the frame contradicts itself; or, if nobody is told of it, something of it is lost.
        :raises OSError: a file cannot be read.
        """
        if header.kind in _WITH_RECORDS:
            return [decodeRecords(header, frame)]
        if header.kind != Kind.TRANSACTION:
            return []
        transaction = decodeTransaction(header, frame)
        if transaction.aborted:
            return []
        found: list[Batch | None] = []
        why: Exception = FrameError("what was staged is not there")
        for position in transaction.staged:
            try:
                found.append(self._staged(position))
            except (FrameError, OSError) as error:
                if isinstance(error, OSError) and error.errno != EIO:
                    raise
                found.append(None)
                why = error
        counts = [None if batch is None else len(batch) for batch in found]
        offsets, gap = placed(counts, header.baseOffset, header.count)
        if gap is not None:
            if lost is None:
                raise why
            lost(*gap, why)
        batches = []
        for batch, offset in zip(found, offsets, strict=True):
            if batch is not None and offset is not None:
                batch.offsets = range(offset, offset + len(batch))
                batches.append(batch)
        return batches

    def _staged(self, position: int) -> Batch:
        segments = self._segments
        segment = segments.all[segments.ofPosition(position)]
        if not segment.base <= position < segment.end:
            raise FrameError(f"nothing is staged at {position}")
        return decodeStaged(*frameAt(self.window(segment), position, segment.id))[1]
