"""Reports a failed start or stop: one sentence on standard error, exit code 1; after a start no pid file.

``twistd`` redirects standard error into the log before it starts services, forks to become a daemon, removes its pid
file only after exceptions shown with a traceback, and cannot report that a run of the reactor failed.
"""

import atexit
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from twisted.logger import Logger

from fleximq.services.process.log_writer import PATIENCE, SHORT_PATIENCE, endLogs, report

_log = Logger()

#: ``twistd`` reads this many bytes from its daemon process, including two leading ones.
STATUS_BYTES = 100


class StartupFailure:
    """Reports the sentence that it is called with on ``stderr``, and exits; has the options of ``twistd``."""

    def __init__(self, configuration: Mapping[str, object], stderr: TextIO | None = None) -> None:
        self._configuration = configuration
        self._stderr = stderr

    def __call__(self, sentence: str) -> NoReturn:
        """Report the reason, remove our pid file, and exit with 1; the waiting parent of a daemon is notified."""
        line = self._report(sentence)
        removePidfile(self._configuration)
        pipe = self._configuration.get("statusPipe")
        if isinstance(pipe, int):
            endLogs(SHORT_PATIENCE)  # who reads the log when the parent has ended finds the reason
            with suppress(OSError):
                os.write(pipe, b"1 " + line.encode("ascii", "backslashreplace")[: STATUS_BYTES - 2])
                os.close(pipe)
        raise SystemExit(1)

    def duringRun(self, sentence: str, reactor: Any) -> None:
        """Report the reason, and exit with 1 after an orderly stop. ``reactor``: runs or is about to run."""
        self.duringStop(sentence)
        reactor.callWhenRunning(reactor.stop)

    def duringStop(self, sentence: str) -> None:
        """Report the reason, and exit with 1 after the stop in progress."""
        self._report(sentence)
        atexit.register(exitNow, 1, PATIENCE)

    def _report(self, sentence: str) -> str:
        _log.critical("{sentence}", sentence=sentence)
        line = f"fleximq: {sentence}"
        report(line, self._stderr or sys.__stderr__)
        return line


def removePidfile(configuration: Mapping[str, object]) -> None:
    """Remove the pid file of ``twistd`` if it belongs to this process."""
    path = configuration.get("pidfile")
    if isinstance(path, str) and path:
        with suppress(OSError):
            if Path(path).read_bytes().strip() == b"%d" % os.getpid():
                os.remove(path)


def exitNow(code: int, patience: float = SHORT_PATIENCE) -> NoReturn:
    """End the interpreter with this code at once, or at its exit instead of that of ``twistd``; write the log first."""
    endLogs(patience)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
