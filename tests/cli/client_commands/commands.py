"""Runs the commands against a real broker, in this process or in one of their own."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from fleximq.cli.main import main
from fleximq.client.blocking import Client, connect
from tests.broker_process import BrokerProcess
from tests.fork_server import Forked

PATIENCE = 300.0


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """What it wrote to standard output."""
        return self.out.decode().splitlines()


def ran(*words: str, input: bytes = b"") -> Ran:
    """Run a command in this process, to its end."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(input)))
    with mock.patch.object(sys, "stdin", stdin), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
            err.write(str(end.code))
        out.flush()
    return Ran(code, out.buffer.getvalue(), err.getvalue())


def started(*words: str, **more: Any) -> "subprocess.Popen[bytes]":
    """Start a command in a process of its own."""
    source = str(Path(fleximq.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return Forked(["fleximq", *words], env=environment, **settings)


class CommandCase(SynchronousTestCase):
    """A broker, without a profile or a variable that would name another one."""

    options: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Start the broker."""
        self.broker = BrokerProcess(*self.options)
        self.broker.__enter__()
        self.addCleanup(self.broker.stop)
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"
        variables = {name: value for name, value in os.environ.items() if not name.startswith("FLEXIMQ_")}
        variables |= {"FLEXIMQ_URL": self.url, "FLEXIMQ_PROFILES": str(Path(self.mktemp()).absolute())}
        patched = mock.patch.dict(os.environ, variables, clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def client(self) -> Client:
        """Return a client of this test's own."""
        client = connect(self.url)
        self.addCleanup(client.close)
        return client

    def start(self, *words: str, **more: Any) -> "subprocess.Popen[bytes]":
        """Start a command, which is ended with the test."""
        process = started(*words, **more)
        self.addCleanup(_end, process)
        return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(PATIENCE)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
