"""``fleximq sql QUERY``: SQL over a journal or a lake in this process, by DuckDB; without Spark and Java."""

import sys
from argparse import ArgumentTypeError, Namespace
from importlib.abc import MetaPathFinder

from fleximq.cli.command import argument, command, switch
from fleximq.cli.output import jsonOption, say
from fleximq.errors import JournalError, systemReason


class _WithoutPandas(MetaPathFinder):
    """Hides pandas in this process: pyarrow and DuckDB import it if they can, which takes longer than most queries."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=fullname)


def _limit(written: str) -> int:
    number = int(written) if written.isascii() and written.isdigit() else 0
    if not number:
        raise ArgumentTypeError(f"{written!r} is not a number of rows: at least 1")
    return number


@command(
    "sql",
    argument("query", "QUERY", "e.g. 'select topic, count(*) from messages group by topic'"),
    argument("--journal", "FOLDER", "the folder of a journal, or a glob; repeatable", action="append"),
    argument("--lake", "FOLDER", "the folder of a lake: its tables, by their names"),
    argument("--table", "NAME=TOPICS[:FORMAT]", "a table of topics and their payloads; repeatable", action="append"),
    argument(
        "--decode", "FORMAT", "replace value by columns of payloads: messagepack, json, text, raw, avro:FILE, ..."
    ),
    argument("--schema", "DDL", "their columns; inferred by default"),
    argument("--limit", "ROWS", "the most rows that are written; 1000 for a table by default", type=_limit),
    jsonOption(),
    switch("--csv", "CSV, in which null is empty"),
    switch("--allow-data-loss", "continue after messages that are damaged or removed"),
    switch("--allow-files", "let the query read and write files and URLs"),
)
def sql(arguments: Namespace) -> int:
    """Ask a journal or a lake in SQL, without Spark (needs the extra sql)."""
    if arguments.json and arguments.csv:
        say("fleximq: --json and --csv exclude each other")
        return 1
    sys.meta_path.insert(0, _WithoutPandas())
    try:
        from fleximq.pipeline.errors import PipelineError
        from fleximq.pipeline.local_query.command import QueryRequest, runQuery
    except ImportError as error:
        say(f"fleximq: DuckDB or pyarrow is not installed ({error.msg}): pip install '.[sql]' in a clone of FlexiMQ")
        return 1
    request = QueryRequest(
        arguments.query,
        tuple(arguments.journal or ()),
        arguments.lake,
        arguments.decode,
        arguments.schema,
        "json" if arguments.json else "csv" if arguments.csv else "table",
        arguments.limit,
        arguments.allow_data_loss,
        arguments.allow_files,
        tuple(arguments.table or ()),
    )
    try:
        runQuery(request, sys.stdout, say)
        return 0
    except BrokenPipeError:
        raise
    except (PipelineError, JournalError) as error:
        words = str(error)
    except OSError as error:
        words = f"{error.filename or 'the query'}: {systemReason(error)}"
    say(f"fleximq: {words}")
    return 1
