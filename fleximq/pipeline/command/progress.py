"""How far a job is, told while it runs: in one line that is written over on a terminal, else in a line now and then."""

import time
from collections.abc import Callable
from threading import Lock
from typing import TextIO

#: Seconds between two lines about the same where nobody sits before it, and on a terminal.
PAUSE, QUICK = 10.0, 0.2


class Progress:
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
