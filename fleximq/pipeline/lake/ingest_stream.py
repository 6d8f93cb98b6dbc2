"""The streaming query of an ingest: tasks stage the files of each batch, and the driver commits them at the end. Its
source plans as the source ``fleximq`` does, but its rows are the tasks' reports on staged files.
"""

import json
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import DeadLettersFound, LakeRefused, LeftBehind
from fleximq.pipeline.files.schema import ALL_COLUMNS
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lag import Reporter, offsetsBehind
from fleximq.pipeline.lake.checkpoint import checkCheckpoint, checkpointOffsets, nextBatch, syncOffsets
from fleximq.pipeline.lake.ingest_driver import TableIngest
from fleximq.pipeline.lake.ingest_task import stage
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_spec import TableSpec, packed, unpacked
from fleximq.pipeline.lake.task_reports import TaskReports
from fleximq.pipeline.payloads.schema_inference import MAX_COLUMNS
from fleximq.pipeline.reader.journals import SlicePartition, records
from fleximq.pipeline.reader.source_options import SourceOptions
from fleximq.pipeline.reader.stream_reader import StreamReader, ranges

#: The name for ``format``, and the options that the source ``fleximq`` does not have.
NAME = "fleximq-ingest"
LAKE, TABLES = "lake", "tables"
_ROWS = pa.schema([("told", pa.string())])
#: Spark's task property with the number of the micro-batch.
_NUMBER = "streaming.sql.batchId"


class IngestPartition(InputPartition):
    """A part to stage, if any, and a line to report to the driver in addition."""

    def __init__(self, told: str | None, part: SlicePartition | None) -> None:
        super().__init__(told)
        self.told = told
        self.part = part


class IngestSource(DataSource):
    """``format("fleximq-ingest")``, registered by the job."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "told STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = dict(self.options)
        lake, tables = options.pop(LAKE), options.pop(TABLES)
        return IngestReader(SourceOptions.of(options), lake, unpacked(tables))


class IngestReader(StreamReader):
    """Plans batches as a stream of the journals does, and stages them."""

    # Each table's ledger, and the reports to the consumer group, follow all offsets.
    leavesOutEmpty = False

    def __init__(self, options: SourceOptions, lake: str, specs: Sequence[TableSpec]) -> None:
        super().__init__(options, ALL_COLUMNS)
        self._lake = lake
        self._specs = tuple(specs)

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """Return the slices between two offsets; the first one also reports these offsets."""
        journals = self._journals.covering(ranges(start, end))
        begins, gaps = {}, {}
        for journalId, until in end.items():
            first = journals[journalId].bounds().first if journalId in journals else until
            begins[journalId] = start[journalId] if journalId in start else min(first, until)
            if begins[journalId] < min(first, until):
                why = "retention has removed them" if journalId in journals else "their journal is not there any more"
                gaps[journalId] = [(begins[journalId], min(first, until), why, True)]
        told = json.dumps({"start": begins, "end": dict(end), "gaps": gaps})
        parts: Sequence[InputPartition] = ()
        # All have it if the process ended after the last table was committed and before Spark recorded the batch.
        if not all(readLedger(f"{self._lake}/{spec.name}").covers(end) for spec in self._specs):
            parts = super().partitions(start, end)
        found = [each for each in parts if isinstance(each, SlicePartition)]
        return [IngestPartition(None if place else told, part) for place, part in enumerate(found or [None])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stage one slice and yield its report; raises RecordsMissing as ``failOnDataLoss`` says, or LakeRefused."""
        if not isinstance(partition, IngestPartition):
            return
        told = [partition.told] if partition.told is not None else []
        part = partition.part
        if part is not None:
            missing: list[Missing] = []
            batches = records(part, ALL_COLUMNS, self._selection, self._options.failOnDataLoss, missing)
            context = TaskContext.get()
            number = int((context.getLocalProperty(_NUMBER) if context is not None else None) or -1)
            told += stage(self._lake, self._specs, part.slice.journal, number, batches, missing)
        if told:
            yield pa.record_batch([pa.array(told, pa.string())], schema=_ROWS)


#: Minimum number of rows for which a rate is reported: fewer take as long as the start.
_MEASURED = 10_000
#: Seconds between two checks of the query's state.
_LOOK = 0.2
#: The part of a batch's rows above which dead letters are worth a warning.
WARN_ABOVE = 0.01
#: A batch that finds new columns after this many attempts never ends.
_TRIES = 20
#: Maximum number of left-out fields that one line names, and that the job reports in all.
_NAMED, _TOLD = 5, 100


