"""Compacts tables of Delta Lake, and removes their old days, by their own log; refuses what PyIceberg cannot do.

Nothing of such a table may be moved behind its log's back.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow.parquet as pq

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.formats import DELTA, ICEBERG, PARQUET, formatOf

_Made = TypeVar("_Made")


def isPlain(table: str) -> bool:
    """Tell whether a table is files alone, and no log has to be told of what becomes of them.

    :raises LakeRefused: nobody can look after it from here.
    """
    format = formatOf(table)["format"]
    if format == ICEBERG:
        raise LakeRefused(
            f"the table {table} is an Iceberg table, and PyIceberg neither joins files nor deletes those of old days: "
            "let an engine with its catalog do it"
        )
    return bool(format == PARQUET)


def compactDelta(table: str, target: int) -> tuple[int, int]:
    """Join small files of a Delta table, and delete what its log has not named for a week; return how many files were
    joined into how many.

    :raises LakeRefused: it cannot be done.
    """

    def work(found: Any) -> tuple[int, int]:
        done = found.optimize.compact(target_size=target)
        found.vacuum(dry_run=False)
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    return _with(table, work, (0, 0))


def deltaDays(table: str) -> list[tuple[str, str]]:
    """Return the topics and days (``YYYY-MM-DD``) that a Delta table has; none where it has no batch yet.

    :raises LakeRefused: it cannot be read.
    """
    return _with(table, lambda found: [(each["topic"], str(each["date"])) for each in found.partitions()], [])


def deltaRows(table: str, topic: str, day: str) -> dict[str, int]:
    """Return how many rows of each journal a Delta table has of a topic and day.

    :raises LakeRefused: it cannot be read.
    """

    def work(found: Any) -> dict[str, int]:
        rows: dict[str, int] = {}
        for path in found.file_uris([("topic", "=", topic), ("date", "=", day)]):
            for each in pq.ParquetFile(path).read(["journal"]).column("journal").value_counts().to_pylist():
                rows[each["values"]] = rows.get(each["values"], 0) + each["counts"]
        return rows

    return _with(table, work, {})


def deleteDelta(table: str, days: Sequence[Sequence[str]]) -> None:
    """Take days of topics out of a Delta table; those that have gone already stay so.

    The files are deleted when its log has not named them for a week.

    :raises LakeRefused: it cannot be done.
    """

    def work(found: Any) -> None:
        for topic, day in days:
            quoted = topic.replace("'", "''")
            found.delete(f"topic = '{quoted}' AND date = DATE '{day}'")
        found.vacuum(dry_run=False)

    _with(table, work, None)


def _with(table: str, work: Callable[[Any], _Made], otherwise: _Made) -> _Made:
    """Return what is made of a Delta table; ``otherwise`` before its first batch."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ImportError as error:
        raise LakeRefused(
            f"the table {table} needs the extra {DELTA}: pip install 'fleximq[{DELTA}]' ({error})"
        ) from error
    try:
        return work(DeltaTable(table))
    except TableNotFoundError:
        return otherwise
    except Exception as error:
        raise LakeRefused(f"the table {table} cannot be changed by Delta Lake: {error}") from error
