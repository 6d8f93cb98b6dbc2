"""The file of lines: written in a thread, so that a slow disk does not delay the broker, and rotated by size."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile

_log = Logger()

PORTION = 100  #: Lines per write; the file may be rotated between writes.


class PrivateLogFile(LogFile):
    """A rotated file that only its owner can read, also if it existed with another mode."""

    def _openFile(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        self.closed = False
        self._file = os.fdopen(descriptor, "ab")
        self.size = self._file.tell()


class Trail:
    """Collects lines, and writes the pending ones at each flush, by ``inThread``, e.g. ``deferToThreadPool``.

    Lines over ``backlog`` pending bytes are lost; ``lostLine`` returns the line to write instead of so many.
    """

    def __init__(
        self, file: LogFile, inThread: Callable[..., "Deferred[Any]"], backlog: int, lostLine: Callable[[int], str]
    ) -> None:
        self._file = file
        self._inThread = inThread
        self._backlog = backlog
        self._lostLine = lostLine
        self._lines: list[str] = []
        self._waiting = self._lost = 0
        self._writing: Deferred[Any] | None = None
        self._closed = False

    def take(self, line: str) -> None:
        """Add a line for the next flush. Costs an append; ignored after :meth:`close`."""
        if self._closed:
            return
        if self._waiting + len(line) > self._backlog:
            self._lost += 1
        else:
            self._lines.append(line)
            self._waiting += len(line)

    def flush(self) -> None:
        """Write pending lines, unless the last ones are still being written."""
        if self._writing is not None:
            return
        lines, self._lines = self._lines, []
        if self._lost:
            lines.append(self._lostLine(self._lost))
        self._waiting = self._lost = 0
        if lines:
            self._writing = self._inThread(self._write, lines)
            self._writing.addErrback(self._failed, len(lines))
            self._writing.addBoth(self._written)

    def close(self) -> "Deferred[None]":
        """Write pending lines and close the file; fires when that is done, and never fails."""
        if self._writing is None:
            self.flush()
        self._closed = True
        if self._writing is None:
            self._file.close()
            return succeed(None)
        # More lines may be pending after those being written now.
        done: Deferred[None] = Deferred()
        self._writing.addCallback(lambda ignored: self.close().chainDeferred(done))
        return done

    def _write(self, lines: Sequence[str]) -> None:
        for start in range(0, len(lines), PORTION):
            self._file.write("".join(lines[start : start + PORTION]))
        self._file.flush()

    def _written(self, ignored: object) -> None:
        self._writing = None

    def _failed(self, failure: Failure, number: int) -> None:
        self._lost += number
        _log.failure("The audit trail could not be written: {number} lines are lost", failure, number=number)
