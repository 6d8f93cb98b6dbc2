"""A look into journals, and into what is sealed of them, without Spark: which topics there are, and some payloads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.files.selection import Selection, Topics
from fleximq.pipeline.lake.sealed_segments import journalsIn, sealedFiles
from fleximq.pipeline.payloads.schema_inference import inferred
from fleximq.pipeline.reader.journals import Journals, read
from fleximq.pipeline.reader.source_options import SourceOptions

#: So many payloads of a topic are looked at to find out what is in them.
SAMPLE = 2000


def batches(options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns of all records that these options choose, from the first on, those of a journal in order.

    Damage is passed over: what is there is looked at.

    :raises PipelineError: or JournalError, OSError: a journal cannot be read.
    """
    journals = Journals(options)
    wanted = Selection(topics=options.topics)
    try:
        for journal in journals.find().values():
            bounds = journal.bounds()
            for partition in journals.partitions(journal, bounds.first, bounds.next, options, wanted):
                yield from read(partition, columns, wanted.within(bounds.first, bounds.next), False)
    finally:
        journals.close()


def sealedBatches(folder: str, topics: Topics, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns of all records of these topics that are sealed, those of a journal in order.

    :raises PipelineError: they cannot be read.
    """
    for id in journalsIn(folder):
        for file in sealedFiles(folder, id):
            try:
                yield from _ofFile(file.path, topics, columns)
            except (OSError, pa.ArrowInvalid) as error:
                raise PipelineError(f"the sealed history {file.path} cannot be read: {error}") from error


def _ofFile(path: str, topics: Topics, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=list(dict.fromkeys(["topic", *columns]))):
            names = batch.column("topic")
            wanted = [name for name in pc.unique(names).to_pylist() if name in topics]
            if wanted:
                yield batch.filter(pc.is_in(names, pa.array(wanted, pa.string()))).select(columns)


def _looks(options: SourceOptions, columns: Sequence[str], sealed: str | None) -> list[Iterator[pa.RecordBatch]]:
    """Return what there is: what is sealed, where that is asked too, and what the journals have."""
    kept = batches(options, columns)
    return [kept] if sealed is None else [sealedBatches(sealed, options.topics, columns), kept]


def isThere(options: SourceOptions, topic: str, sealed: str | None = None) -> bool:
    """Tell whether a topic has any record.

    :param sealed: the folder of sealed history, which counts as well.
    """
    only = replace(options, topics=options.topics.only([topic]))
    return any(len(batch) for each in _looks(only, ["offset"], sealed) for batch in each)


def topicsOf(options: SourceOptions, sealed: str | None = None) -> list[str]:
    """Return the names of all topics that have a record, sorted."""
    found: set[str] = set()
    for each in _looks(options, ["topic"], sealed):
        for batch in each:
            found.update(pc.unique(batch.column("topic")).to_pylist())
    return sorted(found)


def schemaOf(options: SourceOptions, format: str, topic: str | None = None, sealed: str | None = None) -> pa.Schema:
    """Return the columns that the first payloads of a topic, or of all, have in this format; none if there are none.

    Where there is sealed history as well, the first ones of either are looked at, so one schema fits both.
    """
    only = options if topic is None else replace(options, topics=options.topics.only([topic]))
    schema = pa.schema([])
    for each in _looks(only, ["value", "dialect", "content"], sealed):
        looked = 0
        for batch in each:
            part = batch.slice(0, SAMPLE - looked)
            value, dialect, content = part.columns
            schema = inferred(format, value, schema, dialects=dialect, contents=content)
            looked += len(part)
            if looked >= SAMPLE:
                break
    return schema
