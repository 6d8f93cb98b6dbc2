"""Journals as streams: ``spark.readStream.format("fleximq")``."""

import json
import os
import shutil
import time
from pathlib import Path
from threading import Timer
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.folder_files import STREAM
from tests.pipeline.installed import missing as skip
from tests.pipeline.written import TIME, Written

if not skip:
    from pyspark.errors import StreamingQueryException

    from fleximq.pipeline.lag import offsetsBehind
    from tests.pipeline.session import sharedSession


class StreamCase(SynchronousTestCase):
    """``written`` is a journal in ``folder``; each query goes on from where the one before stopped."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.parent = Path(self.mktemp()).absolute()
        self.parent.mkdir()
        self.folder = str(self.parent / "one")
        self.written = Written(self.folder, segmentBytes=4000)
        self.batches: list[list[tuple[str, int, bytes]]] = []

    def start(
        self, path: str | None = None, trigger: Any = None, checkpoint: str = "checkpoint", **options: str
    ) -> Any:
        """Start a query that keeps its rows in ``batches``."""
        stream = self.spark.readStream.format("fleximq").options(**options).load(path or self.folder)

        def keep(batch: Any, number: int) -> None:
            rows = batch.select("journal", "offset", "value").collect()
            self.batches.append(sorted((row.journal, row.offset, bytes(row.value)) for row in rows))

        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.parent / checkpoint))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        self.addCleanup(query.stop)
        return query

    def run_(self, **more: Any) -> Any:
        """Let a query read what there is, and return it."""
        self.batches.clear()
        query = self.start(**more)
        query.awaitTermination(600)
        return query

    @property
    def offsets(self) -> list[int]:
        """The offsets of all rows, in the order in which they came."""
        return [offset for batch in self.batches for _, offset, _ in batch]

    def fill(self, records: int, written: Written | None = None) -> None:
        """Write so many records, each in a frame of its own."""
        written = written or self.written
        for number in range(records):
            written.kept("t", b"%d" % number * 100)


class OnceTests(StreamCase):
    """Each record comes once."""

    def test_restartedQueryGoesOnAndNothingNewIsNoBatch(self) -> None:
        self.fill(20)
        self.run_(startingOffsets="earliest")
        self.assertEqual(self.offsets, list(range(1, 21)))
        self.run_(startingOffsets="earliest")
        self.assertEqual(self.offsets, [])
        self.fill(15)
        self.run_(startingOffsets="earliest")
        self.assertEqual(self.offsets, list(range(21, 36)))

    def test_checkpointOfOneCopyGoesOnWithAnother(self) -> None:
        self.fill(10)
        other = self.parent / "other"
        shutil.copytree(self.folder, other)
        (other / STREAM).touch()
        self.fill(10)
        self.run_(startingOffsets="earliest")
        self.assertEqual(self.offsets, list(range(1, 21)))
        # As if the query had ended before the batch was recorded as done.
        shutil.rmtree(self.parent / "checkpoint" / "commits")
        catchingUp = Timer(1, shutil.copytree, (self.folder, other), {"dirs_exist_ok": True})
        catchingUp.start()
        self.run_(path=str(other), startingOffsets="earliest")
        catchingUp.join()
        self.assertEqual(self.offsets, list(range(1, 21)))

    def test_batchIsLimitedByRecordsOrBytes(self) -> None:
        self.fill(20)
        self.run_(startingOffsets="earliest", maxOffsetsPerTrigger="8")
        self.assertEqual([len(batch) for batch in self.batches], [8, 8, 4])
        self.assertEqual(self.offsets, list(range(1, 21)))
        self.run_(startingOffsets="earliest", maxBytesPerTrigger="2000", checkpoint="other")
        self.assertEqual(self.offsets, list(range(1, 21)))
        self.assertGreater(len(self.batches), 2)

    def test_streamBeginsWithTheNextRecord(self) -> None:
        self.fill(3)
        query = self.start(trigger={"processingTime": "0 seconds"})
        query.processAllAvailable()
        self.fill(2)
        query.processAllAvailable()
        self.fill(2)
        query.processAllAvailable()
        self.assertEqual(self.offsets, [4, 5, 6, 7])
        self.assertEqual(json.loads(query.lastProgress["sources"][0]["latestOffset"]), {self.written.id: 8})

    def test_otherTopicsAndTooFewRecordsStartNoBatch(self) -> None:
        self.written.time = time.time_ns() // 1000
        query = self.start(trigger={"processingTime": "0 seconds"}, subscribe="t", minOffsetsPerTrigger="3")
        query.processAllAvailable()
        for topic, records in (("u", 9), ("t", 2), ("u", 9), ("t", 1)):
            self.written.kept(topic, *[b"x"] * records)
            query.processAllAvailable()
        self.assertEqual([len(batch) for batch in self.batches if batch], [3])
        self.assertEqual(query.lastProgress["batchId"], 1)
        self.assertEqual(offsetsBehind(query.lastProgress), {self.written.id: 0})

    def test_streamMayBeginAtATime(self) -> None:
        for number in range(6):
            self.written.time = TIME + number * 1000
            self.written.kept("t" if number % 2 else "u", b"%d" % number)
        self.run_(startingTimestamp=str(TIME // 1000 + 2), subscribe="t", columns="journal,offset,value")
        self.assertEqual(self.batches, [[(self.written.id, 4, b"3"), (self.written.id, 6, b"5")]])


class SeveralTests(StreamCase):
    """Several journals in one stream."""

    def test_laterJournalIsReadFromItsFirstRecordAndLimitsAreShared(self) -> None:
        self.fill(10)
        self.run_(path=f"{self.parent}/o*", startingOffsets="earliest")
        self.assertEqual(len(self.offsets), 10)
        other = Written(str(self.parent / "other"), segmentBytes=4000)
        self.fill(10, other)
        self.fill(10)
        self.run_(path=f"{self.parent}/o*", startingOffsets="earliest", maxOffsetsPerTrigger="6")
        rows = [(journal, offset) for batch in self.batches for journal, offset, _ in batch]
        expected = [(other.id, offset) for offset in range(1, 11)]
        expected += [(self.written.id, offset) for offset in range(11, 21)]
        self.assertEqual(sorted(rows), sorted(expected))
        self.assertEqual([len(batch) for batch in self.batches], [6, 6, 6, 2])


class LossTests(StreamCase):
    """What is gone before it was read."""

    def setUp(self) -> None:
        super().setUp()
        self.fill(5)
        self.run_(startingOffsets="earliest")
        self.fill(60)
        for path in sorted(Path(self.folder).glob("*.fxj"))[:2]:
            os.unlink(path)

    def test_lossEndsTheQueryWithTheOffsets(self) -> None:
        query = self.start()
        error = self.assertRaises(StreamingQueryException, query.awaitTermination, 600)
        self.assertIn(f"journal {self.written.id} has no offsets 6 to ", str(error))
        self.assertIn("any more: retention has removed them", str(error))

    def test_lossMayBePassedOver(self) -> None:
        self.run_(failOnDataLoss="false")
        self.assertEqual(self.offsets, list(range(self.offsets[0], 66)))
        self.assertGreater(self.offsets[0], 6)
