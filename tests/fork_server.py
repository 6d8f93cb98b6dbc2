"""Starts the project's programs as forks of a server that has imported their modules, which spares each the imports.

The server starts with the first program, in a process of its own without a reactor and without threads. A child has
the arguments, environment, folder, standard streams (unbuffered) and exit of a program started by ``exec``. Use
:class:`subprocess.Popen` itself where the start of the interpreter, the size of the process or file descriptors beyond
the standard streams matter, and where variables such as PYTHONPATH change the imports.
"""

import atexit
import functools
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleximq.values.transitions import Transitions
from tests.fork_client import ANSWER, requested

ROOT = Path(__file__).parents[1]
#: The module and the function of programs, by the first of their words; after ``-m`` comes the name of a module.
PROGRAMS = {"twistd": ("twisted.scripts.twistd", "run"), "fleximq": ("fleximq.cli.main", "main")}
#: What a server imports unless other modules are named; they import all others that a broker or a command needs.
PRELOADED = (
    *(module for module, _ in PROGRAMS.values()),
    "fleximq.tap",
    "fleximq.cli.commands",
    "fleximq.journal.journal_folder",
    "fleximq.values.key_pairs",
)


class Forked(subprocess.Popen[Any]):
    """A program of ``PROGRAMS`` with its arguments; what is left of the interface is that of its base class."""

    def _execute_child(self, *given: Any) -> None:
        of = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        streams = [own if fd == -1 else fd for own, fd in enumerate((of["p2cread"], of["c2pwrite"], of["errwrite"]))]
        folder, variables = os.fspath(of["cwd"] or os.getcwd()), of["env"] or os.environ
        words, session = list(of["args"]), of["start_new_session"]
        self._link, self.pid = requested(server(), words, folder, variables, session, streams)
        self._child_created = True
        ends = (of[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            ready = select.poll()
            ready.register(self._link, select.POLLIN)
            if not ready.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            # It stays unread, so that several threads may wait.
            (self.returncode,) = ANSWER.unpack(self._link.recv(ANSWER.size, socket.MSG_PEEK))
        return self.returncode

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode


@functools.cache
def server(*modules: str) -> str:
    """Start a server with these modules, once for this process, and return the path of its socket."""
    folder = tempfile.mkdtemp(prefix="fleximq-fork-")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        listener.listen(64)
        command = [sys.executable, "-m", "tests.fork_server", str(listener.fileno()), *(modules or PRELOADED)]
        program = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(program.communicate)
    return f"{folder}/s"


def clientCommand(path: str) -> str:
    """Return the shell's words that, with those of a program behind them, run it as a fork of this server."""
    return shlex.join([sys.executable, "-I", "-S", str(Path(__file__).with_name("fork_client.py")), path])


def serve(listener: socket.socket, modules: tuple[str, ...] = PRELOADED) -> Callable[[], None]:
    """Fork children until standard input ends; in each of them, return the program to run.

    :raises SystemExit: at the end, in the server.
    """
    for name in modules:
        importlib.import_module(name)
    if "fleximq.tap" in modules:
        from twisted.application.service import IServiceMaker
        from twisted.plugin import getPlugins

        list(getPlugins(IServiceMaker))
    if "twisted.internet.reactor" in sys.modules:
        raise SystemExit("the children would share the reactor of the fork server")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # so that collections in the children copy less memory
    while 0 not in _ready(0, listener.fileno()):
        link, _ = listener.accept()
        if not os.fork():
            listener.close()
            return _started(link)
        link.close()
        while _reaped():
            pass
    while _reaped():
        pass
    raise SystemExit


def _ready(*descriptors: int) -> dict[int, int]:
    """Wait for input or the end of some descriptors, of any number: a long run of tests has more than 1,024 open."""
    found = select.poll()
    for each in descriptors:
        found.register(each, select.POLLIN)
    return dict(found.poll())


def _reaped() -> bool:
    """Reap one child that has ended, so that its processor time counts as the server's."""
    with suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    return False


def _started(link: socket.socket) -> Callable[[], None]:
    """Fork once more: tell the client about the pid and the end of the program, which is returned in it."""
    with link:
        first, streams, _, _ = socket.recv_fds(link, 1, 3)
        with link.makefile("rb") as messages:
            words, (folder, variables, session) = (
                json.loads(first + messages.readline()),
                json.loads(messages.readline()),
            )
        if pid := os.fork():
            for fd in streams:
                os.close(fd)
            link.sendall(ANSWER.pack(pid))
            end = os.pidfd_open(pid)
            if end not in _ready(end, link.fileno()):
                os.kill(pid, signal.SIGKILL)  # The client is gone.
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(BrokenPipeError):
                link.sendall(ANSWER.pack(code))
            os._exit(0)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(3, max(streams) + 1)
    if session:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _unbuffered(1), _unbuffered(2)
    Transitions.strict = False
    if words[0] == "-m":
        sys.argv = words[1:]
        return functools.partial(_run, lambda: runpy.run_module(words[1], run_name="__main__", alter_sys=True) and None)
    sys.argv = words
    module, function = PROGRAMS[words[0]]
    return functools.partial(_run, getattr(sys.modules[module], function))


def _unbuffered(fd: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(fd, "wb", closefd=False), write_through=True)


def _run(program: Callable[[], object]) -> None:
    """Run a program and end as the interpreter does, without its slow deletion of all modules."""
    try:
        code = program()
    except SystemExit as end:
        code = end.code
    if code is not None and not isinstance(code, int):
        sys.exit(str(code))  # prints it
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code or 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), tuple(sys.argv[2:]))()
