"""The stream of an ingest: a source of Spark whose rows are not messages, but what tasks tell of files they staged.

Spark plans batches, remembers offsets and runs tasks, as for the source ``fleximq``; messages go from the journal to
Parquet in the tasks themselves.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from fleximq.pipeline.broker_link import Place
from fleximq.pipeline.files.journal_files import readSlice
from fleximq.pipeline.files.schema import ALL_COLUMNS
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.files.slices import Slice
from fleximq.pipeline.lake.ingest_task import stage
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_spec import TableSpec, unpacked
from fleximq.pipeline.reader.broker_journal import readRemote
from fleximq.pipeline.reader.journals import SlicePartition, teller
from fleximq.pipeline.reader.source_options import SourceOptions
from fleximq.pipeline.reader.stream_reader import StreamReader

#: What stands in ``format``, and the options that are not the source's.
NAME = "fleximq-ingest"
LAKE, TABLES = "lake", "tables"
_ROWS = pa.schema([("told", pa.string())])
#: Where Spark keeps the number of the micro-batch that a task belongs to.
_NUMBER = "streaming.sql.batchId"


class FeedPartition(SlicePartition):
    """A slice, or none, and what the driver is to be told besides."""

    def __init__(self, told: str | None, slice: Slice | None, broker: Place | None = None) -> None:
        InputPartition.__init__(self, told)
        self.told = told
        self.slice = slice  # type: ignore[assignment]
        self.broker = broker


class FeedSource(DataSource):
    """``format("fleximq-ingest")``, registered by the job."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format``."""
        return NAME

    def schema(self) -> str:
        """Return the one column."""
        return "told STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what plans and stages.

        :raises OptionRefused: an option is wrong.
        """
        options = dict(self.options)
        lake, tables = options.pop(LAKE), options.pop(TABLES)
        return FeedReader(SourceOptions.of(options), lake, unpacked(tables))


class FeedReader(StreamReader):
    """Plans as a stream of the journals does, and stages what it plans."""

    def __init__(self, options: SourceOptions, lake: str, specs: Sequence[TableSpec]) -> None:
        super().__init__(options, ALL_COLUMNS)
        self._lake = lake
        self._specs = tuple(specs)

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """Return slices of what lies between, and with the first one from where to where that is.

        :raises RecordsMissing: retention has removed some of it.
        """
        journals = self._find()
        begins, gaps = {}, {}
        for id, until in end.items():
            first = journals[id].bounds().first if id in journals else until
            begins[id] = start[id] if id in start else min(first, until)
            if begins[id] < min(first, until):
                why = "retention has removed them" if id in journals else "their journal is not there any more"
                gaps[id] = [(begins[id], min(first, until), why, True)]
        told = json.dumps({"start": begins, "end": dict(end), "gaps": gaps})
        if all(readLedger(f"{self._lake}/{spec.name}").covers(end) for spec in self._specs):
            # The process ended between the last table's record and Spark's own.
            return [FeedPartition(told, None)]
        found = [each for each in super().partitions(start, end) if isinstance(each, SlicePartition)]
        if not found:
            return [FeedPartition(told, None)]
        return [FeedPartition(None if place else told, each.slice, each.broker) for place, each in enumerate(found)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stage one slice and yield what is to be told.

        :raises RecordsMissing: something is missing that was there, and that matters.
        :raises LakeRefused: a file cannot be written.
        """
        if not isinstance(partition, FeedPartition):
            return
        told = [partition.told] if partition.told is not None else []
        if partition.slice is not None:
            told += self._stage(partition.slice, partition.broker)
        if told:
            yield pa.record_batch([pa.array(told, pa.string())], schema=_ROWS)

    def _stage(self, slice: Slice, broker: Place | None) -> Iterator[str]:
        missing: list[Missing] = []
        tell = teller(slice.journal, self._options.failOnDataLoss)

        def miss(found: Missing) -> None:
            tell(found)
            missing.append(found)

        if broker is not None:
            batches = readRemote(slice, broker, ALL_COLUMNS, self._wanted, miss)
        else:
            batches = readSlice(slice, ALL_COLUMNS, self._wanted, miss)
        context = TaskContext.get()
        number = int((context.getLocalProperty(_NUMBER) if context is not None else None) or -1)
        yield from stage(self._lake, self._specs, slice.journal, number, batches, missing)
