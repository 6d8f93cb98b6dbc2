"""The journals that the options name: in folders, or behind brokers. Those with the same journal are copies at the
nodes of a cluster. Any of them can be read; one that has less than another, or than is needed, is passed over or waited
for.
"""

import gc
import glob
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from fleximq.errors import JournalError, systemReason
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import readIdentity
from fleximq.pipeline.broker_link import TIMEOUT, BrokerAddress
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.files.journal_files import JournalFiles, readSlice
from fleximq.pipeline.files.selection import FOREVER, Selection, Slice
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.reader.broker_journal import RemoteJournal, readRemote
from fleximq.pipeline.reader.decoded_columns import Decoding, decoded, needed
from fleximq.pipeline.reader.offsets import Points, StartKind, reportLoss
from fleximq.pipeline.reader.source_options import SourceOptions
from fleximq.pipeline.wait_notice import waitNotice

#: Spark sets this environment variable in processes that serve more than one task.
_SERVES_MANY = "SPARK_REUSE_WORKER"
_calls = count()


def freezeImports() -> None:
    """Exclude imports from garbage collection, which takes 20 ms after each task of Spark's processes. Called at the
    start of a task, and effective twice: pyarrow imports pandas on the first use of numpy's arrays, so in the first
    task.
    """
    if _SERVES_MANY in os.environ and next(_calls) < 2:
        gc.collect()
        gc.freeze()


Journal = JournalFiles | RemoteJournal
#: A range of offsets for each journal, by its id.
Ranges = Mapping[str, tuple[int, int]]
_ALL: Ranges = {}
_log = logging.getLogger("fleximq.pipeline")
#: Seconds between two looks at copies that lag.
_PAUSE = 0.1


@dataclass
class SlicePartition(InputPartition):
    """One slice of a journal, read through ``broker``, or from its folder or one of the ``others`` with the same."""

    slice: Slice
    broker: BrokerAddress | None = None
    others: Sequence[str] = ()


