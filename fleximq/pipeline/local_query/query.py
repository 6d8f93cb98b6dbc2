"""Runs one query with DuckDB, which reads the given tables only: no files, no network, no variables of Python.

DuckDB moves data that exceed its memory to a folder of this process, which is removed at the end.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from fleximq.pipeline.command.memory import shareOfMemory
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.local_query.exact_result import exactRows
from fleximq.pipeline.local_query.local_tables import LocalTables
from fleximq.pipeline.query.table_names import unquoted

#: Rows of a batch of the result.
_ROWS = 10_000
#: The parts of an error of DuckDB: its kind, and the query with a mark below.
_KIND = re.compile(r"^(?:\w+ )+Error: ")
_MARKED = re.compile(r"\n\nLINE \d+: .*", re.DOTALL)
#: The name of a table that DuckDB does not know, or takes for that of a file: ``"orders.json"``.
_MISSING = re.compile(
    r'Catalog Error: Table with name (.+) does not exist!|Permission Error: Cannot access file "(.+)" -'
)
_DOTTED = re.compile(r'Catalog Error: Table with name "(.+)" does not exist because schema')
_BARE_OFFSET = re.compile(r'(?<!")\boffset\b', re.IGNORECASE)
_CLOSED = "file system operations are disabled by configuration"


@contextmanager
def answer(query: str, tables: LocalTables, files: bool = False) -> Iterator[pa.RecordBatchReader | None]:
    """Run a query, and yield its result in batches, None if it has none. ``files``: the query may read and write files
    and URLs. Raises PipelineError, and the errors of the tables.
    """
    opened: dict[str, ds.Dataset] = {}
    with TemporaryDirectory(prefix="fleximq-sql-") as folder, _connection(folder, files) as connection:
        try:
            statements = connection.extract_statements(query)
            if len(statements) != 1:
                raise OptionRefused(f"there are {len(statements)} queries, but must be one")
            relation = _bound(connection, query, tables, opened)
            yield None if relation is None else exactRows(relation, _ROWS)
        except (duckdb.Error, pa.ArrowException) as error:
            failures = [each.failure for each in opened.values() if getattr(each, "failure", None) is not None]
            raise failures[0] if failures else PipelineError(_sentence(error, query)) from error


def _bound(
    connection: duckdb.DuckDBPyConnection, query: str, tables: LocalTables, opened: dict[str, ds.Dataset]
) -> duckdb.DuckDBPyRelation | None:
    """Return the query with all tables that it names, which are added to ``opened``."""
    while True:
        try:
            return connection.sql(query)
        except (duckdb.CatalogException, duckdb.PermissionException) as error:
            if dotted := _DOTTED.match(str(error)):
                # Raises the error for a name without a table first.
                tables.open(dotted[1], query)
                raise unquoted(dotted[1]) from error
            found = _MISSING.match(str(error))
            name = None if found is None else found[1] or found[2]
            if name is None or name in opened or (found and found[2] and not tables.isTable(name)):
                raise
            opened[name] = tables.open(name, query)
            connection.register(name, opened[name])


@contextmanager
def _connection(folder: str, files: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    settings: dict[str, Any] = {
        "enable_external_access": files,
        "autoinstall_known_extensions": files,
        "autoload_known_extensions": files,
        "python_enable_replacements": False,
        "temp_directory": folder,
        "memory_limit": f"{shareOfMemory()}B",
    }
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def _sentence(error: BaseException, query: str) -> str:
    """Return the text of an error of DuckDB as one sentence."""
    text = _MARKED.sub("", str(error))
    said = "; ".join(line.strip(" !.") for line in text.splitlines() if line.strip())
    said = _KIND.sub("", said)
    if isinstance(error, duckdb.ParserException) and _BARE_OFFSET.search(query):
        return f'{said}; the column "offset" must be in double quotes'
    if _CLOSED in said:
        return f"{said.replace(_CLOSED, 'a query may use no files')}; --allow-files permits it"
    return said
