"""Merges the small files of an ingest's tables now and then, beside the ingest and without Spark."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.lake.compaction import compact
from fleximq.pipeline.lake.table.table_log import CompactionGoal


@contextmanager
def compacting(tables: Sequence[str], seconds: float, run: JobRun, goal: CompactionGoal) -> Iterator[None]:
    """Compact tables every so many seconds in a thread, for the length of a ``with`` block."""
    ending = Event()

    def repeat() -> None:
        while not ending.wait(seconds):
            for table in tables:
                name = os.path.basename(table)
                before = after = 0
                try:
                    for done in compact(table, goal):
                        before, after = before + done.before, after + done.after
                        if ending.is_set():
                            break
                    if before:
                        run.writeLine(f"table {name}: {before} files became {after}")
                except Exception as error:
                    # Even after an error of a library the ingest goes on, and the next time may be better.
                    isOurs = isinstance(error, (PipelineError, OSError))
                    why = str(error) if isOurs else f"{type(error).__name__}: {error}"
                    run.writeLine(f"table {name} is not compacted this time: {why}")

    thread = Thread(target=repeat, name="compaction", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        # It ends after the partition that it is merging; a kill would do no harm.
        thread.join()
