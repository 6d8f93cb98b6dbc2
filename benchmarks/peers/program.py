"""A broker's process: started on a free port in an empty folder, ended by its process id."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.refused import Refused

_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
#: Where ports are looked for, the end excluded, and how often.
_PORTS, _PORTS_TRIED = (20_000, 32_000), 100
#: Where Debian puts servers, which is not in everybody's search path.
_PLACES = (str(Path(sys.executable).parent), os.defpath, "/usr/sbin", "/usr/local/sbin")


def find(name: str) -> str | None:
    """Return the path of an installed program: beside this Python, in the search path, or where servers are."""
    return shutil.which(name, path=os.pathsep.join([_PLACES[0], os.environ.get("PATH", ""), *_PLACES[1:]]))


def ask(*command: str) -> str:
    """Return the first line that a program prints, such as its version; empty if it cannot be run."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[0] if lines else ""


def freePort() -> int:
    """Return a port of this machine that nobody listens on now.

    It is none of those that a system gives to outgoing connections (from 32768 on Linux, from 49152 elsewhere), or one
    of them could have it before the broker has.

    :raises Refused: none was found.
    """
    for _ in range(_PORTS_TRIED):
        port = random.randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Refused(f"none of {_PORTS_TRIED} ports was free")


class Program:
    """Runs one command with its output in a log file, in a temporary folder of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], port: int, environment: dict[str, str] | None = None) -> None:
        """Start the command and wait until ``port`` can be connected to.

        :raises Refused: if it ends, or does not listen in time; the end of its log is in the text.
        """
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.lastWords()
                self.stop()
                raise Refused(f"the broker did not start: {said}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End the process at once, as a power cut would, and keep the folder."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_STOP_SECONDS)

    def stop(self) -> None:
        """End the process, by its id, and remove the folder."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process id.

        :raises Refused: if it does not run.
        """
        if self._process is None or self._process.poll() is not None:
            raise Refused(f"the broker does not run any more: {self.lastWords()}")
        return self._process.pid

    def lastWords(self) -> str:
        """Return the last line that the process has printed, cut to a length that fits into a reason."""
        path = self.folder / "log"
        lines = path.read_text("utf-8", "replace").split("\n") if path.exists() else []
        return next((line.strip()[-300:] for line in reversed(lines) if line.strip()), "it printed nothing")


def residentBytes(pid: int) -> int:
    """Return how much memory of a process is resident, from ``/proc``."""
    return _status(pid, "VmRSS")


def peakBytes(pid: int) -> int:
    """Return how much was resident at most, since the process began or its peak was forgotten."""
    return _status(pid, "VmHWM")


def forgetPeak(pid: int) -> None:
    """Let :func:`peakBytes` begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise Refused(f"process {pid} has no {name}")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
