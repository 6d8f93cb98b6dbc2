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
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleximq.values.transitions import Transitions

ROOT = Path(__file__).parents[1]
#: The module and the function of each program, by the first of its words.
PROGRAMS = {"twistd": ("twisted.scripts.twistd", "run"), "fleximq": ("fleximq.cli.main", "main")}
#: Imported by the server; they import all others that a broker or a command needs.
_PRELOADED = ("fleximq.tap", "fleximq.cli.commands", "fleximq.journal.disk_journal", "fleximq.values.key_pairs")


class Forked(subprocess.Popen[Any]):
    """A program of ``PROGRAMS`` with its arguments; what is left of the interface is that of its base class."""

    def _execute_child(self, *given: Any) -> None:
        of = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        streams = [own if fd == -1 else fd for own, fd in enumerate((of["p2cread"], of["c2pwrite"], of["errwrite"]))]
        self._link, far = socket.socketpair()
        with far:
            socket.send_fds(_server(), [b"+"], [*streams, far.fileno()])
        request = [
            list(of["args"]),
            os.fspath(of["cwd"] or os.getcwd()),
            dict(of["env"] or os.environ),
            of["start_new_session"],
        ]
        with self._link.makefile("rw") as messages:
            print(json.dumps(request), file=messages, flush=True)
            self.pid = int(messages.readline())
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
            self.returncode = int(self._link.recv(16, socket.MSG_PEEK))
        return self.returncode

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode


@functools.cache
def _server() -> socket.socket:
    """Start the server, once for this process, and return the connection to it."""
    near, far = socket.socketpair()
    with far:
        command = [sys.executable, "-m", "tests.fork_server", str(far.fileno())]
        server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[far.fileno()])
    atexit.register(server.wait)
    atexit.register(near.close)
    return near


def serve(channel: socket.socket) -> Callable[[], None]:
    """Fork children until the other side closes; in each of them, return the program to run.

    :raises SystemExit: at the end, in the server.
    """
    for name in (*_PRELOADED, *(module for module, _ in PROGRAMS.values())):
        importlib.import_module(name)
    from twisted.application.service import IServiceMaker
    from twisted.plugin import getPlugins

    list(getPlugins(IServiceMaker))
    if "twisted.internet.reactor" in sys.modules:
        raise SystemExit("the children would share the reactor of the fork server")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # so that collections in the children copy less memory
    while fds := socket.recv_fds(channel, 1, 4)[1]:
        if not os.fork():
            channel.close()
            return _started(fds)
        for fd in fds:
            os.close(fd)
        while _reaped():
            pass
    while _reaped():
        pass
    raise SystemExit


def _reaped() -> bool:
    """Reap one child that has ended, so that its processor time counts as the server's."""
    with suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    return False


def _started(fds: list[int]) -> Callable[[], None]:
    """Fork once more: tell the parent's side about the pid and the end of the program, which is returned in it."""
    *streams, link = fds
    with socket.socket(fileno=link) as parent:
        words, folder, variables, session = json.loads(parent.makefile().readline())
        if pid := os.fork():
            for fd in streams:
                os.close(fd)
            parent.sendall(f"{pid}\n".encode())
            parent.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os._exit(0)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(3, max(fds) + 1)
    if session:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = words
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _unbuffered(1), _unbuffered(2)
    Transitions.strict = False
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
    serve(socket.socket(fileno=int(sys.argv[1])))()
