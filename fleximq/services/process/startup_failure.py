"""Ends a start that cannot succeed: one sentence where the operator sees it, exit code 1, no pid file.

``twistd`` sends standard error into the log before it starts services, forks if it is to be a daemon, and removes
its pid file only for exceptions that it shows with a traceback. So all of this is done here. Nor has it a way to say
that a run of the reactor was in vain.
"""

import atexit
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from twisted.logger import Logger

_log = Logger("fleximq.services.departure")

#: ``twistd`` reads so many bytes from the process that becomes the daemon, its two leading ones included.
STATUS_BYTES = 100


class StartupFailure:
    """Called with a sentence, it says it and leaves.

    :param configuration: the options of ``twistd`` itself, of which it looks at ``pidfile`` and ``statusPipe``
        when it is called; without them it only speaks and leaves.
    :param stderr: where to speak; the process's own standard error if None.
    """

    def __init__(self, configuration: Mapping[str, object], stderr: TextIO | None = None) -> None:
        self._configuration = configuration
        self._stderr = stderr

    def __call__(self, sentence: str) -> NoReturn:
        """Say why, remove our pid file, and tell the waiting parent of a daemon, which ends then.

        :raises SystemExit: always, with 1.
        """
        line = self._tell(sentence)
        removePidfile(self._configuration)
        self._tellParent(line)
        raise SystemExit(1)

    def duringRun(self, sentence: str, reactor: Any) -> None:
        """Say why, and let the process end with 1 after everything was stopped in good order.

        :param reactor: one that runs, or is about to.
        """
        self._tell(sentence)
        atexit.register(_exitWithFailure)
        reactor.callWhenRunning(reactor.stop)

    def _tell(self, sentence: str) -> str:
        _log.critical("{sentence}", sentence=sentence)
        line = f"fleximq: {sentence}"
        self._say(line)
        return line

    def _say(self, line: str) -> None:
        stderr = self._stderr or sys.__stderr__
        if stderr is not None:
            with suppress(OSError, ValueError):
                print(line, file=stderr, flush=True)

    def _tellParent(self, line: str) -> None:
        pipe = self._configuration.get("statusPipe")
        if isinstance(pipe, int):
            with suppress(OSError):
                os.write(pipe, b"1 " + line.encode("ascii", "backslashreplace")[: STATUS_BYTES - 2])
                os.close(pipe)


def removePidfile(configuration: Mapping[str, object]) -> None:
    """Remove the pid file that ``twistd`` was told to write, if it is this process's own."""
    path = configuration.get("pidfile")
    if isinstance(path, str) and path:
        with suppress(OSError):
            if Path(path).read_bytes().strip() == b"%d" % os.getpid():
                os.remove(path)


def _exitWithFailure() -> NoReturn:
    """End the interpreter, in its last moment, with another exit code than the one ``twistd`` gave it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(1)
