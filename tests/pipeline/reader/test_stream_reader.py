"""When a stream starts its next micro-batch. Spark's part is played here."""

from collections.abc import Mapping
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.written import TIME, Written

if not skip:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

    from fleximq.pipeline.files.schema import COLUMNS
    from fleximq.pipeline.lag.reporter import StreamProgress
    from fleximq.pipeline.reader import stream_reader
    from fleximq.pipeline.reader.source_options import SourceOptions
    from fleximq.pipeline.reader.stream_reader import PATIENCE, StreamReader


class ReaderCase(SynchronousTestCase):
    """``reader`` reads the journal ``written`` from its first record on; ``time`` is in seconds since its begin."""

    def setUp(self) -> None:
        self.parent = Path(self.mktemp()).absolute()
        self.parent.mkdir()
        self.written = Written(str(self.parent / "one"), segmentBytes=4000)
        self.time = self.step = 0.0
        self.at = {self.written.id: 1}

    def open(self, path: str = "one", **options: str) -> None:
        """Make the reader."""
        written = SourceOptions.of({"path": str(self.parent / path), **options})
        wall = lambda: TIME / 1_000_000 + self.time + self.step  # noqa: E731
        self.reader = StreamReader(written, COLUMNS, lambda: self.time, wall)
        self.addCleanup(self.reader.stop)

    def next(self) -> list[int]:
        """Plan the next micro-batch a second later, and return the offsets of its rows; -1 if there is none."""
        self.time += 1
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        start, self.at = self.at, end
        if end == start:
            return [-1]
        found = [
            offset
            for part in self.reader.partitions(start, end)
            for batch in self.reader.read(part)
            for offset in batch.column(COLUMNS.index("offset")).to_pylist()
        ]
        return sorted(found)

    def fill(self, topic: str, records: int, size: int = 1) -> None:
        """Write so many records, each in a frame of its own."""
        for _ in range(records):
            self.written.kept(topic, b"x" * size)


