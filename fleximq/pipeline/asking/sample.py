"""A look into journals without Spark: which topics there are, and some of their payloads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.files.selection import Selection
from fleximq.pipeline.payloads.inference import inferred
from fleximq.pipeline.reader.journals import Journals, read
from fleximq.pipeline.reader.options import SourceOptions

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


def isThere(options: SourceOptions, topic: str) -> bool:
    """Tell whether a topic has any record."""
    only = replace(options, topics=options.topics.only([topic]))
    return any(len(batch) for batch in batches(only, ["offset"]))


def topicsOf(options: SourceOptions) -> list[str]:
    """Return the names of all topics that have a record, sorted."""
    found: set[str] = set()
    for batch in batches(options, ["topic"]):
        found.update(pc.unique(batch.column("topic")).to_pylist())
    return sorted(found)


def schemaOf(options: SourceOptions, format: str, topic: str | None = None) -> pa.Schema:
    """Return the columns that the first payloads of a topic, or of all, have in this format; none if there are none."""
    only = options if topic is None else replace(options, topics=options.topics.only([topic]))
    schema, looked = pa.schema([]), 0
    for batch in batches(only, ["value", "dialect", "content"]):
        part = batch.slice(0, SAMPLE - looked)
        value, dialect, content = part.columns
        schema = inferred(format, value, schema, dialects=dialect, contents=content)
        looked += len(part)
        if looked >= SAMPLE:
            break
    return schema
