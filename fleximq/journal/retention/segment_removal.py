"""Removes expired records: whole segments at the beginning of the journal, and parts of later segments.

Only segments whose content the last checkpoint covers are changed, so a restart never misses a removed record. A later
segment of which more than half has expired is rewritten; its file remains even without content, since positions must be
continuous, but neighbours without content are merged. After a crash either the old or the new file exists.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from fleximq.errors import systemReason
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_index import indexName, writeIndex
from fleximq.journal.files.segment_summary import Segment, StagedBlock
from fleximq.journal.files.segment_table import SegmentTable, segmentName
from fleximq.journal.retention.retention_rules import (
    REWRITE_SHARE,
    ExpiryDecision,
    Needed,
    RecordFilter,
    RetentionPolicy,
    Verdict,
)
from fleximq.journal.retention.segment_rewrite import (
    Damaged,
    SegmentRewrite,
    Stopped,
    emptyRuns,
    isEmpty,
    replacementName,
    writeMerged,
)


class UnreadReports:
    """Reports each group and segment once; neighbouring segments share a sentence."""

    def __init__(self) -> None:
        self._said: set[tuple[int, str]] = set()

    def of(
        self, going: Sequence[Segment], reading: Mapping[str, int], expiry: ExpiryDecision
    ) -> Iterator[tuple[str, int]]:
        """Yield a sentence, and the approximate number of records, for each run of segments; ``reading`` as below."""
        bases = {segment.base for segment in going}
        self._said = {key for key in self._said if key[0] in bases and key[1] in reading}
        for group, offset in reading.items():
            first = nextOffset = records = end = 0
            for segment in going:
                key = segment.base, group
                gone = (0, 0, 0) if segment.next <= offset or key in self._said else expiry.gone(segment, offset)
                if not gone[2]:
                    continue
                self._said.add(key)
                if records and segment.base != end:
                    yield _sentence(group, first, nextOffset), records
                    records = 0
                first, nextOffset, records = first if records else gone[0], gone[1], records + gone[2]
                end = segment.end
            if records:
                yield _sentence(group, first, nextOffset), records


def _sentence(group: str, first: int, nextOffset: int) -> str:
    return (
        f"the consumer group {json.dumps(group, ensure_ascii=False)} has not read the offsets {first} to "
        f"{nextOffset - 1}, and what has expired of them is removed now"
    )


class FreedSpace(NamedTuple):
    """The result of a pass: removed files, rewritten files, and their bytes."""

    removed: int = 0
    rewritten: int = 0
    bytes: int = 0


@dataclass(eq=False)
class SegmentRemoval:
    """Runs one pass after the other; not for concurrent use.

    :param exclusively: runs work between two reads of the journal, returns after it, and raises its exception.
    :param log: called with a sentence about a failure.
    :param unread: called with a sentence, and the approximate number of records, before records are removed that a
        consumer group has not read.
    """

    files: Files
    folder: str
    segments: SegmentTable
    rules: RetentionPolicy
    exclusively: Callable[[Callable[[], None]], None] = lambda work: work()
    log: Callable[[str], object] = lambda sentence: None
    unread: Callable[[str, int], object] = lambda sentence, records: None
    _reports: UnreadReports = field(default_factory=UnreadReports, init=False)
    _stopped: bool = field(default=False, init=False)
    #: Whether the last pass found that the segment being written should end.
    endsByAge: bool = field(default=False, init=False)

    def stop(self) -> None:
        """End a running pass soon; called from any thread."""
        self._stopped = True

    def clean(
        self,
        needed: Needed,
        openSegments: frozenset[int],
        now: int,
        segments: Sequence[Segment] | None = None,
        reading: Mapping[str, int] | None = None,
    ) -> FreedSpace:
        """Remove expired records. Blocks until the disk has finished.

        :param needed: by topic, the lowest offset that a queue needs, or the offsets of single records.
        :param openSegments: the positions of staged frames that may still be committed.
        :param now: microseconds since 1970.
        :param segments: all segments at the moment of the other arguments; None: now.
        :param reading: the next offset of each consumer group.
        """
        one = _Pass(self.rules, self.segments.all if segments is None else segments, needed, openSegments, now)
        self.endsByAge = one.endsByAge()
        freed = FreedSpace()
        for sentence, records in self._reports.of(one.going(), reading or {}, one.expiry):
            self.unread(sentence, records)
        try:
            with closing(OpenSegments(self.files, self.folder, self.segments, self.segments.end)) as opened:
                for segment in one.touchable:
                    if self._stopped:
                        break
                    freed = self._cleanOne(one, segment, opened, freed)
                for run in emptyRuns(self.segments.all[: len(one.touchable)]):
                    freed = self._join(run, opened, freed)
        except Stopped:
            pass
        except OSError as error:
            self.log(f"what has expired could not be taken out of the journal: {systemReason(error)}")
        return freed

    def _cleanOne(self, one: "_Pass", segment: Segment, opened: OpenSegments, freed: FreedSpace) -> FreedSpace:
        removed, rewritten, size = freed
        if segment is self.segments.all[0] and one.isExpired(segment):
            self.exclusively(lambda: self._remove(segment))
            return FreedSpace(removed + 1, rewritten, size + segment.bytes)
        if not one.isWorthRewriting(segment):
            return freed
        judge = RecordFilter(one.expiry, segment)
        try:
            found = SegmentRewrite(
                self.files, self.folder, segment, opened, judge, one.staged, one.existing, lambda: self._stopped
            ).write()
        except Damaged as error:
            self.log(f"{segmentName(segment.base)} is kept as it is, since it is damaged: {error}")
            return freed
        if found is None:
            return freed
        self.exclusively(lambda: self._replace(found))
        return FreedSpace(removed, rewritten + 1, size + segment.bytes - found.bytes)

    def _join(self, run: list[Segment], opened: OpenSegments, freed: FreedSpace) -> FreedSpace:
        removed, rewritten, size = freed
        new = None if self._stopped else writeMerged(self.files, self.folder, run, opened)
        if new is None:
            return freed

        def put() -> None:
            self._replace(new)
            # One after the other: until all are removed, the first file ends where the next existing one begins.
            for segment in run[1:]:
                self._remove(segment)

        self.exclusively(put)
        return FreedSpace(removed + len(run) - 1, rewritten + 1, size + sum(each.bytes for each in run) - new.bytes)

    def _remove(self, segment: Segment) -> None:
        """Remove a segment; the next one may be removed when this is on disk."""
        if self._stopped:
            raise Stopped
        self.files.remove(f"{self.folder}/{segmentName(segment.base)}")
        self.segments.remove(segment.base)
        path = f"{self.folder}/{indexName(segment.base)}"
        if self.files.exists(path):
            self.files.remove(path)
        self.files.syncFolder(self.folder)

    def _replace(self, segment: Segment) -> None:
        """Rename the new file of a segment over the old one, whose index must be removed first."""
        if self._stopped:
            raise Stopped
        self._removeIndex(segment.base)
        name = segmentName(segment.base)
        self.files.rename(f"{self.folder}/{replacementName(segment.base)}", f"{self.folder}/{name}")
        self.segments.replace(segment)
        self.files.syncFolder(self.folder)
        with suppress(OSError):
            writeIndex(self.files, self.folder, segment)

    def _removeIndex(self, base: int) -> None:
        """Remove an index permanently: an outdated one would point into the holes of the rewritten segment."""
        path = f"{self.folder}/{indexName(base)}"
        if self.files.exists(path):
            self.files.remove(path)
            self.files.syncFolder(self.folder)


class _Pass:
    """The state at the beginning of a pass. ``touchable`` are the segments that may be changed, ``staged`` the
    remaining STAGED frames, ``existing`` all of them.
    """

    def __init__(
        self,
        rules: RetentionPolicy,
        segments: Sequence[Segment],
        needed: Needed,
        openSegments: frozenset[int],
        now: int,
    ) -> None:
        self.expiry = ExpiryDecision(rules, segments, needed, now)
        self._segments, self._now = segments, now
        known = bool(segments) and bool(segments[-1].checkpoints)
        self.touchable = segments[:-1] if known else ()
        self.existing: dict[int, StagedBlock] = {}
        for segment in segments:
            self.existing.update((each.position, each) for each in segment.staged)
        # A transaction that is removed in this pass still holds its staged frames: they are removed in the next one.
        self.staged = openSegments.union(
            position
            for segment in segments
            for transaction, _, _ in tuple(segment.transactions)
            if not transaction.aborted
            for position in transaction.staged
        )

    def endsByAge(self) -> bool:
        """Tell whether the segment being written should end."""
        if not self._segments:
            return False
        first = min((count[2] for count in tuple(self._segments[0].counts.values())), default=self._now)
        return self.expiry.endsByAge(self._segments[-1], self._now - first)

    def isExpired(self, segment: Segment) -> bool:
        """Tell whether no part of a segment is needed."""
        if not self.expiry.verdicts(segment) <= {Verdict.NONE}:
            return False
        if any(each.position in self.staged for each in segment.staged):
            return False
        others = self.existing.keys() - {each.position for each in segment.staged}
        return all(
            others.isdisjoint(transaction.staged) for transaction, _, _ in segment.transactions if transaction.aborted
        )

    def isWorthRewriting(self, segment: Segment) -> bool:
        """Tell whether a segment should be rewritten without its expired records."""
        return not segment.lost and not isEmpty(segment) and self.expiry.share(segment, self.staged) > REWRITE_SHARE

    def going(self) -> list[Segment]:
        """Return the segments from which records are about to be removed."""
        begins = list(takewhile(self.isExpired, self.touchable))
        return begins + [segment for segment in self.touchable[len(begins) :] if self.isWorthRewriting(segment)]
