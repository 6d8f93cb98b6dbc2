"""The jobs that maintain lake tables, without Spark; imports are inside functions, as help needs no Arrow."""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.command.job import (
    Job,
    addLake,
    addSource,
    addTables,
    duration,
    flag,
    option,
    positiveNumber,
    sourceAlone,
)
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import LakeRefused, OptionRefused
from fleximq.pipeline.lake.locations import lakePath
from fleximq.pipeline.lake.table.file_names import tablesOf
from fleximq.values.patterns import anyOf, faultIn

if TYPE_CHECKING:
    from fleximq.pipeline.lake.backfill import Source
    from fleximq.pipeline.lake.table.table_spec import TableSpec


def _audit(arguments: Namespace, run: JobRun) -> None:
    """Compare the files of tables with their ledgers; raises LakeRefused for a difference."""
    from fleximq.pipeline.lake import audit, ranges

    tables = tablesOf(arguments.lake, arguments.table)
    incomplete = 0
    for table in tables:
        name = os.path.basename(table)
        try:
            found = audit(table)
            rows = sum(covered.rows for covered in ranges(table).values())
        except LakeRefused as error:
            found = [str(error)]
        for sentence in found:
            run.out.write(f"table {name}: {sentence}\n")
        incomplete += bool(found)
        if not found:
            run.out.write(f"table {name}: complete, {rows:,} rows\n")
    if incomplete:
        raise LakeRefused(f"{incomplete} of {len(tables)} tables are not as they should be")


AUDIT = Job(addTables, _audit)


def _each(arguments: Namespace, run: JobRun, work: Callable[[str], None]) -> None:
    """Work on each table until the job is stopped, also after a refused one; then raise LakeRefused for that."""
    refused: list[LakeRefused] = []
    for table in tablesOf(arguments.lake, arguments.table):
        try:
            work(table)
        except LakeRefused as error:
            refused.append(error)
        if run.stopping.is_set():
            break
    for each in refused[:-1]:
        run.writeLine(str(each))
    if refused:
        raise refused[-1]


def _repair(arguments: Namespace, run: JobRun) -> None:
    """Complete the recorded steps of tables; raises LakeRefused if a table's format still refuses one."""
    from fleximq.pipeline.lake.repair import repair

    def work(table: str) -> None:
        for sentence in repair(table) or ["nothing is to be completed"]:
            run.writeLine(f"table {os.path.basename(table)}: {sentence}")

    _each(arguments, run, work)


REPAIR = Job(addTables, _repair)


