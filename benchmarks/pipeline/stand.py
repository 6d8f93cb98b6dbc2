"""What scenes share: a session of Spark for one ``--master`` at a time, and journals that are filled once."""

import io
import shutil
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import TextIO

from pyspark.sql import SparkSession

from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.program import Program, freePort
from benchmarks.pipeline.material import Material
from fleximq.client.blocking import connect
from fleximq.pipeline.command.job import Job
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.command.spark_session import SparkLauncher
from fleximq.pipeline.jobs.seal import SEAL

#: What Parquet files are packed with, ours and the peer's.
_CONF = {"spark.sql.parquet.compression.codec": "zstd"}
#: The share of rows that are sealed: half a day of 25 is not, which is the average where that is done daily.
SEALED = 0.98


@contextmanager
def broker(journal: Path) -> Iterator[str]:
    """Run a broker with a journal in this folder for all topics; give its URL.

    :raises Refused: it does not start.
    """
    peer = FlexiMQ()
    peer.port = freePort()
    program = Program()
    try:
        words = [*peer.command(), "--journal", str(journal), "--durable", "#"]
        program.start(words, peer.port, peer.environment())
        yield f"tcp://127.0.0.1:{peer.port}"
    finally:
        program.stop()


class Doing(JobRun):
    """A run of a job in the session of the stand; nobody sees what it says."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.out: TextIO = io.StringIO()
        self.stopping = Event()

    def session(self, quick: bool = False) -> SparkSession:
        """Return the session."""
        return self._spark

    def writeLine(self, text: str) -> None:
        """Write nothing."""

    def progress(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Show nothing."""


class Stand:
    """Where scenes run; used in a ``with`` statement, which removes everything at the end.

    ``scale`` is the share of the full number of rows.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
        self._session: SparkLauncher | None = None
        self._master = ""
        self._closing = ExitStack()
        self._closing.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._closing.callback(self.use, "")

    def __enter__(self) -> "Stand":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def use(self, master: str) -> None:
        """End the session, and begin one as ``fleximq-pipeline`` does, unless it has this master; "" is none."""
        if master == self._master:
            return
        if self._session is not None:
            self._session.end()
            self._session = None
        if master:
            self._session = SparkLauncher(master, _CONF)
        self._master = master

    @property
    def spark(self) -> SparkSession:
        """The session."""
        assert self._session is not None, "there is no session yet"
        return self._session.spark

    def do(self, job: Job, *words: str, doing: Doing | None = None) -> None:
        """Run a job of ``fleximq-pipeline`` with these words of a command line."""
        parser = ArgumentParser()
        job.prepare(parser)
        job.run(parser.parse_args(words), doing or Doing(self.spark))

    # -- what is read ------------------------------------------------------------------------------

    @cached_property
    def small(self) -> Material:
        """2 million messages of 100 bytes."""
        return self._made("small", 2_000_000, 100)

    @cached_property
    def large(self) -> Material:
        """200,000 messages of 4 KB."""
        return self._made("large", 200_000, 4096)

    def _made(self, name: str, rows: int, size: int) -> Material:
        """Fill a journal through a broker, as clients do, and seal what it has before the newest rows come."""
        material = Material(self.folder / name, round(rows * self.scale), size)
        with broker(material.journal) as url, connect(url) as client:
            material.publish(client, SEALED)
            self.do(SEAL, "--journal", str(material.journal), "--sealed", str(material.sealed), "--unfinished")
            material.publish(client)
        return material
