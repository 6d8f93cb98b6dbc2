"""A forked program looks like one started by ``exec``, from outside and to itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests import fork_server
from tests.fork_server import Forked

PATIENCE = 300.0


class ForkedTests(SynchronousTestCase):
    """Programs that end by themselves and others that are ended."""

    def forked(self, *words: str, **more: Any) -> Forked:
        """Start a program, which is killed at the end of the test."""
        program = Forked(
            words, **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        )
        self.addCleanup(program.wait, PATIENCE)
        self.addCleanup(program.kill)
        for stream in (program.stdin, program.stdout, program.stderr):
            if stream is not None:
                self.addCleanup(stream.close)
        return program

    def serving(self, **more: Any) -> Forked:
        """Start a broker with itself as the client of its standard streams, and wait until it runs."""
        program = self.forked("twistd", "-n", "--pidfile=", "fleximq", "--listen", "minimq+stdio:", **more)
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(b"PING:\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), b"PONG:\n")
        return program

    def test_streams(self) -> None:
        """Input, output and errors are separate streams, and the exit code is 0."""
        program = self.serving()
        out, error = program.communicate(b"PING:\n", PATIENCE)
        self.assertEqual((out, program.returncode), (b"PONG:\n", 0))
        self.assertIn(b"Listening on stdio:", error)

    def test_refused(self) -> None:
        """A text given to ``SystemExit`` is printed, and the exit code is 1."""
        out, error = self.forked("fleximq", "nonsense").communicate(timeout=PATIENCE)
        self.assertEqual((out, error.count(b"\n")), (b"", 1))
        self.assertRegex(error, b"^fleximq: .*nonsense")

    def test_file(self) -> None:
        """Output can go to a file, in the order of writing with that of errors."""
        path = Path(self.mktemp())
        with path.open("wb") as file:
            program = self.forked("fleximq", "--version", stdin=None, stdout=file, stderr=subprocess.STDOUT)
            self.assertEqual(program.wait(PATIENCE), 0)
        self.assertRegex(path.read_text(), r"^FlexiMQ \S+ \((compiled|pure Python)\)\n$")

    def test_folderAndVariables(self) -> None:
        """The program runs in the folder and sees the variables that it is given, and no others."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "own.toml").write_text("keepalive = 5\n")
        program = self.forked("fleximq", "check-config", "own.toml", cwd=folder)
        self.assertEqual(program.communicate(timeout=PATIENCE)[1], b"")
        self.assertEqual(program.returncode, 0)
        with mock.patch.dict(os.environ, {"FLEXIMQ_URL": "tcp://127.0.0.1:1"}):
            words = ("fleximq", "ping", "--count", "1")
            for env, url in ((None, b"127.0.0.1:1"), ({"FLEXIMQ_URL": "unix:/none"}, b"/none")):
                program = self.forked(*words, env=env)
                self.assertIn(url, program.communicate(timeout=PATIENCE)[1])

    def test_signals(self) -> None:
        """SIGTERM and SIGINT end a broker in good order; SIGKILL is the negative return code."""
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
            program = self.serving()
            self.assertIs(program.poll(), None)
            self.assertRaises(subprocess.TimeoutExpired, program.wait, 0.01)
            program.send_signal(number)
            self.assertEqual((program.wait(PATIENCE), program.poll(), program.returncode), (code, code, code))
            self.assertRaises(ProcessLookupError, os.kill, program.pid, 0)

    def test_session(self) -> None:
        """It is in the process group of its parent, or in one of its own."""
        self.assertEqual(os.getpgid(self.serving().pid), os.getpgid(0))
        program = self.serving(start_new_session=True)
        self.assertEqual(os.getpgid(program.pid), program.pid)

    def test_descriptors(self) -> None:
        """It inherits none of the sockets of the server."""
        folder = Path(f"/proc/{self.serving().pid}/fd")
        self.assertEqual([each for each in folder.iterdir() if os.readlink(each).startswith("socket:")], [])

    test_descriptors.skip = None if Path("/proc/self/fd").exists() else "there is no /proc"  # type: ignore[attr-defined]


class PreloadedTests(SynchronousTestCase):
    """What the server imports."""

    def test_noReactor(self) -> None:
        """Children share neither a reactor nor threads."""
        program = (
            "import socket, sys, threading; from tests.fork_server import serve\n"
            "try: serve(socket.socket())\n"
            "except SystemExit as end: code = end.code\n"
            "print(code, 'twisted.internet.reactor' in sys.modules, threading.active_count())"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program],
            cwd=fork_server.ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
        )
        self.assertEqual((ended.stdout, ended.stderr), (b"None False 1\n", b""))