class Ingest:
    """One ingest query. ``strict`` allows no dead letters."""

    def __init__(
        self, feeding: TableIngest, checkpoint: str, run: JobRun, reporter: Reporter | None, strict: bool = False
    ) -> None:
        self._feeding = feeding
        self._checkpoint = checkpoint
        self._run = run
        self._reporter = reporter
        self._strict = strict
        self._busy = threading.Lock()
        self._rows = self._dead = 0
        self._leftOut: set[tuple[str, str]] = set()
        self._behind: set[str] = set()
        self._began = time.monotonic()

    def all(self, options: Mapping[str, str], interval: str | None) -> None:
        """Run the query with the source's options and Spark's interval until it is stopped, or for None until all
        present messages are ingested. Raises StreamingQueryException if it failed, and DeadLettersFound if dead letters
        are not allowed: at the end, or else after their batch.
        """
        query: StreamingQuery | None = None
        try:
            query = self._start(options, interval)
            self._follow(query, endsAlone=interval is None)
        finally:
            # The batch that is being committed ends first.
            with self._busy:
                if query is not None:
                    query.stop()
            if self._reporter is not None:
                self._reporter.close()

    def _start(self, options: Mapping[str, str], interval: str | None) -> StreamingQuery:
        checkCheckpoint(self._checkpoint, [f"{self._feeding.lake}/{spec.name}" for spec in self._feeding.specs])
        begin = checkpointOffsets(self._checkpoint)
        for name in self._feeding.beginAt(begin) if begin else ():
            places = ", ".join(f"offset {nextOffset} of journal {journal}" for journal, nextOffset in begin.items())
            self._run.writeLine(
                f"the table {name} begins where the checkpoint is, at {places}: fleximq-pipeline backfill {name} "
                f"--lake {shlex.quote(self._feeding.lake)} brings earlier messages"
            )
        self._tellBehind()
        if begin:
            self._rows += self._feeding.catchUp(nextBatch(self._checkpoint), begin)
            self._tellBehind()
        spark = self._run.session()
        spark.dataSource.register(IngestSource)
        own = {LAKE: self._feeding.lake, TABLES: packed(self._feeding.specs)}
        stream = spark.readStream.format(NAME).options(**options, **own).load()
        writer = stream.writeStream.option("checkpointLocation", self._checkpoint).foreachBatch(self._take)
        writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
        query = writer.start()
        names = ", ".join(spec.name for spec in self._feeding.specs)
        self._run.writeLine(f"ingesting into {self._feeding.lake}: {names}")
        return query

    def _take(self, batch: DataFrame, number: int) -> None:
        """Stage a batch and commit it."""
        for _ in range(_TRIES):
            told = TaskReports.of(row.told for row in batch.collect())
            with self._busy:
                if self._run.stopping.is_set():
                    raise InterruptedError("the batch must not count as done")
                if self._feeding.evolve(told):
                    continue
                syncOffsets(self._checkpoint, number)
                self._rows += self._feeding.publish(number, told)
            self._tellBehind()
            self._tellLeftOut(told)
            for name, found in self._feeding.deadIn(number):
                self._dead += found.dead
                warning = "warning: " if found.dead > found.rows * WARN_ABOVE else ""
                self._run.writeLine(f"{warning}table {name}, {found}")
            if self._reporter is not None:
                lost = {
                    journalId: sum(gap.next - gap.first for gap in gaps if gap.lost)
                    for journalId, gaps in told.gaps.items()
                }
                lost = {journalId: number for journalId, number in lost.items() if number}
                self._reporter.report(self._feeding.reached(told.end), lost, self._feeding.deadLetters())
            return
        raise LakeRefused(f"the columns of {', '.join(told.fields)} keep growing: give the table a schema")

    def _tellBehind(self) -> None:
        """Report the tables that were left behind, or have caught up, since the last call."""
        behind = self._feeding.behind
        for name in behind.keys() - self._behind:
            self._run.writeLine(f"warning: table {name} is left behind, the others go on: {behind[name]}")
        for name in self._behind - behind.keys():
            self._run.writeLine(f"table {name} has all messages again")
        self._behind = set(behind)

    def _tellLeftOut(self, told: TaskReports) -> None:
        """Report once which fields became no columns."""
        for name, found in told.leftOut.items():
            new = [each for each in found if (name, each) not in self._leftOut][: _TOLD - len(self._leftOut)]
            self._leftOut.update((name, each) for each in new)
            if new:
                others = f" and {len(new) - _NAMED} others" if len(new) > _NAMED else ""
                self._run.writeLine(
                    f"table {name}: the fields {', '.join(map(repr, new[:_NAMED]))}{others} are no columns, only value "
                    "has them: their names are those of other columns, empty, unprintable or too long, or there are "
                    f"{MAX_COLUMNS} columns"
                )

    def _follow(self, query: StreamingQuery, endsAlone: bool) -> None:
        """Report progress until the query ends or the job is stopped."""
        last = ""
        while query.isActive and not self._run.stopping.wait(_LOOK):
            progress = query.lastProgress
            if progress is not None and progress["timestamp"] != last:
                last = progress["timestamp"]
                done = self._rows
                self._run.progress("ingested", done, done + sum(offsetsBehind(progress).values()), "rows")
            if self._dead and self._strict and not endsAlone:
                break
        if not (self._dead and self._strict and not endsAlone):
            if self._run.stopping.is_set():
                return
            query.awaitTermination()
            rate = self._rows / max(1e-9, time.monotonic() - self._began)
            quick = f", {rate:,.0f} rows/s" if self._rows >= _MEASURED else ""
            dead = f", {self._dead} of them dead letters" if self._dead else ""
            self._run.writeLine(f"{self._rows} rows are in{quick}{dead}")
            if behind := self._feeding.behind:
                raise LeftBehind(f"tables were left behind: {', '.join(behind)}; {next(iter(behind.values()))}")
        if self._dead and self._strict:
            raise DeadLettersFound(
                f"{self._dead} messages became dead letters, which --strict does not allow: fleximq-pipeline redecode "
                "brings them back after the schema was mended"
            )
