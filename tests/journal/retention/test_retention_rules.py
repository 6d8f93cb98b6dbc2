"""Which records have expired: the rules, against a model that looks at every record."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.journal_options import RetentionRule
from fleximq.journal.files.segment_summary import Segment, addCounts
from fleximq.journal.files.topic_counts import topicCountsOf
from fleximq.journal.format.record_columns import decodeRecords, encodeRecords
from fleximq.journal.retention.retention_rules import ExpiryDecision, RecordFilter, RetentionPolicy, Verdict
from fleximq.values.patterns import anyOf
from fleximq.values.records import StoredBatch, TopicBounds
from tests.journal.frames import appended, read, written

SECOND = 1_000_000
NOW = 1000 * SECOND


class Row(NamedTuple):
    """One record: its topic, how many seconds ago it came, and its payload's size."""

    topic: str
    ago: int
    size: int


def filled(*segments: Sequence[Sequence[Row]]) -> tuple[list[Segment], list[list[StoredBatch]]]:
    """Return segments with these frames of records, and the frames' batches."""
    offset, made = 1, []
    batches: list[list[StoredBatch]] = []
    for base, frames in enumerate(segments):
        segment = Segment(base, base)
        batches.append([])
        for rows in frames:
            runs = [appended(b"x" * size, topic=topic, time=NOW - ago * SECOND) for topic, ago, size in rows]
            for frame in encodeRecords(runs, offset):
                batch = decodeRecords(*read(written(frame)))
                addCounts(segment.counts, topicCountsOf(batch))
                batches[-1].append(batch)
                offset += len(batch)
        made.append(segment)
    return made, batches


def staying(
    rules: RetentionPolicy, needed: Mapping[str, int], segments: list[Segment], batches: list[list[StoredBatch]]
) -> list[list[int]]:
    """Return the offsets that stay in each segment."""
    expiry = ExpiryDecision(rules, segments, needed, NOW)
    found = []
    for segment, inside in zip(segments, batches, strict=True):
        judge = RecordFilter(expiry, segment)
        found.append([batch.offsets[place] for batch in inside for place in judge.staying(batch)])
    return found


ALL = RetentionPolicy(lambda topic: True)
ROWS = st.lists(st.builds(Row, st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 30)), max_size=6)
SEGMENTS = st.lists(st.lists(ROWS.filter(bool), max_size=3), min_size=1, max_size=4)


class RuleTests(SynchronousTestCase):
    """Each rule by itself."""

    def kept(self, rules: RetentionPolicy, needed: Mapping[str, int], *rows: Row) -> list[int]:
        """Return which offsets stay of one frame of records."""
        return staying(rules, needed, *filled([rows]))[0]

    def test_durable(self) -> None:
        """What is durable stays for ever, if nothing else is said; what is not, is gone."""
        rules = RetentionPolicy(lambda topic: topic == "a")
        self.assertEqual(self.kept(rules, {}, Row("a", 900, 1), Row("b", 0, 1), Row("a", 0, 1)), [1, 3])

    def test_needed(self) -> None:
        """What a queue needs, and all of its topic behind that, stays whatever the rules are."""
        rules = RetentionPolicy(lambda topic: False)
        rows = [Row("a", 5, 1), Row("b", 5, 1), Row("a", 5, 1), Row("a", 5, 1)]
        self.assertEqual(self.kept(rules, {"a": 3, "b": 9}, *rows), [3, 4])

    def test_age(self) -> None:
        """Messages stay until they are older than their age, not sooner; the first rule that matches counts."""
        rules = ALL._replace(retentions=[RetentionRule("b", 7, 0), RetentionRule("#", 10, 0)])
        rows = [Row("a", 11, 1), Row("a", 10, 1), Row("a", 9, 1), Row("b", 8, 1), Row("b", 7, 1)]
        self.assertEqual(self.kept(rules, {}, *rows), [2, 3, 5])

    def test_timeToLive(self) -> None:
        """What is not delivered any more need not be kept either."""
        rules = ALL._replace(retentions=[RetentionRule("a", 10, 0)], timesToLive=[("a", 5.5), ("b", 20)])
        rows = [Row("a", 9, 1), Row("a", 5, 1), Row("b", 21, 1), Row("b", 19, 1), Row("c", 99, 1)]
        self.assertEqual(self.kept(rules, {}, *rows), [2, 4, 5])

    def test_bytes(self) -> None:
        """The newest messages stay that fit into the bytes of a topic; each topic has its own."""
        rules = ALL._replace(retentions=[RetentionRule("*", 0, 10)])
        rows = [Row("a", 9, 4), Row("b", 9, 4), Row("a", 9, 4), Row("a", 9, 4), Row("a", 9, 2)]
        self.assertEqual(self.kept(rules, {}, *rows), [2, 3, 4, 5])
        self.assertEqual(self.kept(rules, {}, Row("a", 9, 5), Row("a", 9, 5)), [1, 2])
        self.assertEqual(self.kept(rules, {}, Row("a", 9, 6), Row("a", 9, 5)), [2])

    def test_empty(self) -> None:
        """Empty messages expire with age as others do, and not sooner."""
        rules = ALL._replace(retentions=[RetentionRule("#", 10, 0)])
        self.assertEqual(self.kept(rules, {}, Row("a", 11, 0), Row("a", 9, 0)), [2])

    def test_retained(self) -> None:
        """The latest message of a topic that retains it stays, however old."""
        rules = RetentionPolicy(lambda topic: True, lambda topic: topic == "a", [RetentionRule("#", 1, 0)])
        self.assertEqual(self.kept(rules, {}, Row("a", 9, 4), Row("a", 9, 4), Row("b", 9, 4)), [2])

    def test_retainedElsewhere(self) -> None:
        """The latest one may be in a later segment; then nothing of an earlier one stays."""
        rules = RetentionPolicy(lambda topic: True, lambda topic: True, [RetentionRule("#", 1, 0)])
        segments, batches = filled([[Row("a", 9, 4)]], [[Row("a", 8, 4)]])
        self.assertEqual(staying(rules, {}, segments, batches), [[], [2]])


