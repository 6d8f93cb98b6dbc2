"""A forked program looks like one started by ``exec``, from outside and to itself."""

import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

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

    def test_descriptors(self) -> None:
        """It inherits none of the sockets of the server."""
        folder = Path(f"/proc/{self.serving().pid}/fd")
        self.assertEqual([each for each in folder.iterdir() if os.readlink(each).startswith("socket:")], [])

    def test_aServerWithAHighDescriptorAccepts(self) -> None:
        """Its listener may be the last of thousands of descriptors."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2048, hard)), hard))
        one, other = os.pipe()
        high = fcntl.fcntl(one, fcntl.F_DUPFD, 1100)
        self.addCleanup(os.close, high)
        os.close(one)
        os.close(other)
        self.assertEqual(list(fork_server._ready(high)), [high])

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
