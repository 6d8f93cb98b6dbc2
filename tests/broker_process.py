"""A broker in a process of its own, for tests that need the real program.

::

    with BrokerProcess("--keepalive", "1") as broker:
        stream = socket.create_connection(broker.address)

The broker is started as by ``twistd -n fleximq``, in a temporary folder, on ports that the system
chooses, which are read from its log. It is ended by its process id, and every wait has an end. Calls block: use it
where no reactor of the test's own has to turn meanwhile.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import fleximq
from tests.fork_server import Forked

#: Seconds that a wait may last; they cost nothing while the broker does as it should.
PATIENCE = 300.0
#: Seconds between two questions to a broker that prints nothing: what is waited for may be no line.
AGAIN = 0.25
#: What is listened on if the arguments name nothing: all dialects, loopback only, a port that the system chooses.
ANY_PORT = ("--listen", "tcp:0:interface=127.0.0.1")

_STREAMS = {"stdin", "stdout", "stderr"}
_LISTENING = re.compile(r"Listening on (\S+)")
_PORT = re.compile(r":(\d+)$")


class BrokerFailed(AssertionError):
    """The broker did not do in time what was waited for; the text ends with all that it printed."""


class BrokerProcess:
    """Runs ``twistd -n fleximq`` with these arguments; without a ``--listen`` among them, with ``ANY_PORT``.

    As a context manager it is entered when every listener is open, and left when the process is gone.
    ``environment`` adds to the variables that the broker sees, ``launcher`` is a program and its arguments that start
    it in their turn, ``more`` goes to :class:`subprocess.Popen`. Its working directory, ``folder``, is new and empty,
    and removed at the end; a relative ``unix:`` path in ``--listen`` is created there.

    By default it is a fork of :mod:`tests.fork_server`; ``fresh`` starts a new interpreter, as do a ``launcher``, a
    PYTHON variable in ``environment`` and in ``more`` anything beyond the standard streams.
    """

    #: Whether every broker of a subclass is started by a new interpreter.
    fresh = False

    #: The interpreter that runs it.
    python = sys.executable

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        launcher: Sequence[str] = (),
        fresh: bool = False,
        **more: Any,
    ) -> None:
        self.arguments = arguments if "--listen" in arguments else (*ANY_PORT, *arguments)
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-"))
        self._environment = environment or {}
        self._launcher = launcher
        self._more = more
        imports = any(name.startswith("PYTHON") for name in self._environment)
        self._fresh = bool(fresh or self.fresh or launcher or imports or more.keys() - _STREAMS)
        self._process: subprocess.Popen[bytes] | None = None
        self._printed = ""
        self._news = threading.Condition()
        self._ended = False

    # Running

    def start(self) -> None:
        """Start the process, and do not wait for anything."""
        kind, command = (subprocess.Popen, self.command) if self._fresh else (Forked, ["twistd", *self._words])
        self._process = kind(
            command,
            cwd=self.folder,
            env=self.variables,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **self._more},
        )
        threading.Thread(target=self._collect, args=(self._process,), daemon=True).start()

    def closeInput(self) -> None:
        """End the broker's standard input, where it was given a pipe (``stdin=subprocess.PIPE``)."""
        assert self._process is not None and self._process.stdin is not None, "there is no pipe to the broker"
        self._process.stdin.close()

    @property
    def command(self) -> list[str]:
        """The words with which it is started."""
        twistd = Path(sysconfig.get_path("scripts")) / "twistd"
        return [*self._launcher, self.python, str(twistd), *self._words]

    @property
    def _words(self) -> list[str]:
        return ["-n", "--pidfile=", "fleximq", *self.arguments]

    @property
    def variables(self) -> dict[str, str]:
        """The environment in which it is started."""
        source = str(Path(fleximq.__file__).parents[1])
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([source, inherited] if inherited else [source])
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **self._environment}

    def _collect(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                with self._news:
                    self._printed += line.decode("utf-8", "replace")
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def __enter__(self) -> "BrokerProcess":
        self.start()
        try:
            self.waitFor(lambda: len(self.listeners) >= self.arguments.count("--listen"), "all listeners to open")
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped = self.stop()
        if not stopped and error is None:
            raise BrokerFailed(f"the broker went on after SIGTERM\n{self._printed}")

    def stop(self, signal: int = signal.SIGTERM) -> bool:
        """Send a signal, wait for the end and tidy up; return False if the process had to be killed after that."""
        stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                stopped = False
                self._process.kill()
                self._process.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
        return stopped

    # Asking

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def output(self) -> str:
        """All that the broker has printed so far, its log included."""
        with self._news:
            return self._printed

    @property
    def listeners(self) -> list[str]:
        """What the broker says it listens on, in the order of its log, e.g. ``tcp:127.0.0.1:40123``."""
        return _LISTENING.findall(self.output)

    def port(self, n: int = 0) -> int:
        """Return the port of the nth listener that has one, in the order of the log."""
        return [int(found[1]) for found in map(_PORT.search, self.listeners) if found][n]

    @property
    def address(self) -> tuple[str, int]:
        """Where the first listener with a port is found, ready for ``socket.create_connection``."""
        return "127.0.0.1", self.port()

    # Waiting

    def waitFor(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        """Wait until ``holds()`` is true; it is asked whenever the broker has printed a line, and at times without one.

        :raises BrokerFailed: if that is not so in time, or the broker ends without it.
        """
        deadline = time.monotonic() + seconds
        with self._news:
            while not holds():
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    why = "the broker ended" if self._ended else f"{seconds:g} seconds went by"
                    raise BrokerFailed(f"waited for {what}, but {why}\n{self._printed}")
                self._news.wait(min(left, AGAIN))

    def hasEnded(self, seconds: float = PATIENCE) -> bool:
        """Wait at most so many seconds for the end of the process; return whether it has ended."""
        with self._news:
            return self._news.wait_for(lambda: self._ended, seconds)

    def waitForOutput(self, pattern: str, seconds: float = PATIENCE) -> "re.Match[str]":
        """Wait until what the broker printed matches a regular expression, and return the first match.

        :raises BrokerFailed: if it does not in time, or the broker ends without it.
        """
        self.waitFor(lambda: re.search(pattern, self._printed), f"output like {pattern!r}", seconds)
        found = re.search(pattern, self.output)
        assert found is not None
        return found

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for the broker to end by itself and return its exit code; -15 says that SIGTERM ended it.

        :raises BrokerFailed: if it runs on.
        """
        assert self._process is not None, "the broker was not started"
        deadline = time.monotonic() + seconds
        with self._news:
            while not self._ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BrokerFailed(f"the broker still runs after {seconds:g} seconds\n{self._printed}")
                self._news.wait(left)
        return self._process.wait(PATIENCE)


def runToTheEnd(*arguments: str, fresh: bool = False) -> tuple[int, str]:
    """Run a broker that is expected to end by itself, and return its exit code and all that it printed.

    :raises BrokerFailed: if it runs on.
    """
    broker = BrokerProcess(*arguments, fresh=fresh)
    try:
        broker.start()
        return broker.wait(), broker.output
    finally:
        broker.stop(signal.SIGKILL)
