"""Writes log lines in a thread, so that a full pipe, a stopped terminal or a stuck disk does not stop the broker.

At most :data:`MAX_WAITING` bytes wait. Beyond that, lines are left out until half of them is written; then a line says
how many. Standard output stays a blocking descriptor, since other processes may have the same one.
"""

import atexit
import io
import os
import select
import stat
import syslog
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Condition, Thread
from typing import Any, Protocol, TextIO
from weakref import WeakSet

from twisted.python.logfile import LogFile

from fleximq.errors import systemReason
from fleximq.values.background_thread import startWithoutSignals

#: Bytes that wait, and seconds to write them when the process ends.
MAX_WAITING, PATIENCE = 1 << 20, 5.0
#: Seconds to write them when the process ends at once.
SHORT_PATIENCE = 1.0


#: A line, after its priority for syslog.
_Line = tuple[int, bytes]


class LogTarget(Protocol):
    """Where lines go. ``slow``: the reason, as the end of a sentence, why lines waited too long."""

    slow: str

    def write(self, lines: Iterable[_Line]) -> None:
        """Write lines with their priorities of syslog; raises OSError."""

    def reopen(self) -> None:
        """Rotate the file, or open it again if it was moved; raises OSError."""


class Descriptor:
    """Writes to an open file descriptor."""

    slow = "standard output was not read"
    _begun = False

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, lines: Iterable[_Line]) -> None:
        """Write all lines; after a fault in the middle of a line, end that line first."""
        rest = memoryview(b"\n" * self._begun + b"".join(line for _, line in lines))
        while rest:
            try:
                written = os.write(self._number, rest)
            except BlockingIOError:  # another process has made it non-blocking
                waiting = select.poll()
                waiting.register(self._number, select.POLLOUT)
                waiting.poll()
                continue
            self._begun = rest[written - 1] != ord("\n")
            rest = rest[written:]

    def reopen(self) -> None:
        """Do nothing: there is no file."""


class LogPath(Descriptor):
    """Appends to the file with this path."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self.slow = f"{path} was not written in time"
        super().__init__(_opened(self._path))

    def reopen(self) -> None:
        """Open the path again; if it is still the same file, rename it first as ``twistd`` does.

        A new file has the mode of the previous one: the umask of a daemon would close it to those who read the log.
        """
        mode = stat.S_IMODE(os.fstat(self._number).st_mode)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._number)):
                shelf: Any = LogFile.fromFullPath(self._path)
                shelf.rotate()
                shelf.close()
        isNew = not os.path.exists(self._path)
        number = _opened(self._path)
        if isNew:
            os.fchmod(number, mode)
        os.close(self._number)
        self._number, self._begun = number, False


class SystemLog:
    """Sends lines to syslog, with this word before each."""

    slow = "syslog was not read"

    def __init__(self, prefix: str) -> None:
        syslog.openlog(prefix, 0, syslog.LOG_USER)

    def write(self, lines: Iterable[_Line]) -> None:
        """Send lines; one with a traceback becomes several."""
        for priority, text in lines:
            for line in text.splitlines():
                syslog.syslog(priority, line.decode().removeprefix(" "))

    def reopen(self) -> None:
        """Do nothing: there is no file."""


class LogWriter:
    """Writes to a target. ``notice``: returns a sentence about left out lines as a line."""

    def __init__(self, target: LogTarget, notice: Callable[[str], str]) -> None:
        self._target, self._notice = target, notice
        self._news = Condition()
        self._queue: list[_Line | int | None] = []
        self._waiting = self._leftOut = self._lost = 0
        self._reason = target.slow
        self._isEnding = False
        self._thread: Thread | None = None
        _writers.add(self)

    def start(self) -> None:
        """Start the thread; a daemon has forked before. Until then lines wait."""
        self._thread = Thread(target=self._run, name="log", daemon=True)
        startWithoutSignals(self._thread)

    def write(self, text: str, priority: int = syslog.LOG_INFO) -> None:
        """Write text later; never blocks or raises."""
        line = text.encode(errors="backslashreplace")
        with self._news:
            if self._leftOut or self._waiting + len(line) > MAX_WAITING:
                self._leftOut += 1
                return
            self._waiting += len(line)
            self._queue.append((priority, line))
            self._news.notify()

    def reopen(self) -> None:
        """Rotate or reopen the file after the lines that were written before."""
        with self._news:
            self._queue.append(None)
            self._news.notify()

    def end(self, patience: float = PATIENCE) -> None:
        """Write the lines that wait, for ``patience`` seconds at most."""
        with self._news:
            self._isEnding = True
            self._news.notify()
        if self._thread is None:
            self._run()
        else:
            self._thread.join(patience)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._queue or self._isEnding)
                taken, self._queue = self._queue, []
            if not taken:
                return
            lines: list[_Line | int] = []
            for each in taken:
                if each is None:
                    self._writeAll(lines)
                    self._reopen()
                    lines = []
                else:
                    lines.append(each)
            self._writeAll(lines)

    def _writeAll(self, lines: list[_Line | int]) -> None:
        try:
            self._target.write(list(self._withNotices(lines)))
        except OSError as error:
            self._lost += sum(each if isinstance(each, int) else 1 for each in lines)
            self._reason = f"they could not be written: {systemReason(error)}"
        else:
            self._lost, self._reason = (0, self._target.slow) if lines else (self._lost, self._reason)
        with self._news:
            self._waiting -= sum(0 if isinstance(each, int) else len(each[1]) for each in lines)
            if self._leftOut and self._waiting <= MAX_WAITING // 2:
                self._queue.append(self._leftOut)
                self._leftOut = 0

    def _withNotices(self, lines: Iterable[_Line | int]) -> Iterator[_Line]:
        lost = self._lost
        for each in lines:
            lost += each if isinstance(each, int) else 0
            if lost:
                yield self._said(f"{lost} log line{'' if lost == 1 else 's'} left out, since {self._reason}")
                lost = 0
            if not isinstance(each, int):
                yield each

    def _reopen(self) -> None:
        try:
            self._target.reopen()
        except OSError as error:
            with suppress(OSError):
                self._target.write([self._said(f"The log cannot be opened again: {systemReason(error)}")])

    def _said(self, sentence: str) -> _Line:
        return syslog.LOG_WARNING, self._notice(sentence).encode()


def endLogs(patience: float = PATIENCE) -> None:
    """Write the waiting lines of all writers at the end of the process; called by Python, but not by ``os._exit``."""
    for writer in tuple(_writers):
        writer.end(patience)


def report(line: str, stream: TextIO | None) -> None:
    """Print a line, unless that would wait for the reader of a full pipe."""
    with suppress(OSError, ValueError, AttributeError):
        waiting = select.poll()
        with suppress(io.UnsupportedOperation):
            waiting.register(stream.fileno(), select.POLLOUT)  # type: ignore[union-attr]
            if not waiting.poll(0):
                return
        stream.write(f"{line}\n")  # type: ignore[union-attr]  # at once, since the thread writes too
        stream.flush()  # type: ignore[union-attr]


_writers: WeakSet[LogWriter] = WeakSet()
atexit.register(endLogs)


def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
