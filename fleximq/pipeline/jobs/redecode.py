"""``redecode``: decodes the payloads of lake tables again after their schema was mended, each row exactly once. Runs
without Spark, while readers and ``ingest`` continue.
"""

import os
from argparse import ArgumentParser, Namespace

from fleximq.pipeline.command.job import Job, addTables, option
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.lake.table.file_names import tablesOf


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)
    option(
        parser, "--schema", "DDL", "first widen columns of the tables, or add some, e.g. 'id BIGINT, celsius DOUBLE'"
    )


def _run(arguments: Namespace, run: JobRun) -> None:
    """Redecode the tables; raises PipelineError if a table cannot be written, or take the schema."""
    # Imports of pyarrow are not needed for --help.
    from fleximq.pipeline.lake.ingest_driver import widenColumns
    from fleximq.pipeline.lake.redecoding import redecode
    from fleximq.pipeline.lake.table.table_spec import readSpec
    from fleximq.pipeline.payloads import ddl

    fields = None if arguments.schema is None else ddl.parsed(arguments.schema)
    for table in tablesOf(arguments.lake, arguments.table):
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


REDECODE = Job(_prepare, _run)
