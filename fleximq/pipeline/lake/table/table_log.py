"""Interface to the log of a table (Delta Lake or Iceberg), and the values that describe a batch and its files."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, NamedTuple

from fleximq.journal.files.file_system import Files
from fleximq.pipeline.errors import LakeRefused

#: Approximate size of merged files in bytes; files smaller than half of it are merged.
TARGET_BYTES = 128 << 20
#: Seconds without changes after which a partition is compacted even with few small files.
OLDER_THAN = 3600.0
#: Number of small files from which a partition that still changes is compacted.
MANY_FILES = 100
#: Holds the table's lock, with every interrupted change completed, for the length of a ``with`` block.
Exclusive = Callable[[], AbstractContextManager[None]]


class TableFile(NamedTuple):
    """A file with rows of one day and journal, and of one topic, or of several if ``topic`` is empty; ``path`` is its
    name while staged, then its path within the table.
    """

    path: str
    topic: str
    date: str
    journal: str
    first: int
    last: int
    rows: int
    bytes: int


class BatchRange(NamedTuple):
    """A batch: offsets from ``start`` up to before ``end`` of each journal. One that ``start`` lacks begins at its
    ``end``.
    """

    number: int
    start: Mapping[str, int]
    end: Mapping[str, int]


class Compacted(NamedTuple):
    """The result for one partition: the number of small files before and of merged files after."""

    partition: str
    before: int
    after: int


class CompactionGoal(NamedTuple):
    """The parameters of a compaction: see :data:`TARGET_BYTES`, :data:`OLDER_THAN` and :data:`MANY_FILES`."""

    target: int = TARGET_BYTES
    olderThan: float = OLDER_THAN
    many: int = MANY_FILES

    def skips(self, small: int, age: float) -> bool:
        """Tell whether to skip a partition that changed ``age`` seconds ago and has ``small`` small files."""
        return not small or (age < self.olderThan and small < self.many)


@contextmanager
def logErrors(table: str, words: str) -> Iterator[None]:
    """Turn any error of the block into a LakeRefused; ``words``: what the table cannot be."""
    try:
        yield
    except LakeRefused:
        raise
    except Exception as error:
        raise LakeRefused(f"the table {table} cannot be {words}: {error}") from error


class TableLog(ABC):
    """The log of one table; the first commit creates it. Readers of the table see the files that its log names. All
    methods raise LakeRefused if the log or a file cannot be read or changed.
    """

    #: Name of the table format, for error sentences.
    system: ClassVar[str]

    def __init__(self, table: str) -> None:
        self._table = table

    def commit(self, batch: int, files: Sequence[TableFile]) -> None:
        """Add the files of a batch in one step; a batch that the log has already is ignored."""
        if files:
            with logErrors(self._table, f"committed to {self.system}"):
                self._commit(batch, files)

    @abstractmethod
    def _commit(self, batch: int, files: Sequence[TableFile]) -> None:
        """Add the files of a batch, at least one, unless the log has the batch; may raise any error."""

    def change(self, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        """Replace files, paths within the table, in one step; a change that the log has already is ignored."""
        with logErrors(self._table, f"changed by {self.system}"):
            self._change(number, gone, files)

    @abstractmethod
    def _change(self, number: int, gone: Sequence[str], files: Sequence[TableFile]) -> None:
        """Replace files unless the log has the change; may raise any error."""

    @abstractmethod
    def files(self) -> list[tuple[str, str]]:
        """Return the paths within the table of the files that readers see, each with its topic, empty in a layout by
        day. Raises LakeRefused also if another engine has deleted single rows of them.
        """

    @abstractmethod
    def days(self) -> list[tuple[str, str]]:
        """Return the topics and days (``YYYY-MM-DD``) of a table by topic; none before its first batch."""

    @abstractmethod
    def rows(self, days: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """Return the number of rows of each journal for each of these topics and days."""

    @abstractmethod
    def deleteDays(self, days: Sequence[Sequence[str]]) -> None:
        """Remove topics with their days from the table; idempotent. Their files are deleted a week later. The caller
        holds the table's lock.
        """

    def compact(
        self, goal: CompactionGoal, aside: str, files: Files, now: float, exclusive: Exclusive
    ) -> Iterator[Compacted] | None:
        """Merge small files in the log's own way, None if it has none; yield the result for each partition that
        changed. Only this run uses the folder ``aside``; ``now`` is in seconds since 1970.
        """
        return None

    @abstractmethod
    def cleanUp(self, now: float, files: Files, exclusive: Exclusive) -> None:
        """Delete files that the table has not needed for a week; ``now`` is in seconds since 1970."""
