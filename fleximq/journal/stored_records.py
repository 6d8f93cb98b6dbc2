"""Reads a journal on disk: at once from the table of segments in memory, or by callback from the reader's thread."""

from collections.abc import Callable, Mapping, Sequence

from zope.interface import implementer

from fleximq.interfaces import IJournalRead
from fleximq.journal.files.segment_summary import NEVER
from fleximq.journal.files.segment_table import BacklogTotals, SegmentTable
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.values.message import Message
from fleximq.values.records import BacklogSize, SegmentState, StoredBatch, TopicBounds


@implementer(IJournalRead)
class StoredRecords:
    """The committed records of a journal; :class:`fleximq.interfaces.IJournalRead` describes the methods.

    :param segments: the table of the journal's segments.
    :param reader: reads the files of these segments.
    """

    def __init__(self, segments: SegmentTable, reader: ReaderThread) -> None:
        self.segments = segments
        self.reader = reader
        self._totals = BacklogTotals(segments)

    @property
    def end(self) -> int:
        return self.segments.nextOffset

    @property
    def removals(self) -> int:
        return self.segments.removals

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[Sequence[Message]], None]) -> None:
        self.reader.fetch(offsets, most, found)

    def fetchRecords(
        self, offsets: Sequence[int], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        self.reader.fetchRecords(offsets, most, found)

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[StoredBatch], int], None]
    ) -> None:
        self.reader.read(offset, wanted, most, found)

    def bounds(self) -> Mapping[str, TopicBounds]:
        return self.segments.bounds()

    def segmentStates(self) -> Sequence[SegmentState]:
        return [
            SegmentState(
                each.base,
                each.end,
                each.bytes,
                each.first,
                each.next,
                None if each.highest == NEVER else each.highest,
                len(each.lost),
            )
            for each in self.segments.all
        ]

    def topics(self, limit: int, start: str = "", before: str = "") -> list[str]:
        return self.segments.topics(limit, start, before)

    def removedSince(self, number: int, limit: int) -> tuple[int, Sequence[tuple[str, int]]]:
        return self.segments.removedSince(number, limit)

    def backlogFrom(self, offset: int) -> BacklogSize:
        return self._totals.backlogFrom(offset)

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        self.reader.offsetAt(time, found)

    def advance(
        self, start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        self.reader.advance(start, end, records, size, found)

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        self.reader.readBytes(position, most, found)
