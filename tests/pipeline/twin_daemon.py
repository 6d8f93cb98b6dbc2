"""Starts Spark's Python workers for tests of speculation: the first attempt at the first task of each batch waits for
the second one, so that both stage rows.

In every other batch it has staged its rows before it waits, so that both attempts end together. In the others it stages
them after the second attempt has ended. Each attempt that has staged rows leaves a file in the folder that
``FLEXIMQ_TWINS`` names: ``<batch>-<partition>-<attempt>``.
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext, daemon

from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
from fleximq.pipeline.writer.sink import _Sink

#: Seconds that the first attempt waits at most.
_PATIENCE = 300.0


def twins(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that stages the rows of a task wait for the second attempt."""

    def staging(*arguments: Any) -> Any:
        context = TaskContext.get()
        folder = Path(os.environ["FLEXIMQ_TWINS"])
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        partition, attempt = context.partitionId(), context.attemptNumber()
        waits = partition == 0 and attempt == 0
        if waits and batch % 2:
            _second(folder, batch)
            # It ends, and the batch may be committed.
            time.sleep(random.uniform(0, 0.5))
        staged = stage(*arguments)
        (folder / f"{batch}-{partition}-{attempt}").touch()
        if waits and not batch % 2:
            _second(folder, batch)
        time.sleep(random.uniform(0, 0.1))
        return staged

    return staging


def _second(folder: Path, batch: int) -> None:
    """Wait until the second attempt has staged its rows."""
    limit = time.monotonic() + _PATIENCE
    while not (folder / f"{batch}-0-1").exists() and time.monotonic() < limit:
        time.sleep(0.005)


if __name__ == "__main__":
    StagingWriter.close = twins(StagingWriter.close)  # type: ignore[method-assign]
    _Sink._write = twins(_Sink._write)  # type: ignore[method-assign]
    daemon.manager()
