"""Interface to the log of a table (Delta Lake or Iceberg), and the values that describe a batch and its files."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import pyarrow as pa

from fleximq.pipeline.errors import LakeRefused, plainError
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.file_names import fileName, partitionOf

#: Hours for which the files that a table of the latest rows has replaced stay: each batch may replace all of them.
REPLACED_HOURS = 1
#: Holds the table's lock, with every interrupted change completed, for the length of a ``with`` block.
Exclusive = Callable[[], AbstractContextManager[None]]


class TableFile(NamedTuple):
    """A file with rows of one day and journal, and of one topic, or several if ``topic`` is empty; ``path`` is its name
    while staged, then its path within the table.
    """

    path: str
    topic: str
    date: str
    journal: str
    first: int
    last: int
    rows: int
    bytes: int

    def placed(self, layout: str, within: str) -> "TableFile":
        """Return a staged file with its final path, ``within`` a folder of the table, which ends with ``/`` unless it
        is the table's own. Staged names are unique, so no other file has this path.
        """
        folder = partitionOf(self.topic, self.date, layout)
        return self._replace(path=f"{within}{folder}/{fileName(self.journal)}-{self.path}")


class LiveFile(NamedTuple):
    """A file that readers see: its path within the table, topic, empty in a layout by day, and ``YYYY-MM-DD``."""

    path: str
    topic: str
    date: str


class TableState(NamedTuple):
    """The state of a table that other programs see: its location, its catalog, None without one, the number or id of
    the state, its rows and files, and its columns with their types, in the words of the format.
    """

    location: str
    catalog: str | None
    snapshot: int | None
    rows: int
    files: int
    columns: Mapping[str, str]


class BatchRange(NamedTuple):
    """Offsets from ``start`` up to before ``end`` of each journal; one that ``start`` lacks begins at its ``end``."""

    number: int
    start: Mapping[str, int]
    end: Mapping[str, int]


class Compacted(NamedTuple):
    """The result for one partition: the number of small files before and of merged files after."""

    partition: str
    before: int
    after: int


class CompactionGoal(NamedTuple):
    """Merge files of less than half of ``target`` bytes to about that size, in partitions that have ``many`` of them,
    or did not change for ``olderThan`` seconds.
    """

    target: int = 128 << 20
    olderThan: float = 3600.0
    many: int = 100


@contextmanager
def logErrors(table: str, words: str) -> Iterator[None]:
    """Turn any error of the block into a LakeRefused; ``words``: what the table cannot be."""
    try:
        yield
    except LakeRefused:
        raise
    except BaseException as error:
        # A panic of a library in Rust is no Exception.
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        raise LakeRefused(f"the table {table} cannot be {words}: {plainError(error)}") from error


#: Number of attempts to commit a change while others commit to the table as well.
TRIES = 5


def untilCommitted(attempt: Callable[[], None], conflicts: tuple[type[Exception], ...]) -> None:
    """Try again while a commit fails with these errors, since another one was faster; raises the last one. Each attempt
    reads the log again: the other commit may be the same one, by another process or with an answer that was lost.
    """
    for left in reversed(range(TRIES)):
        try:
            return attempt()
        except conflicts:
            if not left:
                raise


class TableLog(ABC):
    """The log of one table, made by the first commit: readers see the files that it names. Raises LakeRefused."""

    def __init__(self, table: str, files: LakeFiles = FILES) -> None:
        self._table = table
        self._files = files

    @abstractmethod
    def commit(self, batch: int, files: Sequence[TableFile]) -> None:
        """Add the files of a batch, at least one, in one step; a batch that the log has already is ignored."""

    @abstractmethod
    def change(self, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        """Replace files, paths within the table, in one step; a change that the log has already is ignored."""

    @abstractmethod
    def files(self) -> list[LiveFile]:
        """Return the files that readers see, none before the first batch."""

    @abstractmethod
    def state(self) -> TableState:
        """Return the state of the table that other programs see; raises LakeRefused also before the first batch."""

    @abstractmethod
    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
        """Remove topics with their days (``YYYY-MM-DD``); idempotent. The caller holds the table's lock."""

    def columns(self) -> Sequence[pa.Field]:
        """Return the log's columns if it refuses new ones with some names; none if it accepts all names."""
        return ()

    def refusal(self, file: TableFile) -> str | None:
        """Return why the content of a file on disk cannot be committed, None if it can."""
        return None

    def compact(
        self, goal: CompactionGoal, aside: str, files: LakeFiles, now: float, exclusive: Exclusive
    ) -> Iterator[Compacted] | None:
        """Merge small files in the log's own way, None if it has none; yield the result for each changed partition.
        Only this run uses the folder ``aside``; ``now`` is in seconds since 1970.
        """
        return None

    @abstractmethod
    def cleanUp(self, now: float, files: LakeFiles, exclusive: Exclusive) -> None:
        """Delete files that the table has not needed for a week; ``now`` is in seconds since 1970."""
