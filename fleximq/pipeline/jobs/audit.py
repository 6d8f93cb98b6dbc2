"""``audit``: proves that lake tables are complete: compares their files with the record of what was ingested. Runs
without Spark, while readers and ``ingest`` continue.
"""

import os
from argparse import ArgumentParser, Namespace

from fleximq.pipeline.command.job import Job, addTables
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.table.file_names import tablesOf


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)


def _run(arguments: Namespace, run: JobRun) -> None:
    """Audit the tables; raises LakeRefused if any is not complete, or cannot be read."""
    # Imports of pyarrow are not needed for --help.
    from fleximq.pipeline.lake import audit, ranges

    tables = tablesOf(arguments.lake, arguments.table)
    incomplete = 0
    for table in tables:
        name, found = os.path.basename(table), audit(table)
        for sentence in found:
            run.out.write(f"table {name}: {sentence}\n")
        incomplete += bool(found)
        if not found:
            rows = sum(covered.rows for covered in ranges(table).values())
            run.out.write(f"table {name}: complete, {rows:,} rows\n")
    if incomplete:
        raise LakeRefused(f"{incomplete} of {len(tables)} tables are not as they should be")


AUDIT = Job(_prepare, _run)
