"""What becomes of tables that have a log is told to that log: that of Delta Lake, or of Iceberg.

Nothing of such a table may be moved behind its log's back.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow.parquet as pq

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.format import DELTA, ICEBERG, PARQUET, formatOf, needing

_Made = TypeVar("_Made")


def isPlain(table: str) -> bool:
    """Tell whether a table is files alone, and no log has to be told of what becomes of them.

    :raises LakeRefused: its format cannot be read.
    """
    return bool(formatOf(table)["format"] == PARQUET)


def daysOf(table: str) -> list[tuple[str, str]]:
    """Return the topics and days (``YYYY-MM-DD``) that a table with a log has; none where it has no batch yet.

    :raises LakeRefused: it cannot be read.
    """
    if _isIceberg(table):
        from fleximq.pipeline.lake.iceberg.snapshots import icebergDays

        return icebergDays(table)
    return _with(table, lambda found: [(each["topic"], str(each["date"])) for each in found.partitions()], [])


def rowsOf(table: str, days: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, int]]:
    """Return how many rows of each journal a table with a log has of each of some topics and days.

    :raises LakeRefused: it cannot be read.
    """
    if _isIceberg(table):
        from fleximq.pipeline.lake.iceberg.snapshots import icebergRows

        return icebergRows(table, days)
    return {day: _deltaRows(table, *day) for day in days}


def deleteDays(table: str, days: Sequence[Sequence[str]]) -> None:
    """Take days of topics out of a table with a log; those that have gone already stay so.

    Their files are deleted a week later.

    :raises LakeRefused: it cannot be done.
    """
    if _isIceberg(table):
        from fleximq.pipeline.lake.iceberg.snapshots import deleteIceberg

        deleteIceberg(table, days)
    else:
        _deleteDelta(table, days)


def tidyLog(table: str, now: float, files: Files) -> None:
    """Delete what an Iceberg table has not had for a week; others do so when something leaves them.

    :raises LakeRefused: it cannot be done.
    """
    if _isIceberg(table):
        from fleximq.pipeline.lake.iceberg.snapshot_cleanup import tidy

        tidy(table, now, files)


def _isIceberg(table: str) -> bool:
    """Tell whether a table is one of Iceberg; what that needs is installed then.

    :raises LakeRefused: it is not.
    """
    if formatOf(table)["format"] != ICEBERG:
        return False
    with needing(table, ICEBERG):
        import fleximq.pipeline.lake.iceberg  # noqa: F401
    return True


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


def _deltaRows(table: str, topic: str, day: str) -> dict[str, int]:
    def work(found: Any) -> dict[str, int]:
        rows: dict[str, int] = {}
        for path in found.file_uris([("topic", "=", topic), ("date", "=", day)]):
            for each in pq.ParquetFile(path).read(["journal"]).column("journal").value_counts().to_pylist():
                rows[each["values"]] = rows.get(each["values"], 0) + each["counts"]
        return rows

    return _with(table, work, {})


def _deleteDelta(table: str, days: Sequence[Sequence[str]]) -> None:
    def work(found: Any) -> None:
        for topic, day in days:
            quoted = topic.replace("'", "''")
            found.delete(f"topic = '{quoted}' AND date = DATE '{day}'")
        found.vacuum(dry_run=False)

    _with(table, work, None)


def _with(table: str, work: Callable[[Any], _Made], otherwise: _Made) -> _Made:
    """Return what is made of a Delta table; ``otherwise`` before its first batch."""
    with needing(table, DELTA):
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    try:
        return work(DeltaTable(table))
    except TableNotFoundError:
        return otherwise
    except Exception as error:
        raise LakeRefused(f"the table {table} cannot be changed by Delta Lake: {error}") from error
