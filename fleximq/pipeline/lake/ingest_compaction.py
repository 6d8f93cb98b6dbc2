"""Merges the small files of an ingest's tables now and then, beside the ingest and without Spark."""

import os
from collections.abc import Sequence
from threading import Event, Thread

from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.lake.compaction import compact
from fleximq.pipeline.lake.table.table_log import CompactionGoal


class IngestCompaction:
    """A thread that compacts tables every so many seconds; use it in a ``with`` statement, which ends it."""

    def __init__(self, tables: Sequence[str], seconds: float, run: JobRun, goal: CompactionGoal) -> None:
        self._tables = tables
        self._seconds = seconds
        self._run = run
        self._goal = goal
        self._ending = Event()
        self._thread = Thread(target=self._repeat, name="compaction", daemon=True)

    def __enter__(self) -> "IngestCompaction":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        # It ends after the partition that it is merging; a kill would do no harm.
        self._thread.join()

    def _repeat(self) -> None:
        while not self._ending.wait(self._seconds):
            for table in self._tables:
                try:
                    self._compact(table)
                except Exception as error:
                    # Even after an error of a library the ingest goes on, and the next time may be better.
                    isOurs = isinstance(error, (PipelineError, OSError))
                    why = str(error) if isOurs else f"{type(error).__name__}: {error}"
                    self._run.writeLine(f"table {os.path.basename(table)} is not compacted this time: {why}")

    def _compact(self, table: str) -> None:
        before = after = 0
        for done in compact(table, self._goal):
            before, after = before + done.before, after + done.after
            if self._ending.is_set():
                break
        if before:
            self._run.writeLine(f"table {os.path.basename(table)}: {before} files became {after}")
