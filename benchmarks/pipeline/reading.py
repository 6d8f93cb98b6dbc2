"""Tables that are read from their first row to the last, all columns, into Spark's sink ``noop``."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from benchmarks.pipeline.material import DDL, Material
from benchmarks.pipeline.stand import Stand, broker
from benchmarks.refused import Refused
from benchmarks.work.effort import Figures, Run
from fleximq.pipeline import history

#: Returns a new table each time.
Table = Callable[[], DataFrame]
Way = Callable[[Stand, Material], AbstractContextManager[Table]]
_RATE = "rows/s"


@contextmanager
def folder(stand: Stand, material: Material) -> Iterator[Table]:
    """The source, from the journal's folder."""
    yield lambda: stand.spark.read.format("fleximq").load(str(material.journal))


@contextmanager
def url(stand: Stand, material: Material) -> Iterator[Table]:
    """The source, through a broker."""
    with broker(material.journal) as url:
        yield lambda: stand.spark.read.format("fleximq").option("url", url).load()


@contextmanager
def sealed(stand: Stand, material: Material) -> Iterator[Table]:
    """What ``seal`` has written, and the rest from the journal."""
    yield lambda: history.read(stand.spark, str(material.journal), str(material.sealed))


@contextmanager
def native(stand: Stand, material: Material) -> Iterator[Table]:
    """Parquet files, written by Spark."""
    if not material.parquet.exists():
        stand.spark.read.format("fleximq").load(str(material.journal)).write.parquet(str(material.parquet))
    yield lambda: stand.spark.read.parquet(str(material.parquet))


@contextmanager
def decoded(stand: Stand, material: Material) -> Iterator[Table]:
    """The source, with payloads as columns and nothing else."""
    reader = stand.spark.read.format("fleximq").options(decode="messagepack", decodeSchema=DDL, columns="decoded,error")
    yield lambda: reader.load(str(material.journal)).select("decoded.*", "error")


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads all of a material in one way; that all of it is there is checked once by its contents, then by its number.

    :param material: the name of an attribute of the stand.
    """

    material: str
    way: Way

    @contextmanager
    def __call__(self, stand: Stand) -> Iterator[Run]:
        """Make ready, and read once."""
        material: Material = getattr(stand, self.material)
        with self.way(stand, material) as table:
            check(table(), material)
            yield lambda: self._run(table, material.rows)

    def _run(self, table: Table, rows: int) -> Figures:
        seen = Observation()
        begun = time.perf_counter()
        table().observe(seen, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - begun
        if seen.get["rows"] != rows:
            raise Refused(f"{seen.get['rows']} of {rows} rows were read")
        return {_RATE: rows / seconds}


def check(table: DataFrame, material: Material) -> None:
    """See that a table has all rows of a material, by their contents.

    :raises Refused: it has not.
    """
    if "value" in table.columns:
        wanted = {"rows": material.rows, "sum": material.crc}
        found = table.agg(F.count(F.lit(1)).alias("rows"), F.sum(F.crc32("value")).alias("sum"))
    else:
        wanted = {"rows": material.rows, "sum": sum(value["id"] % 1_000_003 for value in material.values())}
        found = table.where("error IS NULL AND text IS NOT NULL").agg(
            F.count(F.lit(1)).alias("rows"), F.expr("sum(id % 1000003)").alias("sum")
        )
    [row] = found.collect()
    if row.asDict() != wanted:
        raise Refused(f"the rows are others: {row.asDict()}, not {wanted}")
