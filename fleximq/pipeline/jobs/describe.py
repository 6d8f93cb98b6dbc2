"""``fleximq-pipeline describe``: shows journals, topics, payloads and consumer groups, without Spark."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fleximq.pipeline.command.job import Job, addSource, lowered, option, sourceOptions
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.lake.locations import lakePath
from fleximq.values.printable import jsonLine, printable
from fleximq.values.urls import urlsIn

if TYPE_CHECKING:
    from fleximq.pipeline.files.selection import Selection
    from fleximq.pipeline.reader.journals import SlicePartition

Facts = dict[str, Any]


def _prepare(parser: ArgumentParser) -> None:
    addSource(parser)
    option(parser, "--lake", "FOLDER", "lake tables, described as well")
    option(parser, "--format", None, "the output format", lowered, choices=("table", "json"), default="table")


def _run(arguments: Namespace, run: JobRun) -> None:
    try:
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise PipelineError(
            f"{error.name} is not installed: pip install '.[spark]' in a clone of FlexiMQ installs it"
        ) from error
    facts: Facts = {}
    if arguments.lake is None or arguments.journal or arguments.url:
        facts |= _journals(sourceOptions(arguments), run)
    if arguments.url:
        facts["groups"] = _groups(sourceOptions(arguments))
    if arguments.lake is not None:
        facts["tables"] = list(_tables(lakePath(arguments.lake)))
    if arguments.format == "json":
        run.out.write(jsonLine(facts, indent=2) + "\n")
    else:
        _write(facts, run)


def _journals(given: dict[str, str], run: JobRun) -> Facts:
    """Return the journals and the summaries of their topics; damaged records are reported and skipped."""
    from fleximq.pipeline.files.selection import Selection
    from fleximq.pipeline.payloads.ddl import written
    from fleximq.pipeline.query.journal_sample import overview
    from fleximq.pipeline.reader.journals import Journals
    from fleximq.pipeline.reader.source_options import SourceOptions

    options = SourceOptions.of(given)
    found: list[Facts] = []
    topics: list[Facts] = []
    with closing(Journals(options)) as journals:
        for journalId, journal in journals.find().items():
            first, nextOffset = (bounds := journal.bounds()).first, bounds.next
            found.append({"journal": journalId, "at": journal.path, "first": first, "next": nextOffset})
            wanted = Selection(topics=options.topics).within(first, nextOffset)
            parts = journals.partitions(journal, first, nextOffset, replace(options, partitionBytes=8 << 20), wanted)
            for name, topic in overview(_batches(parts, wanted, f"reading {journal.path}", run)).items():
                numbers = {each: getattr(topic, each) for each in ("records", "bytes", "first", "last")}
                times = {"from": _time(topic.firstTime), "to": _time(topic.lastTime)}
                schema = written(topic.schema) if topic.schema.names else None
                shape = {"format": topic.format, "schema": schema}
                topics.append({"journal": journalId, "topic": name, **numbers, **times, **shape})
    return {"journals": found, "topics": topics}


def _batches(parts: "Sequence[SlicePartition]", wanted: "Selection", words: str, run: JobRun) -> Iterator[Any]:
    """Yield all records of some partitions, and show the progress; ends early if the run is stopped."""
    from fleximq.pipeline.query.journal_sample import COLUMNS
    from fleximq.pipeline.reader.journals import read

    for place, part in enumerate(parts):
        if run.stopping.is_set():
            return
        yield from read(part, COLUMNS, wanted, False)
        run.progress(words, place + 1, len(parts), "parts")


def _groups(options: dict[str, str]) -> list[Facts]:
    from fleximq.pipeline.broker_link import BrokerAddress
    from fleximq.pipeline.lag import groups

    found = [group for url in urlsIn(options["url"]) for group in groups(BrokerAddress.of(options, url))]
    return [{**group._asdict(), "told": _time(group.told * 1000)} for group in found]


def _tables(lake: str) -> Iterator[Facts]:
    from fleximq.pipeline.lake.batch_commit import readBehind
    from fleximq.pipeline.lake.table.columns import recordedSchema
    from fleximq.pipeline.lake.table.file_names import tableNames
    from fleximq.pipeline.lake.table.format import formatOf
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.payloads.ddl import written

    numbers = ("first", "next", "rows", "expired", "dead")
    for name in tableNames(lake):
        table = f"{lake}/{name}"
        schema, ledger = recordedSchema(table), readLedger(table)
        yield {
            "table": name,
            "format": formatOf(table)["format"],
            "schema": None if schema is None else written(schema),
            "journals": [
                {"journal": journalId, **{each: getattr(covered, each) for each in numbers}, "gaps": len(covered.gaps)}
                for journalId, covered in sorted(ledger.journals.items())
            ],
            "dead": [{"table": name, **each._asdict()} for each in ledger.dead],
            "behind": readBehind(table),
        }


def _time(microseconds: int) -> str:
    moment = datetime.fromtimestamp(microseconds / 1e6, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write(facts: Facts, run: JobRun) -> None:
    if "journals" in facts:
        _section(run, "Journals", "journal at first next", facts["journals"])
        journal = "journal " if len(facts["journals"]) > 1 else ""
        _section(run, "Topics", f"{journal}topic records bytes first last from to format schema", facts["topics"])
    if "groups" in facts:
        title = "Consumer groups, and how far behind they are"
        _section(run, title, "name journal next end records bytes seconds lost told", facts["groups"])
    if "tables" in facts:
        rows = [{**each, **one} for each in facts["tables"] for one in each["journals"] or [{}]]
        _section(run, "Lake tables", "table format journal first next rows expired dead gaps", rows)
        _section(run, "Their columns", "table schema", facts["tables"])
        behind = [{"table": each["table"], "why": each["behind"]} for each in facts["tables"] if each["behind"]]
        if behind:
            _section(run, "Tables that their ingest has left behind", "table why", behind)
        dead = [each for one in facts["tables"] for each in one["dead"]]
        if dead:
            title = "Last batches with dead letters, and the reason of the first"
            _section(run, title, "table batch rows dead reason", dead)


def _section(run: JobRun, title: str, columns: str, rows: Sequence[Facts]) -> None:
    from fleximq.pipeline.query.query_output import aligned

    names = columns.split()
    run.out.write(f"{title}\n\n")
    cells = [["" if row.get(name) is None else printable(str(row[name])) for name in names] for row in rows]
    isNumber = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in names]
    if rows:
        aligned(names, cells, isNumber, run.out)
    else:
        run.out.write("none\n")
    run.out.write("\n")


DESCRIBE = Job(_prepare, _run, True)
