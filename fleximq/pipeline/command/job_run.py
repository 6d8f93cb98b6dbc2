"""One run of a job: its session, its output, its signals, and its progress line."""

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Event, Lock
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from fleximq.pipeline.wait_notice import waitNotice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fleximq.pipeline.command.spark_session import SparkLauncher

#: Seconds between two lines about the same progress, in a file and on a terminal.
PAUSE, QUICK = 10.0, 0.2
#: The variable that ``spark-submit`` sets for the programs that it runs.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ProgressLine:
    """Shows progress in one line of a terminal, else in a line now and then. Thread-safe; ``now`` is in seconds."""

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
            if self._width:
                self._write(f"\r{'':<{self._width}}\r", 0)
            self._write(f"{text}\n", 0)

    def show(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Show the progress of ``name``, unless shown a moment ago; on a terminal the end is always shown."""
        with self._lock:
            now, ended = self._now(), total is not None and done >= total
            told = self._told.get(name)
            if told is None and not self._terminal:
                # Work that is over at once needs no line.
                self._told[name] = now
                return
            isDue = told is None or now - told >= (QUICK if self._terminal else PAUSE)
            if not isDue and not (ended and self._terminal):
                return
            self._told[name] = now
            line = f"{name}: {_number(done)}" + ("" if total is None else f" of {_number(total)}") + f" {unit}"
            if total:
                line += f" ({min(done / total, 1):.0%})"
            if not self._terminal:
                self._write(f"{line}\n", 0)
            else:
                self._write(f"\r{line:<{self._width}}" + ("\n" if ended else ""), 0 if ended else len(line))

    def end(self) -> None:
        """End the line that is overwritten."""
        with self._lock:
            if self._width:
                self._write("\n", 0)

    def _write(self, text: str, width: int) -> None:
        """Write text after which a line of this width may be overwritten."""
        self._width = width
        with suppress(OSError, ValueError):  # the reader of the stream is gone; the job continues
            self._stream.write(text)
            self._stream.flush()


def _number(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


class JobRun:
    """One run of a job in this process; use it in a ``with`` statement, in the main thread. ``out`` is for the result.
    The first SIGINT or SIGTERM sets ``stopping``: the job then ends in order, with 0; the second ends the process.
    ``failed``: the end is kept short. After a ``brief`` job the class archive may be made.
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
                keep = self._session.isRecording and not (self.stopping.is_set() or self.failed or raised[0])
                if keep:
                    self.writeLine(
                        "archiving Java's classes for quicker starts, this takes some seconds once (--no-cache: never)"
                    )
                self._session.end(keep)
        finally:
            for number, before in self._before.items():
                signal.signal(number, before)

    def session(self, quick: bool = False) -> "SparkSession":
        """Return the session, made by the first call; raises PipelineError without Java, ImportError without Spark.
        ``quick``: Java is to start soon, rather than to be fast later.
        """
        if self._session is None:
            from fleximq.pipeline.command.java import startMark
            from fleximq.pipeline.command.spark_session import SparkLauncher

            chosen = self._chosen
            conf = dict(each.split("=", 1) for each in chosen.conf or ())
            archive = not chosen.no_cache
            mark = startMark() if archive else None
            isFirst = mark is not None and not mark.exists()
            slow = ": its first start on a machine may take a minute, later ones some seconds" if isFirst else ""
            with self.notice(f"starting Spark{slow}"):
                self._session = SparkLauncher(chosen.master, conf, chosen.verbose, archive, self._brief, quick)
            if mark is not None:
                with suppress(OSError):
                    mark.touch()
            # Spark has replaced our handler.
            for number in _SIGNALS:
                signal.signal(number, self._asked)
        return self._session.spark

    def notice(self, text: str) -> AbstractContextManager[None]:
        """Write a line after 3 seconds of a block; not under ``spark-submit``, which would put it among the results."""
        return nullcontext() if _SUBMITTED in os.environ else waitNotice(lambda: text, self.writeLine)

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
