"""``compact``: merges the small files of lake tables into large ones, while readers and ``ingest`` continue. Runs
without Spark.
"""

from argparse import ArgumentParser, Namespace

from fleximq.config import option_values
from fleximq.pipeline.command.job import Job, addTables, duration, option, positiveNumber
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.lake.table.file_names import tablesOf


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)
    words = "approximate size of merged files; files of less than half of it are merged (128MiB)"
    option(parser, "--target-bytes", "SIZE", words, option_values.size, default=128 << 20)
    words = "skip partitions that changed more recently, e.g. 1h (the default)"
    option(parser, "--older-than", "AGE", words, duration, default=3_600_000_000)
    words = "... unless they have so many small files (100)"
    option(parser, "--many", "NUMBER", words, positiveNumber, default=100)


def _run(arguments: Namespace, run: JobRun) -> None:
    """Compact the tables; raises PipelineError if a table cannot be written, or is of a format that compacts itself."""
    # Imports of pyarrow are not needed for --help.
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.table.table_log import CompactionGoal

    wanted = CompactionGoal(arguments.target_bytes, arguments.older_than / 1_000_000, arguments.many)
    for table in tablesOf(arguments.lake, arguments.table):
        partitions = before = after = 0
        for done in compact(table, wanted):
            partitions, before, after = partitions + 1, before + done.before, after + done.after
            run.progress(table, partitions, None, "partitions")
            if run.stopping.is_set():
                break
        run.writeLine(f"{table}: {before} files became {after} in {partitions} partitions")
        if run.stopping.is_set():
            break


COMPACT = Job(_prepare, _run)
