"""One run of a job: its session, its output, its signals, and its progress line."""

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Event, Lock
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.wait_notice import waitNotice

#: Seconds between two lines about the same progress, in a file and on a terminal.
PAUSE, QUICK = 10.0, 0.2


class ProgressLine:
    """Shows progress on one stream: on a terminal in one line that is overwritten, else in a line now and then.
    Thread-safe. ``now`` is the clock, in seconds.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._terminal = stream.isatty()
        self._told: dict[str, float] = {}
        self._width = 0
        self._lock = Lock()

    def writeLine(self, text: str) -> None:
        """Write one line."""
        with self._lock:
            self._clear()
            self._write(f"{text}\n")

    def show(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Show the progress of ``name``, unless shown a moment ago; on a terminal the end is always shown."""
        with self._lock:
            now, ended = self._now(), total is not None and done >= total
            told = self._told.get(name)
            if told is None and not self._terminal:
                # Work that is over at once needs no line.
                self._told[name] = now
                return
            if (
                told is not None
                and not (ended and self._terminal)
                and now - told < (QUICK if self._terminal else PAUSE)
            ):
                return
            self._told[name] = now
            line = f"{name}: {_number(done)}" + ("" if total is None else f" of {_number(total)}") + f" {unit}"
            if total:
                line += f" ({min(done / total, 1):.0%})"
            if not self._terminal:
                self._write(f"{line}\n")
                return
            self._write(f"\r{line:<{self._width}}")
            self._width = len(line)
            if ended:
                self._write("\n")
                self._width = 0

    def end(self) -> None:
        """End the line that is overwritten."""
        with self._lock:
            if self._width:
                self._write("\n")
                self._width = 0

    def _clear(self) -> None:
        if self._width:
            self._write(f"\r{'':<{self._width}}\r")
            self._width = 0

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # The reader of the stream is gone; the job continues.
            pass


def _number(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fleximq.pipeline.command.spark_session import SparkLauncher

#: The variable that ``spark-submit`` sets for the programs that it runs.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class JobRun:
    """One run of a job in this process; use it in a ``with`` statement, in the main thread.

    ``out`` is for the result. The first SIGINT or SIGTERM sets ``stopping``: the job then ends in order, with 0; the
    second ends the process. ``failed``: the job has failed, so the end is kept short. After a ``brief`` job, which ends
    soon by itself, the class archive may be made.
    """

    def __init__(self, arguments: Namespace, brief: bool) -> None:
        self.out: TextIO = sys.stdout
        self.stopping = Event()
        self.failed = False
        self._chosen = arguments
        self._brief = brief
        self._progress = ProgressLine(sys.stderr)
        self._session: SparkLauncher | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "JobRun":
        self._before = {number: signal.signal(number, self._asked) for number in _SIGNALS}
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self._progress.end()
            if self._session is not None:
                if self._session.isRecording and not (self.stopping.is_set() or self.failed or raised[0]):
                    self.writeLine(
                        "archiving Java's classes for quicker starts, this takes some seconds once (--no-cache: never)"
                    )
                    self._session.end(keep=True)
                else:
                    self._session.end()
        finally:
            for number, before in self._before.items():
                signal.signal(number, before)

    def session(self) -> "SparkSession":
        """Return the session, made by the first call, for the whole run; raises PipelineError without Spark or Java."""
        if self._session is None:
            with self.notice("starting Spark: its first start on a machine may take a minute, later ones some seconds"):
                self._session = self._launched()
            # Spark has replaced our handler.
            for number in _SIGNALS:
                signal.signal(number, self._asked)
        return self._session.spark

    def _launched(self) -> "SparkLauncher":
        try:
            from fleximq.pipeline.command.spark_session import SparkLauncher
        except ImportError as error:
            raise PipelineError(
                f"Spark is not installed ({error.msg}): pip install '.[spark]' in a clone of FlexiMQ installs it"
            ) from error
        arguments = self._chosen
        return SparkLauncher(
            arguments.master,
            dict(each.split("=", 1) for each in arguments.conf or ()),
            arguments.verbose,
            not arguments.no_cache,
            self._brief,
        )

    def notice(self, text: str) -> AbstractContextManager[None]:
        """Write a line about what a block does, once it has taken 3 seconds.

        Not under ``spark-submit``, which merges standard error with standard output, where the result is.
        """
        if _SUBMITTED in os.environ:
            return nullcontext()
        return waitNotice(lambda: text, self.writeLine)

    def writeLine(self, text: str) -> None:
        """Write one line about the job's progress to standard error."""
        self._progress.writeLine(text)

    def progress(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Show the job's progress; ``total`` is None if unknown."""
        self._progress.show(name, done, total, unit)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.stopping.is_set():
            os._exit(128 + number)
        self.stopping.set()
