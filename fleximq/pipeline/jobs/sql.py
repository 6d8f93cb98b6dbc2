"""``fleximq-pipeline sql "select ..."``: runs a query over topics, and prints the result."""

from argparse import ArgumentParser, Namespace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING

from fleximq.config import option_values
from fleximq.pipeline.command import job
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.lake.locations import lakePath
from fleximq.pipeline.lake.table.file_names import tableNames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fleximq.pipeline.query.query_tables import QueryTable

#: Default maximum rows of a table; CSV and JSON have all.
LIMIT = 1000
#: The formats for payloads, as in the source's option.
_DECODED = ("messagepack", "json", "text", "raw", "avro", "protobuf", "json-schema", "registry")


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="e.g. 'select topic, count(*) from messages group by topic'")
    job.addSource(parser, mayLose=True)
    add = partial(job.option, parser)
    add("--sealed", "FOLDER", "sealed history, read with the journal")
    add("--lake", "FOLDER", "lake tables, by their names")
    words = "lake tables as they were before this offset; one with upsert from another with all of its changes"
    add("--as-of", "OFFSET", words, job.positiveNumber)
    words = "a table of the topics that match, payloads read as --decode has it; may be repeated"
    add("--table", "NAME=PATTERN[,PATTERN][:FORMAT]", words, _table, action="append")
    words = (
        "decode payloads into columns: messagepack, json, text, raw, avro:FILE, protobuf:FILE,MESSAGE, "
        "json-schema:FILE or registry:URL; text by default"
    )
    add("--decode", "FORMAT", words, _format)
    add("--schema", "DDL", "their columns; inferred by default")
    add("--format", None, "the output format", job.lowered, choices=("table", "csv", "json"), default="table")
    add("--limit", "ROWS", f"the most rows that are written; {LIMIT} for a table by default", job.positiveNumber)


def _format(name: str, written: object) -> str:
    word, colon, rest = option_values.text(name, written).partition(":")
    if word.lower() not in _DECODED:
        raise OptionRefused(f"{name} is {written!r}, but must be one of {', '.join(_DECODED)}")
    return f"{word.lower()}{colon}{rest}"


def _table(name: str, written: object) -> "QueryTable":
    from fleximq.pipeline.query.query_tables import queryTable

    return queryTable(name, written)


def _run(arguments: Namespace, run: JobRun) -> None:
    options = _source(arguments)
    if options is not None and arguments.sealed is None:
        # Sealed history may have outlived its journal, and decoding without a schema has to sample payloads.
        hasSchema = arguments.schema is not None
        job.checkSource({name: value for name, value in options.items() if name != "decode" or hasSchema})
    if arguments.as_of is not None and arguments.lake is None:
        raise OptionRefused("--as-of belongs to --lake, which is missing")
    if arguments.lake is not None:
        tableNames(_path(arguments.lake) or "")
    from fleximq.pipeline.query.query_tables import byName

    own = byName(arguments.table)
    # A session of its own isolates settings and tables.
    # Tables of a lake are read by Java.
    spark = run.session(quick=arguments.lake is None).newSession()

    from fleximq.pipeline import optimizer_rule
    from fleximq.pipeline.query.query_output import show
    from fleximq.pipeline.query.tables import Tables
    from fleximq.pipeline.source import FlexiMQSource

    spark.dataSource.register(FlexiMQSource)
    try:
        optimizer_rule.install(spark)
    except PipelineError as error:
        run.writeLine(f"{error}; the query reads all columns and rows")
    # Names of topics have dots, and shells treat backticks as commands.
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    # A job of Spark to list folders pays for distant stores, not for a lake of thousands of topics on this machine.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000")
    limit = LIMIT if arguments.limit is None and arguments.format == "table" else arguments.limit
    finished = _cancelled(spark, run.stopping)
    try:
        tables = Tables(spark, options, _path(arguments.sealed), _path(arguments.lake), arguments.as_of, own)
        answer = tables.ask(arguments.query)
        with run.notice("running the query"):
            rows = (answer if limit is None else answer.limit(limit + 1)).toArrow()
    finally:
        finished.set()
    if not rows.num_columns:
        return
    show(rows if limit is None else rows.slice(0, limit), arguments.format, run.out)
    if arguments.format == "table":
        number = rows.num_rows
        isMore = limit is not None and number > limit
        shown = f"the first {limit} rows; --limit shows more" if isMore else f"{number} row{'' if number == 1 else 's'}"
        run.out.write(f"({shown})\n")


def _source(arguments: Namespace) -> dict[str, str] | None:
    """Return the options of the source, None if only a lake is queried; raises OptionRefused."""
    if arguments.schema is not None and arguments.decode is None:
        raise OptionRefused("--schema belongs to --decode, which is missing")
    if arguments.lake is not None and not arguments.journal and not arguments.url:
        return None
    options = job.sourceOptions(arguments)
    if arguments.decode is not None:
        options["decode"] = arguments.decode
    if arguments.schema is not None:
        options["decodeSchema"] = arguments.schema
    return options


def _path(folder: str | None) -> str | None:
    return None if folder is None else lakePath(folder)


def _cancelled(spark: "SparkSession", stopping: Event) -> Event:
    """Cancel Spark's jobs when the run is stopped; return an event to set when the query has ended."""
    finished = Event()

    def watch() -> None:
        while not finished.wait(0.1):
            if stopping.is_set():
                spark.sparkContext.cancelAllJobs()

    Thread(target=watch, daemon=True).start()
    return finished


SQL = job.Job(_prepare, _run, brief=True)
