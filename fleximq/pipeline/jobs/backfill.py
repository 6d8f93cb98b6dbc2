"""``backfill``: fills a lake table with messages from before its first batch, each exactly once. Runs without Spark,
while readers and ``ingest`` continue.
"""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from fleximq.pipeline.command.job import Job, addSource, flag, option, sourceAlone
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.lake.table.file_names import tablesOf

if TYPE_CHECKING:
    from fleximq.pipeline.lake.backfill import Source
    from fleximq.pipeline.lake.table.table_spec import TableSpec


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the name of the table")
    option(parser, "--lake", "FOLDER", "the folder in which each table has its own")
    # The topics are those of the ingest, where it was started with some.
    addSource(parser)
    option(parser, "--sealed", "FOLDER", "sealed history, used where the journal has nothing")
    option(parser, "--from", "TABLE", "another table of the lake with the same topics, used where others have nothing")
    flag(parser, "--allow-data-loss", "continue over messages that are in no source, and record gaps")


def _run(arguments: Namespace, run: JobRun) -> None:
    """Fill the table; raises PipelineError if it cannot be written, or messages are in no source."""
    # Imports of pyarrow are not needed for --help.
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
        sources.append(sealedSource(os.path.abspath(os.path.expanduser(arguments.sealed))))
    if getattr(arguments, "from"):
        sources.append(tableSource(os.path.dirname(table), getattr(arguments, "from"), spec))
    if not sources:
        raise OptionRefused("--journal, --url, --sealed or --from is needed: the source of earlier messages")
    return sources


BACKFILL = Job(_prepare, _run)
