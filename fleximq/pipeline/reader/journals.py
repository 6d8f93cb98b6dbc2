"""The journals that the options name: in folders, or behind brokers.

Globs are expanded again at each call, since later they may match more folders.

Spark's Python processes serve many tasks and collect garbage after each, which takes 20 ms with Spark, pyarrow and
numpy imported, none of it garbage; :func:`freezeImports` excludes the imports.
"""

import gc
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files, errorText
from fleximq.journal.files.folder_files import readIdentity
from fleximq.pipeline.broker_link import Place
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.files.journal_files import JournalFiles, readSlice
from fleximq.pipeline.files.selection import Selection, Slice
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.reader.broker_journal import RemoteJournal, readRemote
from fleximq.pipeline.reader.decoded_columns import Decoding, decoded, needed
from fleximq.pipeline.reader.offsets import reportLoss
from fleximq.pipeline.reader.source_options import SourceOptions

#: Spark sets this environment variable in processes that serve more than one task.
_SERVES_MANY = "SPARK_REUSE_WORKER"
#: Number of calls that have an effect.
_CALLS = 2
_calls = count()


def freezeImports() -> None:
    """Exclude imports from garbage collection, if this is one of Spark's processes.

    Called at the start of a task. The second call excludes the imports of the first task: pyarrow imports pandas, if
    installed, on the first use of numpy's arrays.
    """
    if _SERVES_MANY not in os.environ or next(_calls) >= _CALLS:
        return
    gc.collect()
    gc.freeze()


Journal = JournalFiles | RemoteJournal


class SlicePartition(InputPartition):
    """One slice of a journal for one task, read through ``broker``, or from its folder if None."""

    def __init__(self, slice: Slice, broker: Place | None = None) -> None:
        super().__init__(slice)
        self.slice = slice
        self.broker = broker


class Journals:
    """The journals that options name; used by one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._paths = options.paths
        self._brokers = {place.url: place for place in options.brokers}
        self._known: dict[str, Journal] = {}

    def find(self) -> dict[str, Journal]:
        """Return the journals that exist now, by id. Raises OptionRefused if none was found, or the same one twice,
        JournalError if a named folder is no journal, PipelineError if a broker is away, refuses, or has no journal.
        """
        found: dict[str, Journal] = {}
        for path in [*self._brokers, *self._folders()]:
            journal = self._known.get(path)
            if journal is None or not _isStill(journal):
                journal = RemoteJournal(self._brokers[path]) if path in self._brokers else JournalFiles(path)
            self._known[path] = journal
            if journal.id in found and found[journal.id].path != path:
                raise OptionRefused(f"{found[journal.id].path} and {path} are the same journal")
            found[journal.id] = journal
        if not found:
            raise OptionRefused(f"there is no journal in {' or '.join(self._paths)}")
        return dict(sorted(found.items()))

    def partitions(
        self, journal: Journal, start: int, end: int, options: SourceOptions, selection: Selection
    ) -> list[SlicePartition]:
        """Return the partitions of a range of one of these journals."""
        parts = -(-options.minPartitions // max(1, len(self._known)))
        slices = journal.slices(start, end, selection.topics, parts, selection.since, options.partitionBytes)
        return [SlicePartition(slice, self._brokers.get(journal.path)) for slice in slices]

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        for journal in self._known.values():
            if isinstance(journal, RemoteJournal):
                journal.close()

    def _folders(self) -> list[str]:
        folders: list[str] = []
        for path in self._paths:
            path = os.path.abspath(os.path.expanduser(path))
            if not glob.has_magic(path) or os.path.isdir(path):
                folders.append(path)
            else:
                folders += [each for each in sorted(glob.glob(path)) if os.path.exists(f"{each}/identity")]
        return list(dict.fromkeys(folders))


def _isStill(journal: Journal) -> bool:
    """Tell whether a folder still has the same journal; a broker is checked by each response."""
    if isinstance(journal, RemoteJournal):
        return True
    try:
        return readIdentity(Files(), journal.path) == journal.id
    except FileNotFoundError:
        return False
    except OSError as error:
        raise JournalError(f"the journal in {journal.path} cannot be read: {errorText(error)}") from error


def read(
    partition: InputPartition | None,
    columns: Sequence[str],
    selection: Selection,
    failOnDataLoss: bool,
    decoding: Decoding | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition; none for the empty partition that Spark adds if there are no others. Raises
    RecordsMissing if records are missing, and ``failOnDataLoss`` is set.
    """
    freezeImports()
    if not isinstance(partition, SlicePartition):
        return
    yield from decoded(records(partition, needed(columns), selection, failOnDataLoss, []), columns, decoding)


def records(
    partition: SlicePartition,
    columns: Sequence[str],
    selection: Selection,
    failOnDataLoss: bool,
    missing: list[Missing],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition, and add to ``missing`` which ones are; raises as :func:`read`."""
    tell = missingReporter(partition.slice.journal, failOnDataLoss)

    def miss(found: Missing) -> None:
        tell(found)
        missing.append(found)

    if partition.broker is not None:
        return readRemote(partition.slice, partition.broker, columns, selection, miss)
    return readSlice(partition.slice, columns, selection, miss)


def missingReporter(journal: str, failOnDataLoss: bool) -> Callable[[Missing], None]:
    """Return a callback that raises or logs missing records."""

    def report(missing: Missing) -> None:
        reportLoss(f"journal {journal}, {missing}", missing.lost and failOnDataLoss)

    return report
