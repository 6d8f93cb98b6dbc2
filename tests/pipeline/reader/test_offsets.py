"""Where a reading begins and ends, and how much is taken at once."""

import json
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import repetitions
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.journal.files.record_distance import Distance
    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.reader.offsets import (
        EARLIEST,
        LATEST,
        Point,
        Points,
        RecordsMissing,
        StartKind,
        batchEnd,
        checked,
        ordered,
        pointsOf,
        resolved,
        timesOf,
    )


class Bounds(NamedTuple):
    """What a journal keeps."""

    first: int
    next: int


class Journal:
    """Has records 10 to 99, each 1 us later than the one before."""

    def bounds(self) -> Bounds:
        """See Kept."""
        return Bounds(10, 100)

    def offsetAt(self, time: int) -> int:
        """See Kept."""
        return min(max(time, 10), 100)


class PointsTests(SynchronousTestCase):
    """How points are written."""

    def test_oneWordOrNumberIsForAllJournals(self) -> None:
        for written, point in [
            ("earliest", EARLIEST),
            (" Latest ", LATEST),
            ("-2", EARLIEST),
            ("-1", LATEST),
            ("0", Point(StartKind.OFFSET, 1)),
            ("17", Point(StartKind.OFFSET, 17)),
            (str((1 << 63) - 1), Point(StartKind.OFFSET, (1 << 63) - 1)),
        ]:
            self.assertEqual(pointsOf("startingOffsets", written, LATEST), Points(point))

    def test_pointOfAJournalThatIsNotReadIsRefused(self) -> None:
        points = pointsOf("startingOffsets", '{"ab": 5, "cd": "latest"}', EARLIEST)
        points.check("start", ["cd", "ab", "ef"])
        words = "the start is given for the journal 'cd', but there is only ab"
        self.assertEqual(str(self.assertRaises(OptionRefused, points.check, "start", ["ab"])), words)

    def test_jsonNamesJournalsAndOthersKeepTheDefault(self) -> None:
        points = pointsOf("startingOffsets", '{"a": 5, "b": "latest", "c": -2, "d": "7"}', EARLIEST)
        self.assertEqual(
            [points.of(journal) for journal in "abcde"],
            [Point(StartKind.OFFSET, 5), LATEST, EARLIEST, Point(StartKind.OFFSET, 7), EARLIEST],
        )

    def test_otherTextsAreRefusedWithTheNameOfTheOption(self) -> None:
        for written in ["", "soon", "-3", "1.5", "{}", "{", "[1]", '{"a": null}', '{"a": true}', str(1 << 63), "²",
                        "9" * 5000, '{"a":' * 5000]:  # fmt: skip
            self.assertRaisesRegex(OptionRefused, "'startingOffsets'", pointsOf, "startingOffsets", written, LATEST)

    def test_timesAreMillisecondsOrIso8601InUtc(self) -> None:
        for written, micros in [
            ("0", 0),
            ("1700000000123", 1_700_000_000_123_000),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
            ("2023-11-14 22:13:20", 1_700_000_000_000_000),
            ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500_000),
        ]:
            self.assertEqual(timesOf("startingTimestamp", written, LATEST), Points(Point(StartKind.TIME, micros)))
        points = timesOf("startingOffsetsByTimestamp", '{"a": 5, "b": "2023-11-14T22:13:20Z"}', EARLIEST)
        self.assertEqual(points.of("a"), Point(StartKind.TIME, 5000))
        self.assertEqual(points.of("b"), Point(StartKind.TIME, 1_700_000_000_000_000))
        self.assertEqual(points.of("c"), EARLIEST)

    def test_wrongTimesAreRefused(self) -> None:
        for written in ["", "earliest", "-1", "tomorrow", '{"a": []}', "{}", str(1 << 62), "9" * 5000]:
            self.assertRaises(OptionRefused, timesOf, "startingTimestamp", written, LATEST)

    def test_pointIsAnOffsetOfAJournal(self) -> None:
        points = [EARLIEST, LATEST, Point(StartKind.OFFSET, 55), Point(StartKind.TIME, 20), Point(StartKind.TIME, 2000)]
        self.assertEqual([resolved(point, Journal()) for point in points], [10, 100, 55, 20, 100])


class CheckedTests(SynchronousTestCase):
    """Whether an offset can be read from."""

    def test_offsetsFromTheFirstToTheNextAreTaken(self) -> None:
        for start in (10, 11, 99, 100):
            self.assertEqual(checked("j", start, Bounds(10, 100), True), start)

    def test_offsetOutsideIsAnErrorOrAWarningAndTheNearest(self) -> None:
        for start, nearest, words in [(9, 10, "offsets 9 to 9 any more"), (1, 10, "1 to 9"), (101, 100, "101 yet")]:
            error = self.assertRaises(RecordsMissing, checked, "j", start, Bounds(10, 100), True)
            with self.assertLogs("fleximq.pipeline", "WARNING") as logged:
                self.assertEqual(checked("j", start, Bounds(10, 100), False), nearest)
            for sentence in (str(error), *logged.output):
                self.assertIn(words, sentence)
                self.assertIn("journal j", sentence)


