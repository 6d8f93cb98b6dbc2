"""What a reader of a page in docs/ has: its programs, a shell with our commands, and a broker on a port of its own."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from tests import readme
from tests.broker_process import PATIENCE, BrokerProcess
from tests.fork_server import clientCommand, server

ROOT = Path(__file__).parents[1]


def conversations(text: str) -> list[str]:
    """Return the names of a page's conversations, in order."""
    return re.findall(r"^\.\. conversation: (\w+)$", text, re.MULTILINE)


def answer(text: str, name: str, port: int) -> tuple[str, str]:
    """Return what a conversation writes to standard error and standard output, as a program of its own."""
    ended = subprocess.run(
        [sys.executable, "-c", readme.conversation(text, name, port)],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    return ended.stderr, ended.stdout


def tableRows(text: str) -> list[list[str]]:
    """Return the rows of all simple tables of a page, without the headings; a cell of several lines is one text."""
    found: list[list[str]] = []
    columns: list[slice] = []
    rules = 0
    for line in text.splitlines():
        if re.fullmatch(r"=+(  =+)+", line):
            rules = rules % 3 + 1
            columns = [slice(*each.span()) for each in re.finditer("=+", line)]
        elif rules == 2:
            cells = [line[column].strip() for column in columns]
            if cells[0]:
                found.append(cells)
            else:  # The row goes on.
                found[-1] = [f"{before} {cell}".strip() for before, cell in zip(found[-1], cells, strict=True)]
    return found


class ShellCase(SynchronousTestCase):
    """A folder with ``.venv/bin`` as the pages have it, and a broker."""

    text: str
    options: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Make both."""
        self.broker = BrokerProcess(*self.options).__enter__()
        self.addCleanup(self.broker.stop)
        folder = tempfile.TemporaryDirectory(prefix="fleximq-page-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        commands = self.folder / ".venv" / "bin"
        commands.mkdir(parents=True)
        for name, words in (("fleximq", f"{clientCommand(server())} fleximq"), ("python", sys.executable)):
            path = commands / name
            path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} PYTHONUNBUFFERED=1 exec {words} "$@"\n')
            path.chmod(0o755)
        self.variables = {
            "PATH": f"{commands}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "FLEXIMQ_URL": f"tcp://127.0.0.1:{self.broker.port()}",
        }

    def code(self, name: str) -> str:
        """Return what the page says to save or to run, for this broker."""
        return readme.saved(self.text, name).replace("7890", str(self.broker.port()))

    def start(self, code: str) -> "subprocess.Popen[str]":
        """Run lines of a shell in the background."""
        started = subprocess.Popen(
            ["sh", "-c", code], cwd=self.folder, env=self.variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.addCleanup(self._end, started)
        return started

    def _end(self, started: "subprocess.Popen[str]") -> None:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate(timeout=PATIENCE)

    def done(self, code: str) -> str:
        """Run lines of a shell to their end, which must be a good one, and return what they print."""
        ended = subprocess.run(
            ["sh", "-e", "-c", code],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    def untilSubscribed(self, number: int = 1) -> None:
        """Wait until so many subscriptions are there."""
        with connect(self.variables["FLEXIMQ_URL"]) as client:
            deadline = time.monotonic() + PATIENCE
            while sum(each["subscriptions"] for each in client.ask("/broker/clients")["clients"]) < number:
                self.assertLess(time.monotonic(), deadline)

    def lines(self, started: "subprocess.Popen[str]", number: int) -> list[str]:
        """Return the next lines that it prints."""
        assert started.stdout is not None
        return [started.stdout.readline().rstrip("\n") for _ in range(number)]
