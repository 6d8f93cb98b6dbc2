"""The rows of a lake table in an object store as a data source of Spark: tasks read its live files by Arrow.

Spark's own reader of Parquet would need jars for the store, with settings and credentials of their own.
"""

from collections.abc import Iterator, Sequence
from datetime import date

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.file_names import BY_KEY, dateIn
from fleximq.pipeline.lake.table.format import layoutOf

_DATE = pa.field("date", pa.date32())


class LakeSource(DataSource):
    """``format("fleximq-lake")``, registered when a table is opened."""

    @classmethod
    def name(cls) -> str:
        return "fleximq-lake"

    def schema(self) -> StructType:
        table = self.options["path"]
        columns = requiredColumns(table).schema
        isByDay = self.options.get("byfolder", "true") == "true" and layoutOf(table) != BY_KEY
        return from_arrow_schema(columns.append(_DATE) if isByDay else columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["path"], "date" in schema.names)


class _Part(InputPartition):
    """One file, and its topic."""

    def __init__(self, path: str, topic: str) -> None:
        super().__init__(path)
        self.path, self.topic = path, topic


class _Reader(DataSourceReader):
    def __init__(self, table: str, hasDate: bool) -> None:
        self._table, self._hasDate = table, hasDate
        self._schema = requiredColumns(table).schema

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(path, topic) for path, topic in liveFiles(self._table)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Part):
            return
        for rows in rowGroups(self._table, partition.path, partition.topic):
            found = aligned(rows, self._schema)
            if self._hasDate:
                day = date.fromisoformat(dateIn(partition.path))
                found = found.append_column(_DATE, pa.repeat(pa.scalar(day, pa.date32()), found.num_rows))
            yield from found.to_batches(max_chunksize=10_000)
