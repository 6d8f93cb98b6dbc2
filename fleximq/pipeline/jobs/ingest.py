"""``fleximq-pipeline ingest``: topics become tables of a lake, for ever or until all is in, each message once.

What the tables are and what is promised: docs/pipeline-lake.rst.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import makedirs
from os.path import abspath, expanduser
from typing import TYPE_CHECKING, Any

from fleximq.config import option_values
from fleximq.pipeline.command.job import (
    Job,
    JobContext,
    addSource,
    checkSource,
    counted,
    duration,
    interval,
    option,
    place,
    sourceOptions,
    starting,
)
from fleximq.pipeline.errors import OptionRefused

if TYPE_CHECKING:
    from fleximq.pipeline.lag import Reporter
    from fleximq.pipeline.lake.table.table_spec import TableSpec

FORMATS = ("parquet", "delta", "iceberg")
#: About so many bytes of journals make a batch, and so many of them a task, unless something else is said.
BATCH_BYTES, TASK_BYTES = 1 << 30, 32 << 20
_BROKER = ("url", "token", "caFile", "certFile", "keyFile")


def prepare(parser: ArgumentParser) -> None:
    """Add the options."""
    addSource(parser)
    _addTables(parser.add_argument_group("what it becomes"))
    _addPace(parser.add_argument_group("how it goes on"))


def _addTables(group: Any) -> None:
    text = option_values.text
    option(group, "--lake", read=text, metavar="FOLDER", help="the folder in which each table has its own")
    option(
        group,
        "--table",
        read=_table,
        action="append",
        metavar="NAME=PATTERN[,PATTERN][:FORMAT]",
        help="a table of the topics that match, payloads read as messagepack, json, text or raw (raw); may be "
        "repeated; without any, all topics become the table 'messages'",
    )
    option(group, "--decode", read=text, metavar="FORMAT", help="how payloads are read where a table does not say it")
    option(
        group,
        "--schema",
        read=text,
        metavar="DDL",
        help="the columns of payloads, where a table does not say it, e.g. 'at TIMESTAMP, celsius DOUBLE'; without "
        "it they are found out",
    )
    option(group, "--format", read=_format, default="parquet", metavar="FORMAT", help=f"{', '.join(FORMATS)} (parquet)")


def _addPace(group: Any) -> None:
    text = option_values.text
    option(
        group,
        "--checkpoint",
        read=text,
        metavar="FOLDER",
        help="where Spark remembers what is done (_fleximq/checkpoint in the lake)",
    )
    option(
        group,
        "--trigger",
        read=duration,
        default=1_000_000,
        metavar="TIME",
        help="how often it looks for messages (1s)",
    )
    option(group, "--once", action="store_true", help="end when all is in that is there now")
    option(group, "--max-offsets", read=counted, metavar="NUMBER", help="the most messages of a batch")
    option(
        group,
        "--max-bytes",
        read=option_values.size,
        default=BATCH_BYTES,
        metavar="SIZE",
        help="about the most bytes of journals of a batch (1GiB)",
    )
    option(
        group,
        "--starting",
        read=starting,
        default="earliest",
        metavar="WHERE",
        help="where it begins the first time: earliest, latest or an offset (earliest)",
    )
    option(
        group,
        "--allow-data-loss",
        action="store_true",
        help="go on where messages are damaged, or were removed before they could be read; they are gaps then",
    )
    option(group, "--consumer-group", read=text, metavar="NAME", help="let the brokers know how far it is, as NAME")
    option(
        group, "--lag-url", read=place, metavar="URL", help="the broker to tell, where its journal is read as folder"
    )


def _table(name: str, written: object) -> "TableSpec":
    from fleximq.pipeline.lake.table.table_spec import tableOf

    return tableOf(name, written)


def _format(name: str, written: object) -> str:
    text = option_values.text(name, written)
    if text not in FORMATS:
        raise OptionRefused(f"{name} is {text!r}, but must be one of {', '.join(FORMATS)}")
    return text


def run(chosen: Namespace, run: JobContext) -> None:
    """Ingest until told to stop, or until all is in.

    :raises OptionRefused: an option is missing, or cannot be.
    :raises LakeRefused: a table cannot be written, or is not what it should be.
    """
    if not chosen.lake:
        raise OptionRefused("--lake FOLDER is needed: it says where the tables go")
    from fleximq.pipeline.lake.ingest_driver import TableIngest
    from fleximq.pipeline.lake.ingest_stream import Ingest

    lake = abspath(expanduser(chosen.lake))
    specs = _tables(chosen)
    options = _source(chosen, specs)
    # Before there are folders of tables: what was misspelled, or a Java that is not there, is to leave nothing behind.
    checkSource(options)
    run.session()
    with ExitStack() as held:
        checkpoint = chosen.checkpoint or held.enter_context(_ownCheckpoint(lake))
        feeding = held.enter_context(TableIngest(lake, specs, {"format": chosen.format}, chosen.allow_data_loss))
        ingest = Ingest(feeding, checkpoint, run, _reporter(chosen, options))
        try:
            ingest.start(options, None if chosen.once else interval(chosen.trigger))
            ingest.follow()
        finally:
            ingest.end()


@contextmanager
def _ownCheckpoint(lake: str) -> Iterator[str]:
    """Hold the lake's own checkpoint for one query."""
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.table.lock import feeding

    with ExitStack() as held:
        try:
            makedirs(f"{lake}/_fleximq", exist_ok=True)
            held.enter_context(feeding(lake))
        except OSError as error:
            raise LakeRefused(f"the lake {lake} cannot be written: {(error.strerror or str(error)).lower()}") from error
        except LakeRefused as error:
            raise LakeRefused(
                f"the lake {lake} is fed by another ingest: a second one needs other tables and a --checkpoint of its "
                "own"
            ) from error
        yield f"{lake}/_fleximq/checkpoint"


