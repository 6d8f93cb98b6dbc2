"""Opens a journal after a stop or a crash: finds the end of the valid frames, and handles damage.

- An unfinished end, without any later frame that was written after a sync, is the trace of a crash during the last
  commit, none of which was reported as committed. It is cut off and saved as ``<position>.torn``.
- Damage followed by synced frames was committed once. It is left in place, a copy is saved as ``<position>.damaged``,
  and its offsets are reported as lost. All other records are served.
- A segment with a missing file, or one shorter than before, with later segments, is treated as damage. So is a last
  segment that ends before the position in the file ``end``; that position is right even without a sync, and new
  records begin after it.
- An unreadable file is an error, not an end: no file is changed.

Each step may be interrupted, and the next start repeats it: copies are on disk before their originals are cut. If the
cut bytes reappear after a power loss, they are ignored, because the next segment starts where they begin.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from fleximq.errors import JournalError, systemReason
from fleximq.journal.files.file_system import Files, fileSize, readFile, readUpTo, writeAll
from fleximq.journal.files.folder_files import END, readEnd
from fleximq.journal.files.frame_scan import LARGE, DamagedRange, Window, framesOf
from fleximq.journal.files.segment_index import SegmentScan, readIndex, scanSegment, writeIndex
from fleximq.journal.files.segment_summary import Segment, StagedBlock, countTransaction
from fleximq.journal.files.segment_table import SegmentTable, segmentBases, segmentName
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.recovery.recovered_state import RecoveredJournal, sentenceOf, unreadable

#: After a stop that was not clean, offsets continue at the next multiple of this.
SKIP = 1_000_000_000

#: Suffixes of the copies of cut ends and of damaged bytes.
TORN, DAMAGED = ".torn", ".damaged"

#: Suffixes of unfinished replacements of other files.
_UNFINISHED = (".idx.new", ".fxj.new")


def recover(
    files: Files, folder: str, journal: str, log: Callable[[str], None] = lambda sentence: None
) -> RecoveredJournal:
    """Read a journal's folder, cut an unfinished end, copy damaged bytes, and return the content. Blocks.

    :param journal: the required id of all segments.
    :param log: called with failures that do not prevent the start.
    :raises JournalError: a file cannot be read, or belongs to another journal.
    """
    try:
        return _Recovery(files, folder, journal, log).found
    except OSError as error:
        raise unreadable(folder, error) from error


def verifyTail(files: Files, folder: str, segments: SegmentTable, end: int) -> int:
    """Cut the last segment at this position, verify it and write it to disk again, and return the position. After a
    failed sync the state on disk is unknown, and another sync may succeed without writing. So all bytes are written
    once more before the sync. Raises JournalError if the segment is damaged, and OSError if the file cannot be read,
    written or cut.
    """
    segment = segments.all[-1]
    with files.closing(files.open(f"{folder}/{segmentName(segment.base)}", write=True)) as descriptor:
        if files.size(descriptor) > end - segment.base:
            files.truncate(descriptor, end - segment.base)
        for each in framesOf(Window(files, descriptor, segment.base, end), segment.id, segment.base, atHead=True):
            if isinstance(each, DamagedRange):
                raise JournalError(f"{segmentName(segment.base)} is damaged at position {each.position}: {each.reason}")
            writeAll(files, descriptor, [each.frame], each.header.position - segment.base)
        files.sync(descriptor)
    return end


def offsetAfterGap(offset: int) -> int:
    """Return the next offset when it is unknown whether this one was assigned."""
    return (offset // SKIP + 1) * SKIP


class DryRunFiles(Files):
    """Reads the real files, writes none, and collects the other operations as clauses, except those on indexes."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self._paths: dict[int, str] = {}

    def create(self, path: str) -> int:
        name = os.path.basename(path)
        if name.endswith((TORN, DAMAGED)):
            self.steps.append(f"make {name}, a copy of what stands there")
        return os.memfd_create(name)

    def open(self, path: str, write: bool = False) -> int:
        """Open a file for reading, even if writing is requested."""
        descriptor = super().open(path)
        self._paths[descriptor] = path
        return descriptor

    def truncate(self, descriptor: int, size: int) -> None:
        path = self._paths[descriptor]
        self.steps.append(f"cut {os.path.basename(path)} from {self.size(descriptor)} bytes to {size}")

    def rename(self, old: str, new: str) -> None:
        if not new.endswith(".idx"):
            self.steps.append(f"rename {os.path.basename(old)} to {os.path.basename(new)}")

    def remove(self, path: str) -> None:
        self.steps.append(f"remove {os.path.basename(path)}")

    def sync(self, descriptor: int) -> None:
        """A no-op."""

    def syncFolder(self, path: str) -> None:
        """A no-op."""


