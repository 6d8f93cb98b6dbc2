"""What tables that have a log of their own share: a batch is committed to it once, and errors are one sentence."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.batch_commit import Placed
from fleximq.pipeline.lake.table.columns import readColumns


class LogCommitter(ABC):
    """Commits batches to the log of one table, which the first one makes."""

    #: Whose log it is.
    system: ClassVar[str]

    def __init__(self, table: str) -> None:
        self._table = table

    def commit(self, batch: int, files: Sequence[Placed]) -> None:
        """Add the files of a batch, unless they are in; readers see all of them at once.

        :raises LakeRefused: the log cannot be read or written.
        """
        if not files:
            return
        try:
            self._commit(batch, files)
        except LakeRefused:
            raise
        except Exception as error:
            raise LakeRefused(f"the table {self._table} cannot be committed to {self.system}: {error}") from error

    @abstractmethod
    def _commit(self, batch: int, files: Sequence[Placed]) -> None:
        """Add the files of a batch, at least one, unless the batch is in; any error may be raised."""

    def _columns(self) -> pa.Schema:
        """Return all columns that files of the table may have."""
        columns = readColumns(self._table)
        if columns is None:
            raise LakeRefused(f"{self._table} is no table of a lake any more")
        return columns.schema
