"""The records that the journals of some folders have at one moment."""

import glob
import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from fleximq.errors import JournalError
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.files.journal_files import JournalFiles, OffsetBounds, readSlice
from fleximq.pipeline.files.selection import Selection, Slice, Topics
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.payloads.schema_inference import inferred

#: Number of payloads of a journal from which columns are inferred.
SAMPLE = 2000
#: The options that read on where records are missing.
_READS_ON = "--allow-data-loss reads on"


class LocalJournals:
    """The journals in folders or globs of folders; of copies, as nodes of a cluster have, the one with the most
    records. All queries see the records that exist now. ``missing`` is called with records that cannot be read; by
    default they raise JournalError. Raises OptionRefused if there is no journal, and JournalError.
    """

    def __init__(self, folders: Sequence[str], missing: Callable[[Missing], None] | None = None) -> None:
        best: dict[str, JournalFiles] = {}
        for folder in dict.fromkeys(found for each in folders for found in _expanded(each)):
            journal = JournalFiles(folder)
            known = best.setdefault(journal.id, journal)
            if known is not journal and journal.end().offset > known.end().offset:
                best[journal.id] = journal
        if not best:
            raise OptionRefused(f"there is no journal in {' or '.join(folders)}")
        self.bounds: list[tuple[JournalFiles, OffsetBounds]] = [(best[key], best[key].bounds()) for key in sorted(best)]
        self._missing = missing or _refuse

    def slices(self, select: Callable[[OffsetBounds], Selection]) -> list[tuple[Slice, Selection]]:
        """Return the parts of the journals to read; ``select`` returns the records that are wanted of each."""
        found = []
        for journal, bounds in self.bounds:
            wanted = select(bounds).within(*bounds)
            parts = journal.slices(wanted.start, wanted.end, wanted.topics, since=wanted.since)
            found += [(part, wanted) for part in parts]
        return found

    def read(self, slices: Sequence[tuple[Slice, Selection]], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of some slices, in batches of about 4 MiB."""
        for part, wanted in slices:
            yield from readSlice(part, columns, wanted, self._missing)

    def has(self, topic: str) -> bool:
        """Tell whether a topic has any record."""
        slices = self.slices(lambda bounds: Selection(Topics(names=frozenset([topic]))))
        return any(len(batch) for batch in self.read(slices, ["offset"]))

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        every = Topics()
        return sorted({name for journal, _ in self.bounds for name in journal.topics() if name in every})

    def inferred(self, payloadFormat: str, topics: Topics, definition: str) -> pa.Schema:
        """Return the columns of the first payloads; none if no payload is of the format."""
        schema = pa.schema([])
        looked = 0
        for batch in self.read(self.slices(lambda bounds: Selection(topics)), ["value", "dialect", "content"]):
            values, dialects, contents = batch.slice(0, SAMPLE - looked).columns
            schema = inferred(
                payloadFormat, values, schema, dialects=dialects, contents=contents, definition=definition
            )
            looked += len(values)
            if looked >= SAMPLE:
                break
        return schema


def _expanded(folder: str) -> list[str]:
    path = os.path.abspath(os.path.expanduser(folder))
    return sorted(glob.glob(path)) if glob.has_magic(path) and not os.path.exists(path) else [path]


def _refuse(missing: Missing) -> None:
    raise JournalError(f"{missing}; {_READS_ON}")
