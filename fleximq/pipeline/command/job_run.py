"""One run of a job: its session, where it writes, what ends it.

How far a job is, told while it runs: in one line that is written over on a terminal, else in a line now and then.
"""

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from threading import Event, Lock
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from fleximq.pipeline.errors import PipelineError

#: Seconds between two lines about the same where nobody sits before it, and on a terminal.
PAUSE, QUICK = 10.0, 0.2


class ProgressLine:
    """Writes to one stream; may be used by several threads.

    :param now: the clock, in seconds.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._terminal = stream.isatty()
        self._told: dict[str, float] = {}
        self._width = 0
        self._lock = Lock()

    def say(self, text: str) -> None:
        """Write one line."""
        with self._lock:
            self._clear()
            self._write(f"{text}\n")

    def show(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Tell how far ``name`` is, unless that was told a moment ago; on a terminal the end is always told."""
        with self._lock:
            now, ended = self._now(), total is not None and done >= total
            told = self._told.get(name)
            if told is None and not self._terminal:
                # What is over at once needs no words.
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
        """Leave the line that is written over."""
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
            # Nobody reads it any more; that is no reason to end the job.
            pass


def _number(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fleximq.pipeline.command.spark_session import SparkLauncher

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class JobRun:
    """A :class:`~fleximq.pipeline.command.job.JobContext` of this process; use it in a ``with`` statement, in the main
    thread.

    The first SIGINT or SIGTERM asks the job to end in order, the second ends the process.

    ``failed``: it did, and nothing is to take time at its end.

    :param chosen: has what was chosen of ``--master``, ``--conf``, ``--no-cache`` and ``--verbose``.
    :param brief: whether the job ends soon by itself, so that what makes the next start quicker may be made at its end.
    """

    def __init__(self, chosen: Namespace, brief: bool) -> None:
        self.out: TextIO = sys.stdout
        self.stopping = Event()
        self.failed = False
        self._chosen = chosen
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
                    self.say("making Spark start sooner from now on, this takes some seconds once (--no-cache: never)")
                    self._session.end(keep=True)
                else:
                    self._session.end()
        finally:
            for number, before in self._before.items():
                signal.signal(number, before)

    def session(self) -> "SparkSession":
        """Return the session, made by the first call."""
        if self._session is None:
            try:
                from fleximq.pipeline.command.spark_session import SparkLauncher
            except ImportError as error:
                raise PipelineError(
                    f"Spark is not installed ({error.msg}): pip install 'fleximq[spark]' brings it"
                ) from error
            chosen = self._chosen
            self._session = SparkLauncher(
                chosen.master,
                dict(each.split("=", 1) for each in chosen.conf or ()),
                chosen.verbose,
                not chosen.no_cache,
                self._brief,
            )
            # Spark has put its own in the place of ours.
            for number in _SIGNALS:
                signal.signal(number, self._asked)
        return self._session.spark

    def say(self, text: str) -> None:
        """Write one line to standard error."""
        self._progress.say(text)

    def progress(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Say how far the job is."""
        self._progress.show(name, done, total, unit)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.stopping.is_set():
            os._exit(128 + number)
        self.stopping.set()
