"""Takes out of the journal what has expired: whole segments at its beginning, and most of a segment further in.

Only segments are touched whose content the last checkpoint knows, so a restart never misses what was taken out. A
segment further in, of which more than half has expired, is written anew,
:mod:`fleximq.journal.retention.segment_rewrite`; its file
stays, even where nothing of it does, since positions must join, but neighbours of which nothing stays become one,
:mod:`fleximq.journal.retention.segment_merge`. A crash at any point leaves the old or the new file.

What a consumer group has not read of segments from which something is about to be taken out, in words.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from fleximq.journal.files.file_system import Files, errorText
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_index import indexName, writeIndex
from fleximq.journal.files.segment_summary import Segment, StagedBlock
from fleximq.journal.files.segment_table import SegmentTable, segmentName
from fleximq.journal.retention.retention_rules import ExpiryDecision, RecordFilter, RetentionPolicy, Verdict
from fleximq.journal.retention.segment_merge import emptyRuns, isEmpty, writeMerged
from fleximq.journal.retention.segment_rewrite import Damaged, SegmentRewrite, Stopped, replacementName


class UnreadReports:
    """Says it once for each group and segment; neighbouring segments are one sentence."""

    def __init__(self) -> None:
        self._said: dict[tuple[int, str], None] = {}

    def of(
        self, going: Sequence[Segment], reading: Mapping[str, int], expiry: ExpiryDecision
    ) -> Iterator[tuple[str, int]]:
        """Yield a sentence for each run of segments that go, and about how many records it is about.

        :param going: these, in their order.
        :param reading: the offset that each group reads next.
        """
        bases = {segment.base for segment in going}
        self._said = {key: None for key in self._said if key[0] in bases and key[1] in reading}
        for group, offset in reading.items():
            first = next = records = end = 0
            for segment in going:
                gone = self._gone(segment, group, offset, expiry)
                if gone is None:
                    continue
                if records and segment.base != end:
                    yield _sentence(group, first, next), records
                    records = 0
                first, next, records = first if records else gone[0], gone[1], records + gone[2]
                end = segment.end
            if records:
                yield _sentence(group, first, next), records

    def _gone(self, segment: Segment, group: str, offset: int, expiry: ExpiryDecision) -> tuple[int, int, int] | None:
        """Return what of a segment goes that a group has not read; None if nothing does, or it was said."""
        key = segment.base, group
        if segment.next <= offset or key in self._said:
            return None
        gone = expiry.gone(segment, offset)
        if not gone[2]:
            return None
        self._said[key] = None
        return gone


def _sentence(group: str, first: int, next: int) -> str:
    return (
        f"the consumer group {json.dumps(group, ensure_ascii=False)} has not read the offsets {first} to {next - 1}, "
        f"and what has expired of them is removed now"
    )


#: A segment is written anew when more than this part of it has expired.
_REWRITE_SHARE = 0.5


class FreedSpace(NamedTuple):
    """What a pass took out: files that were removed, files that were rewritten, and bytes of both."""

    removed: int = 0
    rewritten: int = 0
    bytes: int = 0


class SegmentRemoval:
    """Does one pass after the other; not for two threads at once.

    :param exclusively: does something between two readings of the journal, and returns when it was done; raises what
        that raised.
    :param log: is given a sentence when something could not be done.
    :param unread: is given a sentence, and about how many records it is about, before what a consumer group has not
        read is taken out.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        segments: SegmentTable,
        rules: RetentionPolicy,
        exclusively: Callable[[Callable[[], None]], None] = lambda work: work(),
        log: Callable[[str], None] = lambda sentence: None,
        unread: Callable[[str, int], None] = lambda sentence, records: None,
    ) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._rules = rules
        self._exclusively = exclusively
        self._log = log
        self._tellUnread = unread
        self._unread = UnreadReports()
        self._stopped = False

    def stop(self) -> None:
        """Let a pass end soon; called from any thread."""
        self._stopped = True

    def clean(
        self,
        needed: Mapping[str, int],
        open: frozenset[int],
        now: int,
        segments: Sequence[Segment] | None = None,
        reading: Mapping[str, int] | None = None,
    ) -> FreedSpace:
        """Take out what has expired. Blocks for as long as the disk takes.

        :param needed: by topic, the lowest offset that a queue needs.
        :param open: the positions of what is staged and may still be committed.
        :param now: microseconds since 1970.
        :param segments: all segments of the moment for which the others are true; None: of now.
        :param reading: the offset that each consumer group reads next.
        """
        opened = OpenSegments(self._files, self._folder, self._segments)
        opened.end = self._segments.end
        one = _Pass(self._rules, self._segments.all if segments is None else segments, needed, open, now)
        freed = FreedSpace()
        for sentence, records in self._unread.of(one.going(), reading or {}, one.expiry):
            self._tellUnread(sentence, records)
        try:
            for segment in one.touchable:
                if self._stopped:
                    break
                freed = self._cleanOne(one, segment, opened, freed)
            for run in emptyRuns(self._segments.all[: len(one.touchable)]):
                freed = self._join(run, opened, freed)
        except Stopped:
            pass
        except OSError as error:
            self._log(f"what has expired could not be taken out of the journal: {errorText(error)}")
        finally:
            opened.close()
        return freed

    def _cleanOne(self, one: "_Pass", segment: Segment, opened: OpenSegments, freed: FreedSpace) -> FreedSpace:
        removed, rewritten, bytes = freed
        if segment is self._segments.all[0] and one.isExpired(segment):
            self._exclusively(lambda: self._remove(segment))
            return FreedSpace(removed + 1, rewritten, bytes + segment.bytes)
        if not one.isWorth(segment):
            return freed
        judge = RecordFilter(one.expiry, segment)
        try:
            found = SegmentRewrite(
                self._files, self._folder, segment, opened, judge, one.staged, one.existing, lambda: self._stopped
            ).write()
        except Damaged as error:
            self._log(f"{segmentName(segment.base)} is kept as it is, since it is damaged: {error}")
            return freed
        if found is None:
            return freed
        new = found
        self._exclusively(lambda: self._replace(new))
        return FreedSpace(removed, rewritten + 1, bytes + segment.bytes - new.bytes)

    def _join(self, run: list[Segment], opened: OpenSegments, freed: FreedSpace) -> FreedSpace:
        """Let one file stand in the place of neighbouring ones of which nothing is left."""
        removed, rewritten, bytes = freed
        joined = None if self._stopped else writeMerged(self._files, self._folder, run, opened)
        if joined is None:
            return freed
        new = joined

        def put() -> None:
            self._replace(new)
            # One after the other: until all are gone, the first file ends where the next one begins that is there.
            for segment in run[1:]:
                self._remove(segment)

        self._exclusively(put)
        return FreedSpace(removed + len(run) - 1, rewritten + 1, bytes + sum(each.bytes for each in run) - new.bytes)

    def _remove(self, segment: Segment) -> None:
        """Take a segment away; the next one is only taken away when this is on disk."""
        if self._stopped:
            raise Stopped
        self._files.remove(f"{self._folder}/{segmentName(segment.base)}")
        self._segments.remove(segment.base)
        path = f"{self._folder}/{indexName(segment.base)}"
        if self._files.exists(path):
            self._files.remove(path)
        self._files.syncFolder(self._folder)

    def _replace(self, segment: Segment) -> None:
        """Let the new file of a segment take the place of the old one, whose index must be gone before."""
        if self._stopped:
            raise Stopped
        self._removeIndex(segment.base)
        name = segmentName(segment.base)
        self._files.rename(f"{self._folder}/{replacementName(segment.base)}", f"{self._folder}/{name}")
        self._segments.replace(segment)
        self._files.syncFolder(self._folder)
        with suppress(OSError):
            writeIndex(self._files, self._folder, segment)

    def _removeIndex(self, base: int) -> None:
        """Remove an index for good: one that outlived its segment would lead into the holes of the new one."""
        path = f"{self._folder}/{indexName(base)}"
        if self._files.exists(path):
            self._files.remove(path)
            self._files.syncFolder(self._folder)


