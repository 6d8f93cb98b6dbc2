"""``fleximq-pipeline sql "select ..."``: asks the topics a question, and prints the answer."""

import os
from argparse import ArgumentParser, Namespace
from threading import Event, Thread
from typing import TYPE_CHECKING

from fleximq.config import option_values
from fleximq.pipeline.command.job import (
    Job,
    JobContext,
    addSource,
    checkLake,
    checkSource,
    counted,
    option,
    sourceOptions,
)
from fleximq.pipeline.errors import OptionRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The most rows of a table, if nothing is said; CSV and JSON have all.
LIMIT = 1000
_FORMATS = ("table", "csv", "json")
#: How payloads may be decoded, in the words of the source's option.
_DECODED = ("messagepack", "json", "text", "raw")


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="e.g. 'select topic, count(*) from messages group by topic'")
    addSource(parser)
    option(parser, "--sealed", read=option_values.text, metavar="FOLDER", help="sealed history, read with the journal")
    option(parser, "--lake", read=option_values.text, metavar="FOLDER", help="lake tables, by their names")
    option(parser, "--decode", read=_lower, choices=_DECODED, help="turn payloads into columns; text without it")
    option(parser, "--schema", read=option_values.text, metavar="DDL", help="their columns; found by a look without it")
    option(parser, "--format", read=_lower, choices=_FORMATS, default="table", help="how the answer is written")
    option(
        parser,
        "--limit",
        read=counted,
        metavar="ROWS",
        help=f"the most rows that are written; {LIMIT} for a table if nothing is said",
    )


def _lower(name: str, value: object) -> str:
    return option_values.text(name, value).lower()


def _run(chosen: Namespace, run: JobContext) -> None:
    options = _source(chosen)
    if options is not None and chosen.sealed is None:
        # What is sealed may have outlived its journal, and decoding without a schema waits for a look at payloads.
        checkSource({name: value for name, value in options.items() if name != "decode" or chosen.schema is not None})
    if chosen.lake is not None:
        checkLake(_path(chosen.lake) or "")
    # Its own settings and tables are nobody else's.
    spark = run.session().newSession()

    from fleximq.pipeline.query.query_output import show
    from fleximq.pipeline.query.tables import Tables
    from fleximq.pipeline.source import FlexiMQSource

    spark.dataSource.register(FlexiMQSource)
    # Names of topics have dots, and shells take backticks for commands.
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    limit = LIMIT if chosen.limit is None and chosen.format == "table" else chosen.limit
    finished = _cancelled(spark, run.stopping)
    try:
        answer = Tables(spark, options, _path(chosen.sealed), _path(chosen.lake)).ask(chosen.query)
        rows = (answer if limit is None else answer.limit(limit + 1)).toArrow()
    finally:
        finished.set()
    if not rows.num_columns:
        return
    show(rows if limit is None else rows.slice(0, limit), chosen.format, run.out)
    if chosen.format == "table":
        isMore = limit is not None and rows.num_rows > limit
        run.out.write(f"(the first {limit} rows; --limit shows more)\n" if isMore else f"{_rows(rows.num_rows)}\n")


def _source(chosen: Namespace) -> dict[str, str] | None:
    """Return the options of the source; None if only a lake is asked.

    :raises OptionRefused: nothing is to be asked, or what is chosen does not go together.
    """
    if chosen.schema is not None and chosen.decode is None:
        raise OptionRefused("--schema belongs to --decode, which is missing")
    if chosen.lake is not None and not chosen.journal and not chosen.url:
        return None
    options = sourceOptions(chosen)
    if chosen.decode is not None:
        options["decode"] = chosen.decode
    if chosen.schema is not None:
        options["decodeSchema"] = chosen.schema
    return options


def _path(folder: str | None) -> str | None:
    return None if folder is None else os.path.abspath(os.path.expanduser(folder))


def _rows(number: int) -> str:
    return f"({number} row{'' if number == 1 else 's'})"


def _cancelled(spark: "SparkSession", stopping: Event) -> Event:
    """Let what Spark does be cancelled when the run is to end; return what says that it has ended."""
    finished = Event()

    def watch() -> None:
        while not finished.wait(0.1):
            if stopping.is_set():
                spark.sparkContext.cancelAllJobs()

    Thread(target=watch, daemon=True).start()
    return finished


#: The job.
SQL = Job("sql", "Ask the topics a question in SQL, and print the answer.", _prepare, _run, brief=True)