def advance(journal: str, start: int, end: int, records: int | None, size: int | None) -> Distance:
    """Go through a journal in which every record has 10 bytes; 1 to 9 are one frame, 10 to 19 and so on others."""
    offset = start
    while offset < end:
        frame = min(end, (offset // 10 + 1) * 10) - offset
        if records is not None and offset - start + frame > records:
            offset = max(start + records, start + 1)
            break
        if size is not None and offset > start and (offset - start + frame) * 10 > size:
            break
        offset += frame
    return Distance(offset, offset - start, (offset - start) * 10)


class AdmittedTests(SynchronousTestCase):
    """How much of what waits is taken at once."""

    def notAsked(self, *arguments: object) -> Distance:
        """Fail, as no journal is read without limits."""
        raise AssertionError(f"asked for {arguments}")

    def test_withoutLimitsAllIsTaken(self) -> None:
        self.assertEqual(batchEnd({"b": 1, "a": 5}, {"a": 7, "b": 3}, None, None, self.notAsked), {"a": 7, "b": 3})

    def test_journalsAreInOrder(self) -> None:
        """The ids are in order, for Spark compares JSON."""
        self.assertEqual(json.dumps(batchEnd({}, {"b": 1, "a": 2}, None, None, self.notAsked)), '{"a": 2, "b": 1}')
        self.assertEqual(list(batchEnd({"b": 1, "a": 1}, {"b": 9, "a": 9}, 4, None, advance)), ["a", "b"])
        self.assertEqual(list(ordered({"z": 1, "a": 2})), ["a", "z"])

    def test_eachJournalHasItsShare(self) -> None:
        """Each journal has its share, and who needs less leaves it to the others."""
        self.assertEqual(batchEnd({"a": 1, "b": 1}, {"a": 500, "b": 500}, 100, None, advance), {"a": 51, "b": 51})
        self.assertEqual(batchEnd({"a": 1, "b": 1}, {"a": 11, "b": 500}, 100, None, advance), {"a": 11, "b": 91})
        self.assertEqual(batchEnd({"a": 1, "b": 1}, {"a": 500, "b": 11}, 100, None, advance), {"a": 91, "b": 11})
        self.assertEqual(batchEnd({"a": 1, "b": 5}, {"a": 500, "b": 5}, 100, None, advance), {"a": 101, "b": 5})

    def test_smallerLimitOfBytesAndRecordsCounts(self) -> None:
        self.assertEqual(batchEnd({"a": 10}, {"a": 500}, None, 1000, advance), {"a": 110})
        self.assertEqual(batchEnd({"a": 10}, {"a": 500}, 30, 1000, advance), {"a": 40})
        self.assertEqual(batchEnd({"a": 10}, {"a": 500}, None, 1, advance), {"a": 20})

    @given(
        st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1),
        st.one_of(st.none(), st.integers(1, 150)),
        st.one_of(st.none(), st.integers(1, 1500)),
    )
    @settings(max_examples=repetitions(120, 1500), deadline=None)
    def test_nothingGoesBackOrTooFarAndSomethingIsTaken(
        self, spans: dict[str, tuple[int, int]], records: int | None, size: int | None
    ) -> None:
        start = {journal: first for journal, (first, _) in spans.items()}
        end = {journal: first + number for journal, (first, number) in spans.items()}
        found = batchEnd(start, end, records, size, advance)
        self.assertEqual(set(found), set(start))
        taken = {journal: offset - start[journal] for journal, offset in found.items()}
        self.assertTrue(all(0 <= number <= end[journal] - start[journal] for journal, number in taken.items()))
        waiting = sum(end.values()) - sum(start.values())
        self.assertEqual(sum(taken.values()) > 0, waiting > 0)
        if records is not None:
            self.assertLessEqual(sum(taken.values()), records)
            if size is None:
                self.assertEqual(sum(taken.values()), min(records, waiting))

    def test_repeatedStepsTakeAll(self) -> None:
        offsets, end = {"a": 1, "b": 3}, {"a": 333, "b": 77}
        rounds = 0
        while offsets != end:
            offsets: Any = batchEnd(offsets, end, 7, 200, advance)  # type: ignore[no-redef]
            rounds += 1
        self.assertLess(rounds, 80)