class OtherTopicsTests(ReaderCase):
    """Records that the stream does not want."""

    def test_otherTopicsStartNoBatchAndAreNotInTheNext(self) -> None:
        self.open(subscribe="t")
        self.fill("t", 2)
        self.assertEqual(self.next(), [1, 2])
        self.fill("u", 50)
        self.assertEqual(self.next(), [-1])
        self.fill("u", 50, 100)
        self.assertEqual(self.next(), [-1])
        self.fill("t", 1)
        self.assertEqual(self.next(), [103])
        self.assertEqual(self.next(), [-1])

    def test_otherTopicsAreNoBacklog(self) -> None:
        self.open(subscribe="t")
        self.fill("t", 1)
        self.assertEqual(self.next(), [1])
        self.fill("u", 5)
        self.next()
        self.assertEqual(self.reader.reportLatestOffset(), self.at)
        self.fill("t", 1)
        self.assertEqual(self.reader.reportLatestOffset(), {self.written.id: 3})

    def test_groupHasProcessedOtherTopics(self) -> None:
        """A consumer group has processed them, which is reported once a second."""
        reports: list[int] = []

        class Progress(StreamProgress):
            def report(self, offsets: Mapping[str, int]) -> None:
                reports.extend(offsets.values())

            def countLost(self, journal: str, start: int, begin: int) -> None:
                """Nothing is lost here."""

        self.patch(stream_reader, "StreamProgress", Progress)
        self.open(subscribe="t", consumerGroup="g", lagUrl="tcp://localhost:1")
        self.fill("t", 1)
        self.next()
        self.fill("u", 4)
        for _ in range(5):
            self.next()
            self.time -= 0.7
        self.assertEqual(reports, [1, 2, 6])

    def test_limitCountsFromTheFirstWantedRecord(self) -> None:
        self.open(subscribe="t", maxOffsetsPerTrigger="4")
        self.fill("u", 10)
        self.fill("t", 6)
        self.fill("u", 10)
        self.fill("t", 1)
        self.assertEqual([self.next() for _ in range(4)], [[11, 12, 13, 14], [15, 16], [27], [-1]])

    def test_removalOfOtherTopicsIsNoLoss(self) -> None:
        self.open(subscribe="t")
        self.fill("u", 100, 100)
        self.assertEqual(self.next(), [-1])
        for path in sorted((self.parent / "one").glob("*.fxj"))[:2]:
            path.unlink()
        self.fill("t", 1)
        self.assertEqual(self.next(), [101])

    def test_emptyBatchPassesThemAfterSomeMinutes(self) -> None:
        self.open(subscribe="t")
        self.fill("u", 3)
        self.assertEqual(self.next(), [-1])
        self.time += PATIENCE - 2
        self.assertEqual(self.next(), [-1])
        self.assertEqual(self.next(), [])
        self.assertEqual(self.at, {self.written.id: 4})
        self.assertEqual(self.next(), [-1])

    def test_stepOfTheSystemClockDoesNotChangeTheWait(self) -> None:
        for step in (7200.0, -3600.0):
            self.setUp()
            self.open(subscribe="t")
            self.fill("u", 3)
            self.assertEqual(self.next(), [-1])
            self.step += step
            self.time += PATIENCE - 2
            self.assertEqual([self.next(), self.next()], [[-1], []])

    def test_restartedQueryPassesThemAtOnce(self) -> None:
        self.fill("u", 3)
        self.time += PATIENCE
        self.open(subscribe="t")
        self.assertEqual(self.next(), [])

    def test_driverSearchesAFewMegabytesOnly(self) -> None:
        self.patch(stream_reader, "LOOK_BYTES", 1000)
        self.open(subscribe="t")
        self.fill("u", 3)
        self.assertEqual(self.next(), [-1])
        self.fill("u", 10, 100)
        self.assertEqual(self.next(), [])

    def test_journalWithoutWantedRecordsMovesWithTheOther(self) -> None:
        self.open("*", subscribe="t")
        other = Written(str(self.parent / "other"))
        self.fill("u", 3)
        self.assertEqual(self.next(), [-1])
        other.kept("t", b"1")
        self.assertEqual(self.next(), [1])
        self.assertEqual(self.at, {self.written.id: 4, other.id: 2})


class MinimumTests(ReaderCase):
    """``minOffsetsPerTrigger`` and ``maxTriggerDelay``."""

    def test_firstBatchWaitsForNothingAndOthersForTheMinimum(self) -> None:
        self.open(minOffsetsPerTrigger="3")
        self.assertEqual(self.reader.getDefaultReadLimit(), ReadMinRows(3))
        self.fill("t", 1)
        self.assertEqual(self.next(), [1])
        self.fill("t", 2)
        self.assertEqual(self.next(), [-1])
        self.fill("t", 1)
        self.assertEqual(self.next(), [2, 3, 4])

    def test_onlyWantedTopicsCount(self) -> None:
        self.open(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="5", subscribe="t")
        self.fill("t", 1)
        self.assertEqual(self.next(), [1])
        for _ in range(2):
            self.fill("t", 1)
            self.fill("u", 5)
            self.assertEqual(self.next(), [-1])
        self.fill("t", 1)
        self.assertEqual([self.next(), self.next()], [[2], [-1]])

    def test_noBatchWaitsLongerThanTheDelay(self) -> None:
        self.open(minOffsetsPerTrigger="3", maxTriggerDelay="10s")
        self.fill("t", 1)
        self.assertEqual(self.next(), [1])
        self.fill("t", 1)
        self.assertEqual([self.next() for _ in range(10)], [[-1]] * 9 + [[2]])

    def test_queryOfAvailableRecordsDoesNotWait(self) -> None:
        self.open(minOffsetsPerTrigger="3")
        self.fill("t", 1)
        self.next()
        self.fill("t", 1)
        self.assertEqual(self.reader.latestOffset(self.at, ReadAllAvailable()), {self.written.id: 3})
        self.reader.prepareForTriggerAvailableNow()
        self.assertEqual(self.next(), [2])
