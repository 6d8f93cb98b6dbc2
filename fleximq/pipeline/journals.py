"""All journals that the option ``path`` names, found again at every look, for a glob may match more of them later."""

import glob
import logging
import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.layout import JournalFiles, readSlice
from fleximq.pipeline.offsets import RecordsMissing
from fleximq.pipeline.options import SourceOptions
from fleximq.pipeline.reading import Missing
from fleximq.pipeline.selection import Selection
from fleximq.pipeline.slices import Slice

_log = logging.getLogger("fleximq.pipeline")


class SlicePartition(InputPartition):
    """One slice of a journal, for one task."""

    def __init__(self, slice: Slice) -> None:
        super().__init__(slice)
        self.slice = slice


class Journals:
    """The journals in some folders; used by one thread.

    :param paths: folders, or globs of folders.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._known: dict[str, JournalFiles] = {}

    def find(self) -> dict[str, JournalFiles]:
        """Return the journals that are there now, by their ids.

        :raises OptionRefused: there is none, or the same one twice.
        :raises JournalError: a folder that is named is no journal.
        """
        found: dict[str, JournalFiles] = {}
        for path in self._folders():
            journal = self._known.get(path) or JournalFiles(path)
            self._known[path] = journal
            if journal.id in found and found[journal.id].path != path:
                raise OptionRefused(f"{found[journal.id].path} and {path} are the same journal")
            found[journal.id] = journal
        if not found:
            raise OptionRefused(f"there is no journal in {' or '.join(self._paths)}")
        return dict(sorted(found.items()))

    def _folders(self) -> list[str]:
        folders: list[str] = []
        for path in self._paths:
            path = os.path.abspath(os.path.expanduser(path))
            if not glob.has_magic(path) or os.path.isdir(path):
                folders.append(path)
            else:
                folders += [each for each in sorted(glob.glob(path)) if os.path.exists(f"{each}/identity")]
        return list(dict.fromkeys(folders))


def read(
    partition: InputPartition | None, columns: Sequence[str], wanted: Selection, failOnDataLoss: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition; nothing of one that is none, which Spark makes where there are none.

    :raises RecordsMissing: something is missing that was there, and that matters.
    """
    if not isinstance(partition, SlicePartition):
        return
    yield from readSlice(partition.slice, columns, wanted, teller(partition.slice.journal, failOnDataLoss))


def teller(journal: str, failOnDataLoss: bool) -> Callable[[Missing], None]:
    """Return what raises or logs that records are missing."""

    def tell(missing: Missing) -> None:
        sentence = f"journal {journal}, {missing}"
        if missing.lost and failOnDataLoss:
            raise RecordsMissing(f"{sentence} (the option failOnDataLoss=false reads on)")
        _log.warning("%s", sentence)

    return tell


def partitionsOf(
    journal: JournalFiles, start: int, end: int, options: SourceOptions, wanted: Selection, among: int
) -> list[SlicePartition]:
    """Return the partitions of a range of one of so many journals."""
    parts = -(-options.minPartitions // among)
    slices = journal.split(start, end, wanted.topics, parts, wanted.since, options.partitionBytes)
    return [SlicePartition(slice) for slice in slices]
