"""Scans all files of a journal's folder, read-only, from outside.

A broker may run: files may grow, be replaced or vanish meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from fleximq.journal.files.file_system import Files, fileSize, readFile
from fleximq.journal.files.folder_files import END, readEnd
from fleximq.journal.files.frame_scan import LARGE, CompleteFrame, DamagedRange, Window, framesOf
from fleximq.journal.files.segment_table import segmentBases, segmentName
from fleximq.journal.format.control_frames import (
    decodeCheckpoint,
    decodeGap,
    decodeLost,
    decodeStateRecords,
    decodeTransaction,
)
from fleximq.journal.format.frame import HEADER_BYTES, SYNCED, FrameError, FrameHeader, FrameKind, readHeader
from fleximq.journal.format.record_columns import decodeRecords, decodeStaged
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import GroupProgress, StateRecord, follow, groupsIn


class SegmentFile(NamedTuple):
    """One file of the journal; ``base`` is the position of its first byte, ``end`` that after its last."""

    name: str
    base: int
    end: int


class Finding(NamedTuple):
    """A deviation from an intact journal. ``damaged``: committed records are lost; False for the traces of a crash, of
    retention or of a running broker.
    """

    damaged: bool
    sentence: str


class FileSummary(NamedTuple):
    """The content of a file: offsets from ``first`` to ``next`` (exclusive), and the number of records."""

    file: SegmentFile
    frames: int
    records: int
    first: int
    next: int


class FolderSurvey:
    """The state of a folder at the time of construction. Raises OSError if the folder cannot be read."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self.files: list[SegmentFile] = []
        # Read before the sizes: both only grow while a broker writes.
        self._committed = self._durableEnd()
        for base in segmentBases(files.names(folder)):
            with suppress(FileNotFoundError):
                name = segmentName(base)
                self.files.append(SegmentFile(name, base, base + fileSize(files, f"{folder}/{name}")))

    @property
    def bytes(self) -> int:
        """The bytes of all files, including holes, which take no disk space."""
        return sum(file.end - file.base for file in self.files)

    def frames(self, file: SegmentFile) -> Iterator[CompleteFrame | DamagedRange]:
        """Yield the frames and damaged ranges of a file that still exists."""
        with suppress(FileNotFoundError), self._window(file) as window:
            yield from framesOf(window, None, file.base, atHead=True)

    @contextmanager
    def _window(self, file: SegmentFile, size: int = LARGE) -> Iterator[Window]:
        """Open a file for a block. Raises FileNotFoundError if it does not exist any more."""
        with self._files.closing(self._files.open(f"{self._folder}/{file.name}")) as descriptor:
            yield Window(self._files, descriptor, file.base, file.end, size)

    def batches(self, first: int = 0, skipped: Callable[[str], None] = lambda sentence: None) -> Iterator[StoredBatch]:
        """Yield all valid records, in order; files that end before the offset ``first`` may be skipped.

        :param skipped: called with a sentence for a frame whose check sum is right, but not its content.
        """
        for index, file in enumerate(self.files):
            if index + 1 < len(self.files) and self._begins(self.files[index + 1]) <= first:
                continue
            for found in self.frames(file):
                if isinstance(found, CompleteFrame):
                    try:
                        yield from self._batchesOf(found)
                    except FrameError as error:
                        skipped(_damaged(_wrong(found, error), file))

    def groups(self) -> dict[str, GroupProgress]:
        """Return the progress of each consumer group, from the last checkpoint and the state records after it."""
        notes: list[StateRecord] = []
        for file in reversed(self.files):
            known, behind = self._lastCheckpoint(file)
            notes = behind + notes
            if known is not None:
                break
        else:
            known = {}
        for note in notes:
            follow(known, note)
        return known

    def _lastCheckpoint(self, file: SegmentFile) -> tuple[dict[str, GroupProgress] | None, list[StateRecord]]:
        """Return the groups in a file's last checkpoint, None without one, and the state records after it."""
        known: dict[str, GroupProgress] | None = None
        notes: list[StateRecord] = []
        for found in self.frames(file):
            if not isinstance(found, CompleteFrame):
                continue
            with suppress(FrameError):
                if found.header.kind == FrameKind.NOTES:
                    notes += decodeStateRecords(*found)
                elif found.header.kind == FrameKind.CHECKPOINT:
                    known, notes = groupsIn(decodeCheckpoint(*found).snapshot), []
        return known, notes

    def check(self) -> Iterator[Finding | FileSummary]:
        """Yield the findings about each file, then its summary."""
        course = _SurveyState()
        for file in self.files:
            yield from course.begin(file)
            unfinished = self._unfinished(file) if file is self.files[-1] else None
            for found in self.frames(file):
                if isinstance(found, CompleteFrame):
                    try:
                        _DECODERS.get(found.header.kind, _accept)(*found)
                    except FrameError as error:
                        yield course.damage(_wrong(found, error), file)
                    else:
                        yield from course.whole(found)
                elif found.position == unfinished:
                    yield course.unfinished(found, file)
                    break
                else:
                    yield course.damage(found, file)
            if file is self.files[-1]:
                yield from self._missing(file.end if unfinished is None else unfinished)
            yield FileSummary(file, course.frames, course.records, course.first, course.next)
        if not self.files:
            yield from self._missing(0)

    def _missing(self, end: int) -> Iterator[Finding]:
        if self._committed > end:
            words = (
                f"positions {end} to {self._committed - 1}: they were committed, as the file {END!r} says, and are gone"
            )
            yield Finding(True, words)

    def _durableEnd(self) -> int:
        try:
            found = readEnd(readFile(self._files, f"{self._folder}/{END}"))
        except FileNotFoundError:
            return 0
        return 0 if found is None else found[0]

    def _unfinished(self, file: SegmentFile) -> int | None:
        """Return where an unfinished end of the last file begins, not confirmed by a later synced frame; else None."""
        unfinished = None
        for found in self.frames(file):
            if isinstance(found, CompleteFrame):
                unfinished = None if found.header.flags & SYNCED else unfinished
            elif unfinished is None:
                unfinished = found.position
        return unfinished

    def _begins(self, file: SegmentFile) -> int:
        """Return the first offset of a file; 0 if it is unreadable."""
        with suppress(FileNotFoundError, FrameError), self._window(file, HEADER_BYTES) as window:
            return readHeader(window.at(file.base, HEADER_BYTES)).baseOffset
        return 0

    def _batchesOf(self, found: CompleteFrame) -> Iterator[StoredBatch]:
        header, frame = found
        if header.kind in (FrameKind.RECORDS, FrameKind.SPARSE_RECORDS):
            yield decodeRecords(header, bytes(frame))
        elif header.kind == FrameKind.TRANSACTION:
            offset = header.baseOffset
            for batch in self._staged(decodeTransaction(header, frame).staged):
                batch.offsets = range(offset, offset + len(batch))
                offset += len(batch)
                yield batch

    def _staged(self, positions: Sequence[int]) -> Iterator[StoredBatch]:
        for position in positions:
            for file in self.files:
                if file.base <= position < file.end:
                    found = self._at(file, position)
                    if isinstance(found, CompleteFrame) and found.header.kind == FrameKind.STAGED:
                        yield decodeStaged(found.header, bytes(found.frame))[1]

    def _at(self, file: SegmentFile, position: int) -> CompleteFrame | DamagedRange | None:
        with suppress(FileNotFoundError), self._window(file) as window:
            return next(framesOf(window, None, position), None)
        return None