class _Recovery:
    """One opening of a journal, complete after construction."""

    def __init__(self, files: Files, folder: str, journal: str, log: Callable[[str], None]) -> None:
        self._files = files
        self._folder = folder
        self._journal = journal
        self._log = log
        self._clean = True
        self._unindexed: list[Segment] = []
        self.found = found = RecoveredJournal(files, folder)
        names = files.names(folder)
        for name in names:
            if name.endswith(_UNFINISHED):
                files.remove(f"{folder}/{name}")
        bases = segmentBases(names)
        self._sizes = {base: fileSize(files, self._path(base)) for base in bases}
        last = self._last(bases)
        segments = [self._sealed(base, until) for base, until in pairwise(bases)]
        if last is not None:
            segments.append(self._take(last))
        self._resolve(segments)
        self._join(segments)
        ending = self._missingEnd(segments)
        if ending is not None and segments:
            segments[-1].lost.append(ending)
        found.segments = SegmentTable(segments)
        found.end = found.segments.end
        found.lost = [sentenceOf(lost) for lost in found.segments.lost]
        if ending is not None:
            self._goBehind(ending)
        used = bool(segments) or ending is not None
        found.readCheckpoint()
        found.clean = self._clean
        if (used or any(name.endswith(TORN) for name in names)) and not self._clean:
            found.nextOffset = offsetAfterGap(found.lastOffset)

    def _last(self, bases: list[int]) -> SegmentScan | None:
        """Return the last segment, without an unfinished end; files without any finished frame are removed from
        ``bases``.
        """
        while bases:
            base = bases[-1]
            end = base + self._sizes[base]
            scanned = self._scan(base, end)
            if scanned.unfinished is None and scanned.segment.positions:
                self._clean = scanned.clean and not self.found.torn
                return scanned
            if scanned.unfinished is not None and scanned.unfinished > base:
                self._clean = False
                self._cut(base, scanned.unfinished, scanned.damaged[-1].reason)
                return self._scan(base, scanned.unfinished)
            self._clean = False
            self._setAside(base, end)
            bases.pop()
        return None

    def _sealed(self, base: int, until: int) -> Segment:
        """Return a sealed segment from its index, or else from its frames."""
        end = base + self._sizes[base]
        indexed = readIndex(self._files, self._folder, base)
        if indexed is not None and (indexed.end == until <= end or indexed.end == end < until):
            return indexed
        return self._take(self._scan(base, min(end, until), indexed.id if indexed is not None else None))

    def _scan(self, base: int, end: int, segmentId: int | None = None) -> SegmentScan:
        with self._files.closing(self._files.open(self._path(base))) as descriptor:
            scanned = scanSegment(Window(self._files, descriptor, base, end), segmentId)
        if scanned.start is not None and scanned.start.journal != self._journal:
            raise JournalError(f"{self._path(base)} belongs to another journal")
        return scanned

    def _take(self, scanned: SegmentScan) -> Segment:
        """Copy the damage of a scanned segment, and return the segment; it needs an index."""
        segment = scanned.segment
        for damage in scanned.damaged:
            name = f"{damage.position:020d}{DAMAGED}"
            with suppress(FileExistsError):
                self._copy(segment.base, damage.position, damage.until, name)
        self._unindexed.append(segment)
        return segment

    def _resolve(self, segments: list[Segment]) -> None:
        """Count the records that transactions publish in the scanned segments, and write the indexes."""
        staged: dict[int, StagedBlock] = {}
        for segment in segments:
            staged.update((each.position, each) for each in segment.staged)
            if segment not in self._unindexed:
                continue
            for transaction, base, count in segment.transactions:
                gone = countTransaction(segment, transaction, base, staged, count)
                if gone is not None:
                    where = next((each for each in transaction.staged if each not in staged), segment.base)
                    segment.lost.append(LostRange(where, 0, *gone))
            try:
                writeIndex(self._files, self._folder, segment)
            except OSError as error:
                self._log(f"the index of {segmentName(segment.base)} could not be written: {systemReason(error)}")

    def _join(self, segments: list[Segment]) -> None:
        """Report damage between segments, and at the end of one."""
        for segment, behind in pairwise(segments):
            lost = segment.lost[-1] if segment.lost else None
            if lost is not None and lost.position + lost.length == segment.end and lost.next < behind.first:
                segment.lost[-1] = lost._replace(next=behind.first)
            if segment.end < behind.base:
                gone = LostRange(segment.end, behind.base - segment.end, segment.next, max(segment.next, behind.first))
                if gone not in segment.lost:
                    segment.lost.append(gone)

    def _missingEnd(self, segments: list[Segment]) -> LostRange | None:
        """Return the committed range after the end of the last file, None if all is present."""
        try:
            committed = readEnd(readFile(self._files, f"{self._folder}/{END}"))
        except FileNotFoundError:
            return None
        position, nextOffset = (segments[-1].end, segments[-1].next) if segments else (0, 1)
        if committed is None or committed[0] <= position:
            return None
        return LostRange(position, committed[0] - position, nextOffset, max(nextOffset, committed[1]))

    def _goBehind(self, ending: LostRange) -> None:
        """Continue after a missing end, so that no position and no offset is used twice."""
        found = self.found
        self._clean = False
        found.end = ending.position + ending.length
        found.segments.nextOffset = max(found.segments.nextOffset, ending.next)
        if not found.segments.all:
            # No segment is left to record it.
            found.lost.append(sentenceOf(ending))

    def _path(self, base: int) -> str:
        return f"{self._folder}/{segmentName(base)}"

    def _cut(self, base: int, position: int, reason: str) -> None:
        """Cut a segment's file at a position, after saving the bytes from there on."""
        end = base + self._sizes[base]
        kept = self._freeName(position)
        self._copy(base, position, end, kept, lasting=True)
        self._files.syncFolder(self._folder)
        with self._files.closing(self._files.open(self._path(base), write=True)) as descriptor:
            self._files.truncate(descriptor, position - base)
        self.found.torn.append(
            f"{segmentName(base)} had an unfinished end of {end - position} bytes at position {position} ({reason}); "
            f"it was cut and is kept as {kept}"
        )

    def _setAside(self, base: int, end: int) -> None:
        """Rename a file without any finished frame, so that it leaves the journal."""
        name = segmentName(base)
        if end == base:
            self._files.remove(self._path(base))
            return
        kept = self._freeName(base)
        self._files.rename(self._path(base), f"{self._folder}/{kept}")
        # Before a new file of this name is made.
        self._files.syncFolder(self._folder)
        self.found.torn.append(f"{name} was never finished, all of its {end - base} bytes are kept as {kept}")

    def _freeName(self, position: int) -> str:
        number, name = 1, f"{position:020d}{TORN}"
        while self._files.exists(f"{self._folder}/{name}"):
            number += 1
            name = f"{position:020d}-{number}{TORN}"
        return name

    def _copy(self, base: int, start: int, end: int, name: str, lasting: bool = False) -> None:
        """Copy bytes of a segment into a new file. ``lasting``: the copy survives a power loss when this returns.
        Raises FileExistsError if the name exists.
        """
        files = self._files
        with (
            files.closing(files.open(self._path(base))) as source,
            files.closing(files.create(f"{self._folder}/{name}")) as copy,
        ):
            for position in range(start, end, LARGE):
                piece = readUpTo(files, source, min(LARGE, end - position), position - base)
                writeAll(files, copy, [piece], position - start)
            if lasting:
                files.sync(copy)