def _prepareBackfill(parser: ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the name of the table")
    addLake(parser)
    # The topics are those of the ingest, where it was started with some.
    addSource(parser)
    option(parser, "--sealed", "FOLDER", "sealed history, used where the journal has nothing")
    option(parser, "--from", "TABLE", "another table of the lake with the same topics, used where others have nothing")
    flag(parser, "--allow-data-loss", "continue over messages that are in no source, and record gaps")


def _backfill(arguments: Namespace, run: JobRun) -> None:
    """Fill a table with messages from before its first batch, each once; raises PipelineError."""
    from fleximq.pipeline.files.selection import Topics
    from fleximq.pipeline.lake.backfill import backfill
    from fleximq.pipeline.lake.table.table_spec import readSpec

    (table,) = tablesOf(arguments.lake, [arguments.table])
    spec = readSpec(table)
    rows, dead, first = 0, 0, dict[str, int]()
    names, levels = (",".join(given or ()).split(",") for given in (arguments.subscribe, arguments.topics))
    only = Topics(frozenset(names) if arguments.subscribe else None, levels=tuple(levels) if arguments.topics else ())
    sources = _sources(arguments, table, spec)
    for done in backfill(os.path.dirname(table), spec, sources, arguments.allow_data_loss, only):
        rows, dead = rows + done.rows, dead + done.dead
        first[done.journal] = done.first
        run.progress(f"filled {spec.name}", rows, None, "rows")
        if run.stopping.is_set():
            break
    begins = ", ".join(f"it begins at offset {offset} of journal {journal}" for journal, offset in first.items())
    run.writeLine(
        f"table {spec.name}: {rows:,} rows added, {dead:,} of them dead letters; {begins or 'nothing is earlier'}"
    )


def _sources(arguments: Namespace, table: str, spec: "TableSpec") -> "list[Source]":
    from fleximq.pipeline.lake.backfill import PIECE_BYTES, journalSource, sealedSource, tableSource
    from fleximq.pipeline.reader.source_options import SourceOptions

    sources: list[Source] = []
    if arguments.journal or arguments.url:
        options = sourceAlone(arguments) | {
            "partitionBytes": str(PIECE_BYTES),
            "failOnDataLoss": str(not arguments.allow_data_loss).lower(),
        }
        if spec.topics and not {"subscribe", "topics"} & set(options):
            options["topics"] = ",".join(spec.topics)
        sources.append(journalSource(SourceOptions.of(options)))
    if arguments.sealed:
        sources.append(sealedSource(lakePath(arguments.sealed)))
    if getattr(arguments, "from"):
        sources.append(tableSource(os.path.dirname(table), getattr(arguments, "from"), spec))
    if not sources:
        raise OptionRefused("--journal, --url, --sealed or --from is needed: the source of earlier messages")
    return sources


BACKFILL = Job(_prepareBackfill, _backfill)


def _prepareCompact(parser: ArgumentParser) -> None:
    addTables(parser)
    words = "approximate size of merged files; files of less than half of it are merged (128MiB)"
    option(parser, "--target-bytes", "SIZE", words, option_values.size, default=128 << 20)
    words = "skip partitions that changed more recently, e.g. 1h (the default)"
    option(parser, "--older-than", "AGE", words, duration, default=3_600_000_000)
    words = "... unless they have so many small files (100)"
    option(parser, "--many", "NUMBER", words, positiveNumber, default=100)


def _compact(arguments: Namespace, run: JobRun) -> None:
    """Merge small files into large ones; raises PipelineError if a table cannot be written."""
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.table.table_log import CompactionGoal

    wanted = CompactionGoal(arguments.target_bytes, arguments.older_than / 1_000_000, arguments.many)

    def work(table: str) -> None:
        partitions = before = after = 0
        for done in compact(table, wanted):
            partitions, before, after = partitions + 1, before + done.before, after + done.after
            run.progress(table, partitions, None, "partitions")
            if run.stopping.is_set():
                break
        run.writeLine(f"{table}: {before} files became {after} in {partitions} partitions")

    _each(arguments, run, work)


COMPACT = Job(_prepareCompact, _compact)


class Keep(NamedTuple):
    """The retention in seconds for topics that match a pattern; None: for all topics without a matching one."""

    pattern: str | None
    seconds: float


def keep(name: str, value: object) -> Keep:
    """Read ``90d`` or ``PATTERN=90d``."""
    text = option_values.text(name, value)
    pattern, separator, age = text.rpartition("=")
    try:
        seconds = duration(name, age) / 1_000_000
    except SettingError:
        seconds = 0.0
    if not seconds or (separator and not pattern):
        raise SettingError(
            f"{name} is {value!r}, but must be an age of more than 0, e.g. 90d, or PATTERN=AGE, e.g. news.*=30d"
        )
    if fault := faultIn(pattern):
        raise SettingError(f"{name} is {value!r}, but {fault}")
    return Keep(pattern or None, seconds)


def _prepareExpire(parser: ArgumentParser) -> None:
    addTables(parser)
    words = (
        "keep the topics that match for so long, or all others: 90d, news.*=30d; may be repeated, the first pattern "
        "that matches counts"
    )
    option(parser, "--keep", "[PATTERN=]AGE", words, keep, action="append")


def _expire(arguments: Namespace, run: JobRun) -> None:
    """Remove days of topics past their retention; the rows stay counted. Raises PipelineError."""
    from fleximq.pipeline.lake.expiration import expireDays, topicsOf

    if not arguments.keep:
        raise OptionRefused("--keep AGE is needed: the retention, e.g. 90d")
    rules: Sequence[Keep] = arguments.keep
    tables = tablesOf(arguments.lake, arguments.table)
    patterns = [pattern for pattern, _ in rules if pattern is not None]
    topics = {topic for table in tables for topic in topicsOf(table)} if patterns else set()
    for pattern in patterns:
        if not any(map(anyOf([pattern]), topics)):
            # It may be misspelled, so that the rule has no effect.
            run.writeLine(f"--keep {pattern}=... matches no topic of {', '.join(tables)}")

    def work(table: str) -> None:
        gone = expireDays(table, rules, time.time())
        rows = sum(sum(each.rows.values()) for each in gone)
        run.writeLine(f"{table}: {rows} rows in {len(gone)} partitions have expired")

    _each(arguments, run, work)


EXPIRE = Job(_prepareExpire, _expire)


def _prepareRedecode(parser: ArgumentParser) -> None:
    addTables(parser)
    words = "first widen columns of the tables, or add some, e.g. 'id BIGINT, celsius DOUBLE'"
    option(parser, "--schema", "DDL", words)


def _redecode(arguments: Namespace, run: JobRun) -> None:
    """Decode payloads again after their schema was mended, each row once; raises PipelineError."""
    from fleximq.pipeline.lake.column_changes import widenColumns
    from fleximq.pipeline.lake.redecoding import redecode
    from fleximq.pipeline.lake.table.table_spec import readSpec
    from fleximq.pipeline.payloads import ddl

    fields = None if arguments.schema is None else ddl.parsed(arguments.schema)

    def work(table: str) -> None:
        if fields is not None:
            widenColumns(table, fields)
        for done in redecode(table, readSpec(table)):
            run.progress(table, done.files, None, "files")
            if run.stopping.is_set():
                return
        run.writeLine(
            f"table {os.path.basename(table)}: {done.replaced} of {done.files} files replaced, {done.back:,} dead "
            f"letters brought back, {done.dead:,} remain"
        )

    _each(arguments, run, work)


REDECODE = Job(_prepareRedecode, _redecode)


def _rename(arguments: Namespace, run: JobRun) -> None:
    """Give the folders of tables names in ASCII; raises PipelineError if a table cannot be written, or is in use."""
    from fleximq.pipeline.lake.renaming import rename

    def work(table: str) -> None:
        run.writeLine(f"table {os.path.basename(table)}: {rename(table):,} files are in renamed folders")

    _each(arguments, run, work)


RENAME = Job(addTables, _rename)
