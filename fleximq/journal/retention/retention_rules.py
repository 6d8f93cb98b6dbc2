"""Decides which records have expired, from the operator's rules at one moment. Pure.

A record remains while a queue needs it, or while its topic is durable and the record is neither too old nor beyond the
topic's limit of bytes, counted from the newest. The latest record of a retaining topic always remains. After the clock
was set back, a message may count as old as its neighbours.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from fleximq.config.journal_options import RetentionRule
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.topic_counts import topicCountsOf
from fleximq.journal.retention.single_offsets import SingleOffsets
from fleximq.values.patterns import anyOf
from fleximq.values.records import StoredBatch, TopicBounds

#: Later than every time, and larger than every offset.
_NEVER = 1 << 64
_SECOND = 1_000_000
#: Approximate bytes of a record in a file, without header and payload.
_RECORD_BYTES = 28
#: A segment is rewritten when more than this share of it has expired.
REWRITE_SHARE = 0.5
#: The segment being written ends when its oldest record has reached this part of its retention by age. Not before a
#: minute, and not before a thousandth of the time that the journal spans, so that there are not too many files.
AGE_PARTS, LEAST_AGE, SPAN_PARTS = 10, 60 * _SECOND, 1000


class RetentionPolicy(NamedTuple):
    """The operator's rules. ``durable`` and ``retained`` tell whether a topic's messages are stored, and whether its
    latest one always remains. Of ``retentions``, and of ``timesToLive`` (pattern and seconds), the first matching one
    applies; without any, durable messages remain. ``patterns`` are those of ``durable``. ``former`` has patterns that
    were durable up to an offset (exclusive): earlier records of their topics count as durable.
    """

    durable: Callable[[str], bool]
    retained: Callable[[str], bool] = lambda topic: False
    retentions: Sequence[RetentionRule] = ()
    timesToLive: Sequence[tuple[str, float]] = ()
    patterns: Sequence[str] = ()
    former: Sequence[tuple[str, int]] = ()


#: By topic, the lowest needed offset, or the offsets of single records.
Needed = Mapping[str, "int | array[int]"]


class Verdict(Enum):
    """How many of some records remain."""

    ALL = "all"
    NONE = "none"
    SOME = "some"


class _Limit(NamedTuple):
    """The remaining records of a topic: from offset ``need``, or from ``time``, and the offset ``last``."""

    need: int
    time: int
    last: int


class ExpiryDecision:
    """The expired part of a journal.

    :param segments: all segments, including the one being written.
    :param needed: by topic, the lowest offset that a queue needs, or the offsets of the only records that are needed;
        a missing topic is needed by none.
    :param now: microseconds since 1970.
    """

    def __init__(self, rules: RetentionPolicy, segments: Sequence[Segment], needed: Needed, now: int) -> None:
        self._durable = rules.durable
        self._needed = {topic: offset for topic, offset in needed.items() if isinstance(offset, int)}
        self._single = {topic: SingleOffsets(each) for topic, each in needed.items() if not isinstance(each, int)}
        self._now = now
        self._retentions = [(anyOf([each.pattern]), each) for each in rules.retentions]
        self._timesToLive = [(anyOf([pattern]), seconds) for pattern, seconds in rules.timesToLive]
        self._former = [(anyOf([pattern]), until) for pattern, until in rules.former]
        self._durableUntil: dict[str, int] = {}
        self._limits: dict[tuple[str, bool], _Limit] = {}
        self._last: dict[str, int] = {}
        self._excess: dict[tuple[int, str], int] = {}
        self._measure(segments, rules.retained)

    def _measure(self, segments: Sequence[Segment], retained: Callable[[str], bool]) -> None:
        """Find the latest record of each retaining topic, and the bytes beyond each topic's limit."""
        newer: dict[str, int] = {}
        for segment in reversed(segments):
            for topic, (_, last, _, _, _, size) in tuple(segment.counts.items()):
                if topic not in newer:
                    newer[topic] = 0
                    if retained(topic):
                        self._last[topic] = last
                most = self._retention(topic).bytes
                if most:
                    excess = min(newer[topic] + size - most, size)
                    if excess > 0:
                        self._excess[segment.base, topic] = excess
                newer[topic] += size

    def _retention(self, topic: str) -> RetentionRule:
        return next((each for matches, each in self._retentions if matches(topic)), RetentionRule("", 0, 0))

    def limit(self, topic: str, offset: int) -> _Limit:
        """Return the remaining records of a topic near this offset, without the limit of bytes. A start begins a
        segment, so no segment has records from before and after a change of options.
        """
        until = self._durableUntil.get(topic)
        if until is None:
            untils = [_NEVER * self._durable(topic), *(until for matches, until in self._former if matches(topic))]
            until = self._durableUntil[topic] = max(untils)
        isDurable = offset < until
        limit = self._limits.get((topic, isDurable))
        if limit is None:
            time = self._timeOf(topic) if isDurable else _NEVER
            limit = _Limit(self._needed.get(topic, _NEVER), time, self._last.get(topic, -1))
            self._limits[topic, isDurable] = limit
        return limit

    def _timeOf(self, topic: str) -> int:
        age = self._retention(topic).age
        alive = next((seconds for matches, seconds in self._timesToLive if matches(topic)), 0)
        ages = [each for each in (age, alive) if each]
        return self._now - int(min(ages) * _SECOND) if ages else -_NEVER

    def excess(self, segment: Segment, topic: str) -> int:
        """Return the number of a topic's first bytes in a segment that exceed the topic's limit."""
        return self._excess.get((segment.base, topic), 0)

    def verdict(self, topic: str, bounds: TopicBounds, excess: int, before: int = 0) -> Verdict:
        """Return whether records of a topic remain; ``excess`` is that of their segment. ``before``: the bytes of
        earlier records of this topic in the segment.
        """
        if topic in self._single:
            number = self._single[topic].count(bounds.first, bounds.last)
            return Verdict.NONE if not number else Verdict.ALL if number >= bounds.count else Verdict.SOME
        need, time, last = self.limit(topic, bounds.first)
        young = bounds.firstTime >= time and bounds.lastTime >= time
        old = bounds.firstTime < time and bounds.lastTime < time
        if bounds.first >= need or (young and before >= excess):
            return Verdict.ALL
        over = before < excess and before + bounds.bytes <= excess
        if bounds.last < need and (old or over) and not bounds.first <= last <= bounds.last:
            return Verdict.NONE
        return Verdict.SOME

    def single(self, topic: str, first: int, last: int) -> set[int] | None:
        """Return the only needed offsets of a topic in a range; None if its records are not needed singly."""
        return self._single[topic].within(first, last) if topic in self._single else None

    def verdicts(self, segment: Segment) -> set[Verdict]:
        """Return the verdicts for the topics of a segment."""
        return {
            self.verdict(topic, TopicBounds(*count), self.excess(segment, topic))
            for topic, count in segment.counts.items()
        }

    def share(self, segment: Segment, staged: frozenset[int]) -> float:
        """Return the approximate expired share of a segment, from 0 to 1; ``staged`` frames remain."""
        expired = total = 0.0
        for topic, count in segment.counts.items():
            bounds = TopicBounds(*count)
            weight = bounds.count * _RECORD_BYTES + bounds.bytes
            total += weight
            expired += weight * (1 - self._part(topic, bounds, self.excess(segment, topic)))
        for each in segment.staged:
            weight = sum(bounds.count * _RECORD_BYTES + bounds.bytes for bounds in each.topicCounts.values())
            total += weight
            expired += weight * (each.position not in staged)
        return expired / total if total else 1.0

    def endsByAge(self, segment: Segment, span: int) -> bool:
        """Tell whether the segment being written should end, so that its records can be removed in time. Of the
        retentions that touch it, the shortest counts by which it can be rewritten; ``span``: the journal's, in
        microseconds.
        """
        parts: list[tuple[int, int, int]] = []
        total = 0
        for topic, count in tuple(segment.counts.items()):
            bounds = TopicBounds(*count)
            need, time, _ = self.limit(topic, bounds.first)
            weight = bounds.count * _RECORD_BYTES + bounds.bytes
            total += weight
            if bounds.last < need and time > -_NEVER and topic not in self._single:
                parts.append((max(0, self._now - time), weight, bounds.firstTime))  # age 0: it may be removed now
        expiring, oldest = 0, _NEVER
        for age, weight, first in sorted(parts):
            expiring += weight
            if age:
                oldest = min(oldest, first)
                if expiring > REWRITE_SHARE * total:
                    return self._now - oldest >= max(age // AGE_PARTS, LEAST_AGE, span // SPAN_PARTS)
        return False

    def gone(self, segment: Segment, offset: int) -> tuple[int, int, int]:
        """Return first offset, end and number of the expired records from an offset, as if evenly distributed."""
        first, nextOffset, number = _NEVER, 0, 0
        for topic, (low, last, firstTime, lastTime, count, size) in tuple(segment.counts.items()):
            bounds = TopicBounds(low, last, firstTime, lastTime, count, size)
            excess = self.excess(segment, topic)
            part = 0.0 if self.verdict(topic, bounds, excess) is Verdict.NONE else self._part(topic, bounds, excess)
            until = last + 1 - round((last + 1 - low) * part)
            begin = max(low, offset)
            if begin < until:
                first, nextOffset = min(first, begin), max(nextOffset, until)
                number += -(-count * (until - begin) // (last + 1 - low))
        return first, nextOffset, number

    def _part(self, topic: str, bounds: TopicBounds, excess: int) -> float:
        """Return the approximate remaining share of a topic's records, as if evenly distributed."""
        if topic in self._single:
            return min(1.0, self._single[topic].count(bounds.first, bounds.last) / bounds.count)
        need, time, last = self.limit(topic, bounds.first)
        needed = _behind(bounds.first, bounds.last + 1, need)
        young = _behind(bounds.firstTime, bounds.lastTime + 1, time)
        latest = (bounds.first <= last <= bounds.last) / bounds.count
        return max(needed, latest, min(young, 1 - excess / bounds.bytes if bounds.bytes else 1.0))


def _behind(first: int, nextOffset: int, index: int) -> float:
    """Return the share of a range that is not before ``index``."""
    if nextOffset <= first:
        return float(first >= index)
    return min(max((nextOffset - index) / (nextOffset - first), 0.0), 1.0)


class RecordFilter:
    """Selects the remaining records of one segment, batch by batch from its beginning."""

    def __init__(self, expiry: ExpiryDecision, segment: Segment) -> None:
        self._expiry = expiry
        self._segment = segment
        self._before: dict[str, int] = {}

    def staying(self, batch: StoredBatch) -> Sequence[int]:
        """Return the indexes of the remaining records."""
        verdicts: dict[str, Verdict] = {}
        starts: dict[str, int] = {}
        for topic, bounds in topicCountsOf(batch).items():
            excess = self._expiry.excess(self._segment, topic)
            starts[topic] = before = self._before.get(topic, 0)
            verdicts[topic] = self._expiry.verdict(topic, bounds, excess, before)
            self._before[topic] = before + bounds.bytes
        found = set(verdicts.values())
        if found <= {Verdict.ALL}:
            return range(len(batch))
        if found == {Verdict.NONE}:
            return ()
        return self._oneByOne(batch, verdicts, starts)

    def _oneByOne(self, batch: StoredBatch, verdicts: Mapping[str, Verdict], starts: dict[str, int]) -> list[int]:
        staying = []
        offsets = batch.offsets
        single = {topic: self._expiry.single(topic, offsets[0], offsets[-1]) for topic in verdicts}
        columns = zip(batch.offsets, batch.timestamps, batch.topicOf, batch.headers, batch.payloads, strict=True)
        for index, (offset, timestamp, topicIndex, header, payload) in enumerate(columns):
            topic = batch.topics[topicIndex]
            before = starts[topic]
            starts[topic] = before + len(header) + len(payload)
            needed = single[topic]
            if needed is not None:
                if offset in needed:
                    staying.append(index)
            elif verdicts[topic] is Verdict.SOME:
                need, time, last = self._expiry.limit(topic, offset)
                excess = self._expiry.excess(self._segment, topic)
                if offset >= need or offset == last or (timestamp >= time and before >= excess):
                    staying.append(index)
            elif verdicts[topic] is Verdict.ALL:
                staying.append(index)
        return staying