class ModelTests(SynchronousTestCase):
    """All rules together."""

    @given(
        SEGMENTS,
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 30)),
        st.integers(0, 40),
        st.integers(0, 90),
        st.sets(st.sampled_from("abc")),
        st.sets(st.sampled_from("abc")),
    )
    def test_model(
        self,
        frames: list[list[list[Row]]],
        needed: dict[str, int],
        age: int,
        most: int,
        durable: set[str],
        retained: set[str],
    ) -> None:
        """Frame by frame and segment by segment the same stays as when every record is looked at."""
        rules = RetentionPolicy(durable.__contains__, retained.__contains__, [RetentionRule("*", age, most)])
        # Within a frame the clock does not go back.
        frames = [[sorted(rows, key=lambda row: -row.ago) for rows in segment] for segment in frames]
        rows = [row for segment in frames for frame in segment for row in frame]
        wanted = set()
        for place, (topic, ago, _) in enumerate(rows):
            behind = [row.size for row in rows[place:] if row.topic == topic]
            if (
                place + 1 >= needed.get(topic, 1 << 60)
                or (topic in durable and (not age or ago <= age) and (not most or sum(behind) <= most))
                or (topic in retained and len(behind) == 1)
            ):
                wanted.add(place + 1)
        segments, batches = filled(*frames)
        found = staying(rules, needed, segments, batches)
        # Empty messages at the edge of a topic's bytes may go or stay.
        empty = {place + 1 for place, row in enumerate(rows) if most and not row.size}
        self.assertEqual({offset for each in found for offset in each} - empty, wanted - empty)

    @given(SEGMENTS, st.dictionaries(st.sampled_from("abc"), st.integers(0, 30)), st.integers(0, 40))
    def test_verdicts(self, frames: list[list[list[Row]]], needed: dict[str, int], age: int) -> None:
        """What is said of a whole segment is true of its records."""
        rules = RetentionPolicy(lambda topic: topic != "c", retentions=[RetentionRule("*", age, 50)])
        # Times that go back are only found out record by record.
        ordered = [[sorted(sum(each, []), key=lambda row: -row.ago)] if each else [] for each in frames]
        segments, batches = filled(*ordered)
        expiry = ExpiryDecision(rules, segments, needed, NOW)
        for segment, stays in zip(segments, staying(rules, needed, segments, batches), strict=True):
            found = expiry.verdicts(segment)
            share = expiry.share(segment, frozenset())
            if found <= {Verdict.NONE}:
                self.assertEqual((stays, share), ([], 1.0))
            elif found == {Verdict.ALL}:
                self.assertEqual(len(stays), sum(count[4] for count in segment.counts.values()))
                self.assertEqual(share, 0.0)
            self.assertTrue(0 <= share <= 1)

    def test_share(self) -> None:
        """The share of what has expired is that of its bytes."""
        segments, _ = filled([[Row("a", 9, 72), Row("b", 1, 72), Row("b", 1, 72), Row("b", 1, 72)]])
        expiry = ExpiryDecision(ALL._replace(retentions=[RetentionRule("a", 5, 0)]), segments, {}, NOW)
        self.assertEqual(expiry.share(segments[0], frozenset()), 0.25)
        self.assertEqual(expiry.verdicts(segments[0]), {Verdict.NONE, Verdict.ALL})
        self.assertEqual(expiry.verdict("a", TopicBounds(1, 2, 0, NOW, 2, 2), 0), Verdict.SOME)

    def test_shareOfRetained(self) -> None:
        """The latest message of a topic that retains it has not expired."""
        rules = RetentionPolicy(lambda topic: True, lambda topic: topic == "a", [RetentionRule("#", 1, 0)])
        segments, _ = filled([[Row("a", 9, 4), Row("a", 9, 4), Row("b", 9, 4), Row("b", 9, 4)]], [[Row("c", 0, 4)]])
        self.assertEqual(ExpiryDecision(rules, segments, {}, NOW).share(segments[0], frozenset()), 0.75)