class Journals:
    """The journals that options name; used by one thread."""

    def __init__(
        self,
        options: SourceOptions,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._now = now
        self._paths = options.paths
        self._brokers = {place.url: place for place in options.brokers}
        self._known: dict[str, Journal] = {}

    def find(self, ranges: Ranges = _ALL) -> dict[str, Journal]:
        """Return the journals that exist now, by id; of several copies the one that has most of a range of offsets.
        Globs are expanded again at each call. Raises OptionRefused if none was found, JournalError if a named folder is
        no journal, PipelineError if a broker is away, refuses, or has no journal.
        """
        found: dict[str, list[Journal]] = {}
        folders = [folder for path in self._paths for folder in _folders(os.path.abspath(os.path.expanduser(path)))]
        for path in dict.fromkeys([*self._brokers, *folders]):
            try:
                journal = self._at(path)
            except JournalError:
                if not self._copiesOf(path):
                    raise
                continue
            self._known[path] = journal
            found.setdefault(journal.id, []).append(journal)
        if not found:
            raise OptionRefused(f"there is no journal in {' or '.join(self._paths)}")
        return {
            journalId: self._best(found[journalId], *ranges.get(journalId, (FOREVER, FOREVER)))
            for journalId in sorted(found)
        }

    def covering(self, ranges: Ranges) -> dict[str, Journal]:
        """Return the journals, after copies that lag have these ranges; raises PipelineError after 30 seconds."""
        deadline = self._now() + TIMEOUT
        with waitNotice(lambda: f"waiting for copies that lag, for {TIMEOUT:g} s at most", _log.warning):
            while True:
                found = self.find(ranges)
                behind = [
                    journalId
                    for journalId in ranges
                    if journalId in found and self._lags(found[journalId], ranges[journalId][1])
                ]
                if not behind:
                    return found
                if self._now() >= deadline:
                    place, nextOffset, end = found[behind[0]].path, found[behind[0]].end().offset, ranges[behind[0]][1]
                    raise PipelineError(f"the copy in {place} lags: its next offset is {nextOffset}, not {end} yet")
                self._sleep(_PAUSE)

    def _lags(self, journal: Journal, end: int) -> bool:
        isCopy = journal.mayLag or self._copiesOf(journal.path)
        return bool(isCopy) and journal.end().offset < end

    def having(self, points: Points | None) -> dict[str, Journal]:
        """Return the journals; wait as :meth:`covering` for offsets that are named."""
        found = self.find()
        named = [] if points is None else [(journalId, points.of(journalId)) for journalId in found]
        wanted = {journalId: (point.value, point.value) for journalId, point in named if point.kind is StartKind.OFFSET}
        return self.covering(wanted) if wanted else found

    def _at(self, path: str) -> Journal:
        known = self._known.get(path)
        if path in self._brokers:
            # Each response is checked for another journal.
            return RemoteJournal(self._brokers[path]) if known is None else known
        try:
            if known is not None and readIdentity(Files(), path) == known.id:
                return known
        except FileNotFoundError:
            pass
        except OSError as error:
            raise JournalError(f"the journal in {path} cannot be read: {systemReason(error)}") from error
        return JournalFiles(path)

    def _copiesOf(self, path: str) -> list[str]:
        """Return the other folders that have, or had, the same journal."""
        journalId = self._known[path].id if path in self._known else None
        return [other for other, journal in self._known.items() if journal.id == journalId and other != path]

    def _best(self, copies: Sequence[Journal], start: int, end: int) -> Journal:
        if len(copies) == 1:
            return copies[0]
        remote = [each for each in copies if isinstance(each, RemoteJournal)]
        if remote:
            return self._joined(remote)
        bounds = [journal.bounds() for journal in copies]
        most = max(range(len(copies)), key=lambda at: (min(bounds[at].next, end), -max(bounds[at].first, start)))
        return copies[most]

    def _joined(self, copies: Sequence[RemoteJournal]) -> Journal:
        """Replace brokers with the same journal by one with all of their addresses."""
        places = [self._brokers.pop(each.path) for each in copies]
        for each in copies:
            each.close()
            del self._known[each.path]
        joined = replace(places[0], url=",".join(place.url for place in places))
        self._brokers[joined.url] = joined
        journal = self._known[joined.url] = RemoteJournal(joined)
        return journal

    def partitions(
        self, journal: Journal, start: int, end: int, options: SourceOptions, selection: Selection
    ) -> list[SlicePartition]:
        """Return the partitions of a range of one of these journals."""
        parts = -(-options.minPartitions // max(1, len({each.id for each in self._known.values()})))
        slices = journal.slices(start, end, selection.topics, parts, selection.since, options.partitionBytes)
        others = self._copiesOf(journal.path)
        return [SlicePartition(part, self._brokers.get(journal.path), others) for part in slices]

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        for journal in self._known.values():
            if isinstance(journal, RemoteJournal):
                journal.close()


def _folders(path: str) -> list[str]:
    """Return the folder, or those that match if it is a glob."""
    if not glob.has_magic(path) or os.path.isdir(path):
        return [path]
    return [each for each in sorted(glob.glob(path)) if os.path.exists(f"{each}/identity")]


def read(
    partition: InputPartition | None,
    columns: Sequence[str],
    selection: Selection,
    failOnDataLoss: bool,
    decoding: Decoding | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition, none of the empty one that Spark adds if there are no others. Raises
    RecordsMissing if records are missing, and ``failOnDataLoss`` is set.
    """
    freezeImports()
    if isinstance(partition, SlicePartition):
        yield from decoded(records(partition, needed(columns), selection, failOnDataLoss, []), columns, decoding)


def records(
    partition: SlicePartition,
    columns: Sequence[str],
    selection: Selection,
    failOnDataLoss: bool,
    missing: list[Missing],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition, and add to ``missing`` which ones are; raises as :func:`read`."""

    def miss(found: Missing) -> None:
        reportLoss(f"journal {partition.slice.journal}, {found}", found.lost and failOnDataLoss)
        missing.append(found)

    if partition.broker is not None:
        return readRemote(partition.slice, partition.broker, columns, selection, miss)
    return readSlice(_readable(partition), columns, selection, miss)


def _readable(partition: SlicePartition) -> Slice:
    """Return the slice; of another folder if its own cannot be read any more. All have it at the same positions."""
    part = partition.slice
    for path in (part.path, *partition.others) if partition.others else ():
        with suppress(JournalError, OSError):
            journal = JournalFiles(path)
            if journal.id == part.journal and journal.end().position >= part.limit:
                return part._replace(path=path)
    return part
