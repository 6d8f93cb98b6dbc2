"""The sink with faults that a test has ordered, each of which happens once.

A fault is a file in the folder of the option ``faults``: whoever can remove it lets it happen. ``<where>-<anything>``
fails. If a process id stands in it, that process is killed instead, which may be the broker's; if the id is negative,
it is the driver's with all of its group, and who does it ends as well. Where: ``task`` (in the middle of a task),
``staged`` (when all of a task is staged), ``commit`` or ``kill`` (before the driver commits), ``committed`` (behind).
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from fleximq.pipeline.writer.sink import BatchSink, StagedRows, StreamSink


class Fault(Exception):
    """What was ordered."""


def happen(options: Mapping[str, str], where: str) -> None:
    """Let a fault happen if one is ordered for this place.

    :raises Fault: it does.
    """
    folder = options.get("faults")
    for fault in sorted(Path(folder).glob(f"{where}-*")) if folder else ():
        with suppress(FileNotFoundError):
            content = fault.read_text()
            fault.unlink()
            if content.startswith("-"):
                os.killpg(-int(content), signal.SIGKILL)
                os._exit(1)
            if content:
                os.kill(int(content), signal.SIGKILL)
                return
            raise Fault(f"ordered: {fault.name}")


def interrupted(options: Mapping[str, str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches row by row; behind the first one a fault may happen."""
    for batch in batches:
        for place in range(batch.num_rows):
            yield batch.slice(place, 1)
            happen(options, "task")


class FaultyStream(StreamSink):
    """The streaming sink."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self.options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        written = super().write(interrupted(self.options, iterator))
        if written.rows:
            happen(self.options, "staged")
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        happen(self.options, "commit")
        happen(self.options, "kill")
        super().commit(messages, batchId)
        happen(self.options, "committed")


class FaultyBatch(BatchSink):
    """The batch sink."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self.options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return super().write(interrupted(self.options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        happen(self.options, "kill")
        super().commit(messages)
        happen(self.options, "committed")


class FaultySource(DataSource):
    """A data source with nothing but the sink."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: StructType, overwrite: bool) -> FaultyBatch:
        return FaultyBatch(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyStream:
        return FaultyStream(self.options, schema)
