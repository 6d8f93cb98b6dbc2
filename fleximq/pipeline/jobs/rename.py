"""``rename``: gives the folders of lake tables names in ASCII, while readers continue, but no ingest. Runs without
Spark.
"""

import os
from argparse import ArgumentParser, Namespace

from fleximq.pipeline.command.job import Job, addTables
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.lake.table.file_names import tablesOf


def _run(arguments: Namespace, run: JobRun) -> None:
    """Rename the folders of the tables; raises PipelineError if a table cannot be written, or is in use."""
    # Imports of pyarrow are not needed for --help.
    from fleximq.pipeline.lake.renaming import rename

    for table in tablesOf(arguments.lake, arguments.table):
        run.writeLine(f"table {os.path.basename(table)}: {rename(table):,} files are in renamed folders")


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)


RENAME = Job(_prepare, _run)
