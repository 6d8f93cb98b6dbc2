"""Samples journals and sealed history without Spark, at a few million records a second."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.files.selection import Selection, Topics
from fleximq.pipeline.lake.sealed_segments import journalsIn, sealedFiles
from fleximq.pipeline.payloads.schema_inference import inferred
from fleximq.pipeline.reader.journals import Journals, read
from fleximq.pipeline.reader.source_options import SourceOptions

#: Number of payloads of a topic from which its schema is inferred.
SAMPLE = 2000


def batches(options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield all intact selected records of each journal; raises PipelineError, JournalError or OSError."""
    wanted = Selection(topics=options.topics)
    with closing(Journals(options)) as journals:
        for journal in journals.find().values():
            bounds = journal.bounds()
            for partition in journals.partitions(journal, bounds.first, bounds.next, options, wanted):
                yield from read(partition, columns, wanted.within(bounds.first, bounds.next), False)


def sealedBatches(folder: str, topics: Topics, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns of all sealed records of these topics, for each journal in order; raises PipelineError."""
    for journalId in journalsIn(folder):
        for file in sealedFiles(folder, journalId):
            try:
                with pq.ParquetFile(file.path) as opened:
                    for batch in opened.iter_batches(columns=list(dict.fromkeys(["topic", *columns]))):
                        names = batch.column("topic")
                        wanted = [name for name in pc.unique(names).to_pylist() if name in topics]
                        if wanted:
                            yield batch.filter(pc.is_in(names, pa.array(wanted, pa.string()))).select(columns)
            except (OSError, pa.ArrowInvalid) as error:
                raise PipelineError(f"the sealed history {file.path} cannot be read: {error}") from error


def _looks(options: SourceOptions, columns: Sequence[str], sealed: str | None) -> list[Iterator[pa.RecordBatch]]:
    """Return the batches of sealed history, if requested, and those of the journals."""
    kept = batches(options, columns)
    return [kept] if sealed is None else [sealedBatches(sealed, options.topics, columns), kept]


def isThere(options: SourceOptions, topic: str, sealed: str | None = None) -> bool:
    """Tell whether a topic has any record in the journals or in the folder of sealed history."""
    only = replace(options, topics=options.topics.only([topic]))
    return any(len(batch) for each in _looks(only, ["offset"], sealed) for batch in each)


def topicsOf(options: SourceOptions, sealed: str | None = None) -> list[str]:
    """Return the names of all topics with a record, sorted."""
    found = chain.from_iterable(_looks(options, ["topic"], sealed))
    return sorted({name for batch in found for name in pc.unique(batch.column("topic")).to_pylist()})


def schemaOf(options: SourceOptions, payloadFormat: str, sealed: str | None, definition: str) -> pa.Schema:
    """Return one schema for the first payloads of the topics, journal's and sealed; empty without payloads."""
    schema = pa.schema([])
    for each in _looks(options, ["value", "dialect", "content"], sealed):
        looked = 0
        for batch in each:
            part = batch.slice(0, SAMPLE - looked)
            schema = _inferred(payloadFormat, part, schema, definition)
            looked += len(part)
            if looked >= SAMPLE:
                break
    return schema


def _inferred(payloadFormat: str, rows: pa.RecordBatch, known: pa.Schema, definition: str = "") -> pa.Schema:
    value, dialect, content = rows.columns
    return inferred(payloadFormat, value, known, dialects=dialect, contents=content, definition=definition)


#: The formats to guess for a topic; the first one that fits most payloads is chosen.
_GUESSED = ("messagepack", "json")


@dataclass(slots=True)
class TopicSummary:
    """``bytes`` are those of payloads; times are microseconds since 1970. ``format`` and ``schema`` are guessed."""

    records: int = 0
    bytes: int = 0
    first: int = 0
    last: int = 0
    firstTime: int = 0
    lastTime: int = 0
    format: str = "raw"
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    _looked: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        """Count some records, and store the first few for the guess."""
        offsets = rows.column("offset").to_numpy(zero_copy_only=False)
        times = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        first, last = int(offsets.min()), int(offsets.max())
        lowest, highest = int(times.min()), int(times.max())
        if self.records:
            first, last = min(first, self.first), max(last, self.last)
            lowest, highest = min(lowest, self.firstTime), max(highest, self.lastTime)
        self.first, self.last, self.firstTime, self.lastTime = first, last, lowest, highest
        if (left := SAMPLE - self.records) > 0:
            self._looked.append(rows.select(["value", "dialect", "content"]).slice(0, left))
        self.records += len(rows)
        self.bytes += pc.sum(pc.binary_length(rows.column("value"))).as_py() or 0

    def guess(self) -> None:
        """Guess the format and schema from the stored payloads."""
        for payloadFormat in _GUESSED:
            schema = pa.schema([])
            for rows in self._looked:
                schema = _inferred(payloadFormat, rows, schema)
            if schema.names:
                self.format, self.schema = payloadFormat, schema
                break
        else:
            with suppress(pa.ArrowInvalid):
                for rows in self._looked:
                    rows.column("value").cast(pa.string())
                self.format = "text"
        self._looked = []


COLUMNS = ("topic", "offset", "timestamp", "value", "dialect", "content")


def overview(batches: Iterable[pa.RecordBatch]) -> dict[str, TopicSummary]:
    """Return the summary of each topic, sorted by name, from batches of all records, with :data:`COLUMNS`."""
    topics: dict[str, TopicSummary] = {}
    for batch in batches:
        encoded = pc.dictionary_encode(batch.column("topic"))
        names = encoded.dictionary.to_pylist()
        which = encoded.indices.to_numpy(zero_copy_only=False)
        for place, name in enumerate(names):
            rows = batch if len(names) == 1 else batch.take(pa.array(np.flatnonzero(which == place)))
            topics.setdefault(name, TopicSummary()).add(rows)
    for topic in topics.values():
        topic.guess()
    return dict(sorted(topics.items()))
