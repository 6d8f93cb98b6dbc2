"""``compact``: the small files of lake tables become large ones, while readers read and ``ingest`` goes on.

Spark is not needed for it.
"""

from argparse import ArgumentParser, Namespace

from fleximq.config import option_values
from fleximq.pipeline.command.job import Job, JobContext, addTables, counted, duration, option
from fleximq.pipeline.lake.table.file_names import tablesOf


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)
    option(
        parser,
        "--target-bytes",
        read=option_values.size,
        metavar="SIZE",
        default=128 << 20,
        help="what a large file has, about; files of less than half of it are joined (128MiB)",
    )
    option(
        parser,
        "--older-than",
        read=duration,
        metavar="AGE",
        default=3_600_000_000,
        help="leave partitions alone in which something changed since, such as 1h (the default)",
    )
    option(
        parser,
        "--many",
        read=counted,
        metavar="NUMBER",
        default=100,
        help="... unless they have so many small files (100)",
    )


def _run(chosen: Namespace, run: JobContext) -> None:
    """Compact the tables.

    :raises PipelineError: a table cannot be written, or is of a format that compacts itself.
    """
    # What needs pyarrow is not needed for --help.
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.table.table_log import CompactionGoal

    wanted = CompactionGoal(chosen.target_bytes, chosen.older_than / 1_000_000, chosen.many)
    for table in tablesOf(chosen.lake, chosen.table):
        partitions = before = after = 0
        for done in compact(table, wanted):
            partitions, before, after = partitions + 1, before + done.before, after + done.after
            run.progress(table, partitions, None, "partitions")
            if run.stopping.is_set():
                break
        run.say(f"{table}: {before} files became {after} in {partitions} partitions")
        if run.stopping.is_set():
            break


COMPACT = Job("compact", "Join the small files of lake tables into large ones.", _prepare, _run)
