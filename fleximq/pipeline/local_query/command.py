"""The command ``fleximq sql``, without its parser: opens the tables, runs the query, and writes the result."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

import pyarrow as pa

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.files.slice_reader import Missing
from fleximq.pipeline.lake.locations import lakePath
from fleximq.pipeline.lake.table.file_names import tableNames
from fleximq.pipeline.local_query.local_journals import LocalJournals
from fleximq.pipeline.local_query.local_tables import LocalTables
from fleximq.pipeline.local_query.query import answer
from fleximq.pipeline.query.query_output import show
from fleximq.pipeline.query.query_tables import byName, queryTable

#: Default maximum rows of a table; CSV and JSON have all.
LIMIT = 1000
#: The folder of the broker's service, which is read if none is named.
JOURNAL = "/var/lib/fleximq"


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """The arguments of the command line; ``limit`` is None for the format's own."""

    query: str
    journals: tuple[str, ...] = ()
    lake: str | None = None
    decode: str | None = None
    schema: str | None = None
    format: str = "table"
    limit: int | None = None
    mayLose: bool = False
    files: bool = False
    tables: tuple[str, ...] = ()


def runQuery(request: QueryRequest, out: TextIO, say: Callable[[str], object]) -> None:
    """Run the query, and write its result to ``out``; ``say`` is called with sentences about its progress. Raises
    PipelineError, JournalError and OSError.
    """
    if request.schema is not None and request.decode is None:
        raise OptionRefused("--schema belongs to --decode, which is missing")
    own = byName(queryTable("--table", each) for each in request.tables)
    lake = None if request.lake is None else lakePath(request.lake)
    if lake is not None:
        tableNames(lake)
    journals = _journals(request, say)
    tables = LocalTables(journals, lake, request.decode, request.schema, say, own)
    with answer(request.query, tables, request.files) as rows:
        if rows is None or not len(rows.schema):
            return
        if request.format != "table":
            show(rows if request.limit is None else _first(rows, request.limit), request.format, out)
            return
        limit = request.limit or LIMIT
        table = _first(rows, limit + 1).read_all()
        show(table.slice(0, limit), "table", out)
        isMore = len(table) > limit
        number = f"{len(table)} row{'' if len(table) == 1 else 's'}"
        out.write(f"({f'the first {limit} rows; --limit shows more' if isMore else number})\n")


def _journals(request: QueryRequest, say: Callable[[str], object]) -> LocalJournals | None:
    def told(missing: Missing) -> None:
        say(f"records are missing: {missing}")

    missing = told if request.mayLose else None
    if request.journals:
        return LocalJournals(request.journals, missing)
    if request.lake is not None:
        return None
    if not os.path.isdir(JOURNAL):
        raise OptionRefused(f"--journal FOLDER or --lake FOLDER is needed, since there is no {JOURNAL}")
    return LocalJournals([JOURNAL], missing)


def _first(rows: pa.RecordBatchReader, limit: int) -> pa.RecordBatchReader:
    """Return the first rows; no more batches than they need are taken."""

    def batches() -> Iterator[pa.RecordBatch]:
        left = limit
        while left > 0:
            batch = next(iter(rows), None)
            if batch is None:
                return
            yield batch.slice(0, min(left, len(batch)))
            left -= len(batch)

    return pa.RecordBatchReader.from_batches(rows.schema, batches())
