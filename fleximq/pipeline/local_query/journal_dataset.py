"""A journal as a dataset of Arrow, which DuckDB asks for the columns and rows of each query.

DuckDB calls ``scanner`` with the columns that it needs and the conditions that rows must satisfy, and takes batches
from the result one by one, so a journal may be larger than memory. It does not check the conditions again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fleximq.config.option_values import formattedSize
from fleximq.pipeline.files.schema import COLUMNS, SCHEMA
from fleximq.pipeline.files.selection import Topics
from fleximq.pipeline.local_query.filter_scope import selectionOf
from fleximq.pipeline.local_query.local_journals import LocalJournals
from fleximq.pipeline.reader.decoded_columns import Decoding, decoded, needed

#: Bytes of a journal from which Spark, with all cores, is worth its start.
LARGE = 8 << 30
#: The columns that are not of payloads.
_BESIDE = tuple(name for name in COLUMNS if name != "value")
_MADE = ("decoded", "error")


class _Stream:
    """The batches of one use of a table."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)


class JournalDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of some topics. With ``decoding``, the columns of payloads replace ``value``, as the job ``sql`` of
    the pipeline has them. ``notice`` is called with a sentence before much is read. An error while reading is in
    ``failure``, since DuckDB passes on its text only.
    """

    def __init__(
        self, journals: LocalJournals, topics: Topics, decoding: Decoding | None, notice: Callable[[str], object]
    ) -> None:
        # The constructor of the base refuses to be called; DuckDB needs no more than the methods here.
        self._journals = journals
        self._topics = topics
        self._decoding = decoding
        self._notice = notice
        self._own, self._schema = _schema(decoding)
        self.failure: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **more: Any,
    ) -> _Stream:
        """Return the rows that satisfy a condition, with these columns."""
        wanted = self._schema.names if columns is None else list(columns)
        # A condition may name columns that the query does not need otherwise.
        named = "" if filter is None else str(filter)
        read = [name for name in self._schema.names if name in wanted or name in named]
        slices = self._journals.slices(lambda bounds: selectionOf(filter, self._topics, *bounds, self._schema))
        size = sum(part.bytes for part, _ in slices)
        if size >= LARGE:
            self._notice(
                f"reading up to {formattedSize(size >> 20 << 20)} of the journal with one core; fleximq-pipeline sql "
                "reads with all, and a table of a lake needs a fraction of the time"
            )
        schema = pa.schema([self._schema.field(name) for name in wanted])
        return _Stream(schema, self._rows(slices, read, wanted, filter))

    def _rows(
        self, slices: Any, read: list[str], wanted: list[str], condition: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches(slices, read):
                if condition is None:
                    yield batch.select(wanted)
                else:
                    yield from pa.Table.from_batches([batch]).filter(condition).select(wanted).to_batches()
        except Exception as error:
            self.failure = error
            raise

    def _batches(self, slices: Any, read: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the slices' rows."""
        made = [name for name in read if name not in SCHEMA.names or (self._decoding and name not in _BESIDE)]
        if not made:
            yield from self._journals.read(slices, read)
            return
        columns = [*(name for name in read if name in _BESIDE), *_MADE]
        for batch in decoded(self._journals.read(slices, needed(columns)), columns, self._decoding):
            fields = batch.column("decoded")
            yield pa.record_batch(
                [pc.struct_field(fields, [name]) if name in self._own else batch.column(name) for name in read],
                schema=pa.schema([self._schema.field(name) for name in read]),
            )


def _schema(decoding: Decoding | None) -> tuple[frozenset[str], pa.Schema]:
    """Return the fields of payloads that are columns, and all columns; a field with the name of another column is in
    the column ``decoded``.
    """
    if decoding is None:
        return frozenset(), SCHEMA
    types = decoding.types()
    taken = {name.lower() for name in (*_BESIDE, *_MADE)}
    own = [field for field in types["decoded"] if field.name.lower() not in taken]
    fields = [SCHEMA.field(name) for name in _BESIDE] + own
    if len(own) < types["decoded"].num_fields:
        fields.append(pa.field("decoded", types["decoded"]))
    return frozenset(field.name for field in own), pa.schema([*fields, ("error", types["error"])])