class _Pass:
    """What is known at the beginning of a pass.

    ``touchable`` are the segments from which something may be taken, ``staged`` the STAGED frames that stay,
    ``existing`` all that there are.
    """

    def __init__(
        self,
        rules: RetentionPolicy,
        segments: Sequence[Segment],
        needed: Mapping[str, int],
        open: frozenset[int],
        now: int,
    ) -> None:
        self.expiry = ExpiryDecision(rules, segments, needed, now)
        known = bool(segments) and bool(segments[-1].checkpoints)
        self.touchable = segments[:-1] if known else ()
        self.existing: dict[int, StagedBlock] = {}
        for segment in segments:
            self.existing.update((each.position, each) for each in segment.staged)
        # A transaction that goes in this pass still holds what it names: that goes in the next one.
        self.staged = open.union(
            position
            for segment in segments
            for transaction, _, _ in tuple(segment.transactions)
            if not transaction.aborted
            for position in transaction.staged
        )

    def isExpired(self, segment: Segment) -> bool:
        """Tell whether nothing of a segment is needed any more."""
        if not self.expiry.verdicts(segment) <= {Verdict.NONE}:
            return False
        if any(each.position in self.staged for each in segment.staged):
            return False
        others = self.existing.keys() - {each.position for each in segment.staged}
        return all(
            others.isdisjoint(transaction.staged) for transaction, _, _ in segment.transactions if transaction.aborted
        )

    def isWorth(self, segment: Segment) -> bool:
        """Tell whether a segment is written anew without what has expired."""
        return not segment.lost and not isEmpty(segment) and self.expiry.share(segment, self.staged) > _REWRITE_SHARE

    def going(self) -> list[Segment]:
        """Return the segments of which something is about to be taken out."""
        begins = list(takewhile(self.isExpired, self.touchable))
        return begins + [segment for segment in self.touchable[len(begins) :] if self.isWorth(segment)]
