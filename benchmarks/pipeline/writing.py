"""Rows that are written: by ``ingest`` to a lake, by Spark to Parquet, by the sink to a topic."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks.pipeline.reading import check, native
from benchmarks.pipeline.stand import Stand, broker
from benchmarks.refused import Refused
from benchmarks.work.effort import Figures, Run
from fleximq.client.blocking import connect
from fleximq.pipeline.jobs.ingest import INGEST

#: Rows of 100 bytes that the sink gets at once.
_ROWS = 600_000
_RATE = "rows/s"


@contextmanager
def ingested(stand: Stand) -> Iterator[Run]:
    """``ingest --once`` of 2 million messages into a new lake."""
    material, lake = stand.small, stand.folder / "lake"

    def run() -> Figures:
        shutil.rmtree(lake, ignore_errors=True)
        begun = time.perf_counter()
        stand.do(INGEST, "--journal", str(material.journal), "--lake", str(lake), "--once")
        seconds = time.perf_counter() - begun
        _count(lake / "messages", material.rows)
        return {_RATE: material.rows / seconds}

    run()
    check(stand.spark.read.parquet(str(lake / "messages")), material)
    yield run
    shutil.rmtree(lake, ignore_errors=True)


@contextmanager
def _written(stand: Stand, name: str, write: Callable[[DataFrame, str], None]) -> Iterator[Run]:
    """Spark reads the same rows from Parquet and writes them into a folder of this name."""
    material, copy = stand.small, stand.folder / name
    with native(stand, material) as table:

        def run() -> Figures:
            shutil.rmtree(copy, ignore_errors=True)
            begun = time.perf_counter()
            write(table(), str(copy))
            seconds = time.perf_counter() - begun
            _count(copy, material.rows)
            return {_RATE: material.rows / seconds}

        run()
        yield run
    shutil.rmtree(copy, ignore_errors=True)


def copied(stand: Stand) -> AbstractContextManager[Run]:
    """Spark reads the same rows from Parquet and writes them as Parquet."""
    return _written(stand, "copy", lambda rows, folder: rows.write.parquet(folder))


def partitioned(stand: Stand) -> AbstractContextManager[Run]:
    """The same with a folder for each topic and date, as the lake has them."""

    def write(rows: DataFrame, folder: str) -> None:
        rows.selectExpr("*", "to_date(timestamp) AS date").write.partitionBy("topic", "date").parquet(folder)

    return _written(stand, "partitioned", write)


def visible(table: Path) -> list[Path]:
    """Return the files of a table that whoever lists it sees, also while others come and go in its hidden folders."""
    found = []
    for folder, folders, names in os.walk(table):
        folders[:] = [name for name in folders if name[0] not in "._"]
        found += [Path(folder, name) for name in names if name[0] not in "._" and name.endswith(".parquet")]
    return found


def _count(table: Path, rows: int) -> None:
    found = sum(pq.read_metadata(file).num_rows for file in visible(table))
    if found != rows:
        raise Refused(f"{found} rows were written, not {rows}")


@contextmanager
def sunk(stand: Stand) -> Iterator[Run]:
    """The sink, into a topic that the journal keeps, in one transaction."""
    rows, journal = round(_ROWS * stand.scale), stand.folder / "sink"
    with broker(journal) as url, connect(url) as client:
        topics = 0

        def run() -> Figures:
            nonlocal topics
            topics += 1
            table = stand.spark.range(0, rows, 1, 2).selectExpr("CAST(lpad(id, 100, 'x') AS BINARY) AS value")
            writer = table.write.format("fleximq").mode("append")
            begun = time.perf_counter()
            writer.options(url=url, topic=f"rows.{topics}", requireExactlyOnce="true").save()
            seconds = time.perf_counter() - begun
            kept = {row["topic"]: row["count"] for row in client.ask("/journal/bounds", {"limit": 1000})["topics"]}
            if kept.get(f"rows.{topics}") != rows:
                raise Refused(f"{kept.get(f'rows.{topics}')} of {rows} rows were published")
            return {_RATE: rows / seconds}

        run()
        yield run
    shutil.rmtree(journal, ignore_errors=True)
