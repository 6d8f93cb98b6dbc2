"""The streaming query of an ingest: tasks stage each batch, and the driver publishes it when all of them are done."""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from fleximq.pipeline.command.job import Run
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lag import Reporter
from fleximq.pipeline.lake.ingest_driver import Feeding, Told, keepOffsets
from fleximq.pipeline.lake.ingest_stream import LAKE, NAME, TABLES, FeedSource
from fleximq.pipeline.lake.table.table_spec import packed

#: Seconds between two looks at what the query does.
_LOOK = 0.2
#: A batch that still has columns to add after so many tries never ends.
_TRIES = 20


class Ingest:
    """One query, from its start to its end."""

    def __init__(self, feeding: Feeding, checkpoint: str, run: Run, reporter: Reporter | None) -> None:
        self._feeding = feeding
        self._checkpoint = checkpoint
        self._run = run
        self._reporter = reporter
        self._query: StreamingQuery | None = None
        self._busy = threading.Lock()
        self._rows = 0
        self._began = time.monotonic()

    def start(self, options: Mapping[str, str], interval: str | None) -> None:
        """Start the query.

        :param options: those of the source.
        :param interval: how often it looks for messages, as Spark reads it; None: until all is in that is there now.
        """
        spark = self._run.session()
        spark.dataSource.register(FeedSource)
        own = {LAKE: self._feeding.lake, TABLES: packed(self._feeding.specs)}
        stream = spark.readStream.format(NAME).options(**options, **own).load()
        writer = stream.writeStream.option("checkpointLocation", self._checkpoint).foreachBatch(self.take)
        writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
        self._query = writer.start()
        names = ", ".join(spec.name for spec in self._feeding.specs)
        self._run.say(f"ingesting into {self._feeding.lake}: {names}")

    def take(self, batch: DataFrame, number: int) -> None:
        """Stage a batch and make it visible."""
        for _ in range(_TRIES):
            told = Told.of(row.told for row in batch.collect())
            with self._busy:
                if self._run.stopping.is_set():
                    raise InterruptedError("nobody may take the batch for done")
                if self._feeding.evolve(told):
                    continue
                keepOffsets(self._checkpoint, number)
                self._rows += self._feeding.publish(number, told)
            if self._reporter is not None:
                lost = {id: sum(gap.next - gap.first for gap in gaps if gap.lost) for id, gaps in told.gaps.items()}
                self._reporter.tell(told.end, {id: number for id, number in lost.items() if number})
            return
        raise LakeRefused(f"the columns of {', '.join(told.fields)} come to no end: give the table a schema")

    def follow(self) -> None:
        """Return when the query has ended, or was told to; say meanwhile what it does.

        :raises StreamingQueryException: it has failed.
        """
        query, last = self._query, ""
        if query is None:
            return
        while query.isActive and not self._run.stopping.wait(_LOOK):
            progress = query.lastProgress
            if progress is not None and progress["timestamp"] != last:
                last = progress["timestamp"]
                self._show(progress)
        if not self._run.stopping.is_set():
            query.awaitTermination()
            rate = self._rows / max(1e-9, time.monotonic() - self._began)
            self._run.say(f"{self._rows} rows are in, {rate:,.0f} rows/s")

    def _show(self, progress: Any) -> None:
        """Say how many rows are in, and how many messages wait."""
        done = self._rows
        self._run.progress("ingested", done, done + _waiting(progress), "rows")

    def end(self) -> None:
        """Stop the query, when the batch that is being published is done."""
        with self._busy:
            if self._query is not None:
                self._query.stop()
        if self._reporter is not None:
            self._reporter.close()


def _waiting(progress: Any) -> int:
    """Return about how many messages come after a batch."""
    waiting = 0
    for source in progress["sources"]:
        latest, end = source["latestOffset"], source["endOffset"]
        try:
            latest, end = (json.loads(each) if isinstance(each, str) else each for each in (latest, end))
            waiting += sum(max(0, next - end.get(journal, next)) for journal, next in latest.items())
        except (ValueError, AttributeError):
            continue
    return waiting