def _tables(chosen: Namespace) -> "list[TableSpec]":
    from fleximq.pipeline.lake.table.table_spec import TableSpec

    specs = [_completed(spec, chosen.decode, chosen.schema) for spec in chosen.table or [TableSpec("messages")]]
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise OptionRefused(f"--table names {name!r} twice")
    return specs


def _completed(spec: "TableSpec", decode: str | None, schema: str | None) -> "TableSpec":
    """Return a table with what is said for all of them, where it says nothing itself."""
    if decode is not None and not spec.isSaid:
        spec = replace(spec, decode=decode)
    # What is said to be raw has no columns, whatever the others have.
    isPlain = spec.isSaid and spec.decode == "raw"
    return spec if schema is None or spec.schema or isPlain else replace(spec, schema=schema)


def _source(chosen: Namespace, specs: "list[TableSpec]") -> dict[str, str]:
    """Return the options of the source of the stream."""
    from fleximq.pipeline.lake.table.table_spec import allWanted

    options = sourceOptions(chosen)
    patterns = allWanted(specs)
    if patterns and not {"subscribe", "topics"} & set(options):
        options["topics"] = ",".join(patterns)
    options |= {
        "startingOffsets": chosen.starting,
        "maxBytesPerTrigger": str(chosen.max_bytes),
        "partitionBytes": str(TASK_BYTES),
        "failOnDataLoss": str(not chosen.allow_data_loss).lower(),
    }
    if chosen.max_offsets:
        options["maxOffsetsPerTrigger"] = str(chosen.max_offsets)
    if "path" in options:
        options = {name: value for name, value in options.items() if name not in _BROKER}
    return options


def _reporter(chosen: Namespace, options: Mapping[str, str]) -> "Reporter | None":
    """Return what tells brokers how far the ingest is."""
    if chosen.consumer_group is None:
        return None
    from fleximq.pipeline.broker_link import Place
    from fleximq.pipeline.command.job import brokerOptions
    from fleximq.pipeline.lag import Reporter

    brokers = brokerOptions(chosen)
    urls = [chosen.lag_url] if chosen.lag_url else chosen.url
    if not urls:
        raise OptionRefused("--consumer-group needs --url or --lag-url: the broker that is told")
    return Reporter(chosen.consumer_group, [Place.of(brokers, url) for url in urls])


INGEST = Job("ingest", "Keep topics as lake tables, once or for ever.", prepare, run)
