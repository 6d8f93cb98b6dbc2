"""The audit log: a file with a line of JSON for each login, refusal and act of an administrator.

A thread writes it, so that a slow disk does not delay the broker. Lines that cannot be written are counted, and
refusals beyond a rate too; the next line has their number as ``left_out``.
"""

import errno
import math
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Thread
from time import monotonic, time
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.logger import Logger

from fleximq.errors import systemReason
from fleximq.values.log_limit import LogLimit
from fleximq.values.printable import jsonLine

_log = Logger()

#: The event with a limited rate, and its lines per second.
REFUSED, REFUSALS_PER_SECOND = "refused", 20
#: Maximum lines that wait for the disk, characters of a text, items of a list, and bits of an integer.
MAX_WAITING, _CHARACTERS, _ITEMS, _BITS = 10_000, 500, 100, 64
#: Seconds between two reports of faults, and to write the last lines at the end.
_QUIET, _PATIENCE = 60.0, 5.0
#: The arguments of acts that are written; others could have values of any size and kind.
_ARGUMENTS = frozenset(
    {"client_id", "principal", "address", "seconds", "reason", "group", "topic", "subscription", "limit"}
)


class NoAuditLog:
    """The absence of an audit log: events are not written."""

    def record(self, event: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Ignore an event."""

    def reopen(self) -> None:
        """A no-op: there is no file."""


class AuditLog(Service):
    """Writes the audit log, created with mode 600; ``abortStart`` is called with a sentence if it cannot be opened."""

    def __init__(
        self, reactor: Any, path: str, abortStart: Callable[[str], NoReturn], wall: Callable[[], float] = time
    ) -> None:
        self._reactor = reactor
        self._wall = wall
        self._path = path
        self._abortStart = abortStart
        self._limit = LogLimit(REFUSALS_PER_SECOND)
        self._leftOut = 0
        self._queue: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def startService(self) -> None:
        """Open the file, and start the thread, which ends after everything else."""
        super().startService()
        try:
            file = _AuditFile(self._path, self._report)
        except OSError as error:
            self._abortStart(f"the audit log {self._path} cannot be opened: {systemReason(error)}")
        thread = Thread(target=self._write, args=(file,), name="audit log", daemon=True)
        thread.start()

        def end() -> None:
            self._queue.put(None)
            thread.join(_PATIENCE)

        self._reactor.addSystemEventTrigger("after", "shutdown", end)

    def record(self, event: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Write an event, and never raise; ``arguments`` are those of an act, of any type. Fields may be lists."""
        if event == REFUSED:
            suppressed = self._limit.passes(self._reactor.seconds())
            if suppressed is None:
                return
            self._leftOut += suppressed
        if self._queue.qsize() >= MAX_WAITING:
            self._leftOut += 1
            return
        moment = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": moment, "event": event}
        line |= {
            name: [_scalar(each) for each in value[:_ITEMS]] if isinstance(value, list | tuple) else _scalar(value)
            for name, value in fields.items()
        }
        if arguments:
            line["arguments"] = {name: _scalar(arguments[name]) for name in arguments if name in _ARGUMENTS}
        if self._leftOut:
            line["left_out"], self._leftOut = self._leftOut, 0
        self._queue.put(line)

    def reopen(self) -> None:
        """Open the file again, after the system has rotated it."""
        self._queue.put({})

    def _write(self, file: "_AuditFile") -> None:
        while (line := self._queue.get()) is not None:
            file.write(line) if line else file.reopen()

    def _report(self, sentence: str) -> None:
        self._reactor.callFromThread(_log.error, "The audit log is not written: {sentence}", sentence=sentence)


class _AuditFile:
    """The open file; it reports the first of faults in a row, and at most one in :data:`_QUIET` seconds."""

    def __init__(self, path: str, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._number = _opened(path)
        self._lost = 0
        self._failing = False
        self._quietUntil = 0.0
        self._begun = b""

    def write(self, line: dict[str, Any]) -> None:
        """Write a line; after a fault, it ends the line that was begun."""
        if self._lost:
            line["left_out"] = line.get("left_out", 0) + self._lost
        data = self._begun + jsonLine(line).encode() + b"\n"
        try:
            written = os.write(self._number, data)
            if written < len(data):
                self._begun = b"\n"
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._lost += 1
            self._failed(error)
        else:
            self._begun, self._lost, self._failing = b"", 0, False

    def reopen(self) -> None:
        try:
            number = _opened(self._path)
        except OSError as error:
            self._failed(error)
            return
        os.close(self._number)
        self._number, self._begun = number, b""

    def _failed(self, error: OSError) -> None:
        if not self._failing and monotonic() >= self._quietUntil:
            self._quietUntil = monotonic() + _QUIET
            self._report(systemReason(error))
        self._failing = True


def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)


def _scalar(value: Any) -> Any:
    """Return a value as strict JSON can show it: texts are cut, all but scalars become the name of their type."""
    if isinstance(value, str):
        return value[:_CHARACTERS]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or (isinstance(value, int) and value.bit_length() <= _BITS):
        return value
    return type(value).__name__