class EndByAgeTests(SynchronousTestCase):
    """When the segment being written ends, though nothing is published any more."""

    HOUR = 3600

    def ends(self, *rows: Row, span: int = 0, needed: Mapping[str, int] | None = None, **rules: object) -> bool:
        """Tell whether a segment with these records ends; topics under "short" are kept for an hour."""
        (segment,), _ = filled([[row] for row in rows])
        retentions = (RetentionRule("short.#", self.HOUR, 0), RetentionRule("long.#", 100 * self.HOUR, 0))
        policy = ALL._replace(retentions=retentions, **rules)  # type: ignore[arg-type]
        return ExpiryDecision(policy, [segment], needed or {}, NOW).endsByAge(segment, span)

    def test_part(self) -> None:
        """At a tenth of the age, of the oldest record that has one."""
        self.assertFalse(self.ends(Row("short.a", 359, 100)))
        self.assertTrue(self.ends(Row("short.a", 360, 100)))
        self.assertTrue(self.ends(Row("short.a", 360, 100), Row("short.b", 0, 100)))

    def test_least(self) -> None:
        """Not before a minute, however short the age, nor before a thousandth of the journal's time."""
        self.assertFalse(self.ends(Row("short.a", 59, 100), timesToLive=(("short.#", 5.0),)))
        self.assertTrue(self.ends(Row("short.a", 60, 100), timesToLive=(("short.#", 5.0),)))
        span = 400 * SECOND * 1000
        self.assertFalse(self.ends(Row("short.a", 399, 100), span=span))
        self.assertTrue(self.ends(Row("short.a", 400, 100), span=span))

    def test_mostly(self) -> None:
        """Only if more than half of it goes with that age, else a later age counts, or none."""
        self.assertTrue(self.ends(Row("short.a", 360, 300), Row("long.a", 360, 100)))
        self.assertFalse(self.ends(Row("short.a", 360, 100), Row("long.a", 360, 300)))
        self.assertFalse(self.ends(Row("short.a", 999, 100), Row("for ever", 999, 300)))
        self.assertFalse(self.ends(Row("for ever", 999, 300)))

    def test_needed(self) -> None:
        """What a queue needs does not go; what none needs, of a topic that is not durable, goes with the others."""
        self.assertFalse(self.ends(Row("short.a", 999, 100), needed={"short.a": 1}))
        durable = anyOf(("short.#",))
        self.assertTrue(self.ends(Row("short.a", 999, 100), Row("jobs", 999, 300), durable=durable))
        self.assertFalse(self.ends(Row("jobs", 999, 300), durable=durable))

    def test_empty(self) -> None:
        """Without records there is nothing to end it for."""
        self.assertFalse(self.ends())
