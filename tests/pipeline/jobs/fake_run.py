"""What a job is given while it runs, kept in memory for a test to look at."""

import io
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import TextIO

from pyspark.sql import SparkSession

from fleximq.config.argument_parser import CommandParser
from fleximq.pipeline.command.job import Job
from fleximq.pipeline.command.job_run import JobRun
from tests.pipeline.session import sharedSession


def runJob(job: Job, *words: str, run: "FakeRun | None" = None) -> "FakeRun":
    """Run a job with the words of a command line, and return its run."""
    parser = CommandParser(prog="job")
    job.prepare(parser)
    run = run or FakeRun()
    job.run(parser.parse_args(words), run)
    return run


class FakeRun(JobRun):
    """A run in the session that all tests share.

    ``said`` has the lines that were said, ``done`` how far the job was by the names of its parts, and ``printed`` is
    what it has written as its result.
    """

    def __init__(self) -> None:
        self.out: TextIO = io.StringIO()
        self.stopping = Event()
        self.said: list[str] = []
        self.done: dict[str, tuple[float, float | None, str]] = {}

    @property
    def printed(self) -> str:
        """All that was written to ``out``."""
        assert isinstance(self.out, io.StringIO)
        return self.out.getvalue()

    def session(self, quick: bool = False) -> SparkSession:
        """Return the shared session."""
        return sharedSession()

    def notice(self, text: str) -> AbstractContextManager[None]:
        """Say nothing, however long a block takes."""
        return nullcontext()

    def writeLine(self, text: str) -> None:
        """Keep a line."""
        self.said.append(text)

    def progress(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Keep how far it is."""
        self.done[name] = done, total, unit