class _SurveyState:
    """The position and offset of a survey on its way through all files."""

    def __init__(self) -> None:
        self._end: int | None = None
        self.next = 0
        self._loose = True
        self._removed = False
        self._clear(0)

    def begin(self, file: SegmentFile) -> Iterator[Finding]:
        # After a crash between the two steps of a merge, a removed range may reach into the next file.
        if self._end is not None and file.base != self._end and not (self._removed and file.base < self._end):
            words = "there is no file for them" if file.base > self._end else "a file reaches into the next one"
            low, high = sorted((self._end, file.base))
            yield Finding(True, f"positions {low} to {high - 1}: {words}")
            self._loose = True
        self._end = file.end
        self._clear(self.next)

    def damage(self, damage: DamagedRange, file: SegmentFile) -> Finding:
        self._loose = True
        return Finding(True, _damaged(damage, file))

    def unfinished(self, damage: DamagedRange, file: SegmentFile) -> Finding:
        where = _where(file, damage.position, file.end)
        return Finding(False, f"{where} are an unfinished end ({damage.reason}), which the next start cuts")

    def whole(self, found: CompleteFrame) -> Iterator[Finding]:
        header, frame = found
        yield from self._offset(header)
        self._removed = header.kind == FrameKind.REMOVED
        self.frames += 1
        self.next = header.baseOffset
        if header.kind in (FrameKind.RECORDS, FrameKind.TRANSACTION, FrameKind.SPARSE_RECORDS):
            self.records += header.count
            self.next += header.count
            self._loose = header.kind == FrameKind.SPARSE_RECORDS
        elif header.kind == FrameKind.GAP:
            gap = decodeGap(header, frame)
            self.next = gap.next
            yield Finding(
                False, f"offsets {gap.first} to {gap.next - 1} were never given, after a stop that was not clean"
            )
        elif header.kind == FrameKind.LOST:
            lost = decodeLost(header, frame)
            self._loose = True
            yield Finding(True, f"offsets {lost.first} to {lost.next - 1} were lost, as an earlier start noted")
        elif header.kind == FrameKind.REMOVED:
            self._loose = True

    def _offset(self, header: FrameHeader) -> Iterator[Finding]:
        if header.baseOffset < self.next:
            yield Finding(True, f"offset {header.baseOffset} comes again at {header.position}, behind {self.next - 1}")
        elif header.baseOffset > self.next and not self._loose and header.kind != FrameKind.SPARSE_RECORDS:
            yield Finding(True, f"offsets {self.next} to {header.baseOffset - 1} are missing before {header.position}")
        if not self.frames:
            self.first = header.baseOffset

    def _clear(self, first: int) -> None:
        self.frames = self.records = 0
        self.first = first


#: How the content of a frame is checked, by its kind.
_DECODERS: dict[int, Callable[[FrameHeader, Any], object]] = {
    FrameKind.RECORDS: decodeRecords,
    FrameKind.SPARSE_RECORDS: decodeRecords,
    FrameKind.STAGED: decodeStaged,
    FrameKind.TRANSACTION: decodeTransaction,
    FrameKind.NOTES: decodeStateRecords,
    FrameKind.GAP: decodeGap,
    FrameKind.CHECKPOINT: decodeCheckpoint,
    FrameKind.LOST: decodeLost,
}


def _accept(header: FrameHeader, frame: Any) -> None:
    """Accept a frame of any other kind."""


def _wrong(found: CompleteFrame, error: FrameError) -> DamagedRange:
    header = found.header
    return DamagedRange(header.position, header.position + header.length, f"the check sum is right, but {error}")


def _damaged(damage: DamagedRange, file: SegmentFile) -> str:
    return f"{_where(file, damage.position, damage.until)} are damaged: {damage.reason}"


def _where(file: SegmentFile, position: int, until: int) -> str:
    return f"{file.name}: {until - position} bytes at {position}"
