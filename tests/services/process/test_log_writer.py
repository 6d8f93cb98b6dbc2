"""The thread that writes the log: order, bounds, and the real program at outputs that take nothing."""

import contextlib
import fcntl
import os
import re
import socket
import subprocess
import syslog
import tempfile
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.process.log_writer import MAX_WAITING, Descriptor, LogPath, LogWriter, SystemLog, report
from tests.broker_process import PATIENCE, BrokerProcess


class Target:
    """Notes what it is given; blocks while ``open`` is not set, and fails with ``error``."""

    slow = "nobody read"

    def __init__(self) -> None:
        self.open, self.lines, self.steps = Event(), list[bytes](), list[str]()
        self.error: OSError | None = None

    def write(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Take lines."""
        self.open.wait(PATIENCE)
        if self.error:
            raise self.error
        self.lines += [line for _, line in lines]

    def reopen(self) -> None:
        """Note it."""
        self.lines.append(b"reopened\n")


class WriterTests(SynchronousTestCase):
    """Lines, without a broker."""

    def setUp(self) -> None:
        """A writer."""
        self.target = Target()
        self.writer = LogWriter(self.target, lambda sentence: f"! {sentence}\n")

    def test_order(self) -> None:
        """Lines before and after the start, and a new file between them, are written in order."""
        self.target.open.set()
        self.writer.write("a\n")
        self.writer.start()
        self.writer.write("b\n")
        self.writer.reopen()
        self.writer.write("c\n")
        self.writer.end()
        self.assertEqual(self.target.lines, [b"a\n", b"b\n", b"reopened\n", b"c\n"])

    def test_neverStarted(self) -> None:
        """A start that fails writes its lines at the end all the same."""
        self.target.open.set()
        self.writer.write("a\n")
        self.writer.end()
        self.assertEqual(self.target.lines, [b"a\n"])

    def test_leftOut(self) -> None:
        """What exceeds the bound is left out and counted, and said once before what follows."""
        line = "x" * 1023 + "\n"
        fitting = MAX_WAITING // len(line)
        for _ in range(fitting + 3):
            self.writer.write(line)
        self.target.open.set()
        self.writer.end()
        self.assertEqual(self.target.lines[:-1], [line.encode()] * fitting)
        self.assertEqual(self.target.lines[-1], b"! 3 log lines left out, since nobody read\n")

    def test_fault(self) -> None:
        """Lines that could not be written are counted too, and said when it goes on."""
        self.target.open.set()
        self.target.error = OSError(28, "No space left on device")
        self.writer.write("a\n")
        self.writer.end()
        self.target.error = None
        self.writer.write("b\n")
        self.writer.end()
        sentence = b"! 1 log line left out, since they could not be written: no space left on device\n"
        self.assertEqual(self.target.lines, [sentence, b"b\n"])

    def test_bounded(self) -> None:
        """The end does not wait for a target that takes nothing."""
        self.addCleanup(self.target.open.set)
        self.writer.start()
        self.writer.write("a\n")
        self.writer.end(0.01)
        self.assertEqual(self.target.lines, [])


class TargetTests(SynchronousTestCase):
    """Where lines go."""

    def test_nonBlocking(self) -> None:
        """A pipe that somebody has made non-blocking loses nothing."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, writing)
        os.set_blocking(writing, False)
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        writer = LogWriter(Descriptor(writing), str)
        writer.start()
        text = "x" * 20_000 + "\n"
        writer.write(text)
        with os.fdopen(reading, "rb") as pipe:
            self.assertEqual(pipe.read(len(text)), text.encode())
        writer.end()

    def lines(self, path: str) -> list[str]:
        """Return what is in a file."""
        return Path(path).read_text().split()

    def rotated(self, change: Any) -> tuple[str, list[str]]:
        """Return the path of a log after a change and a reopening between two lines, and its content."""
        path = self.mktemp()
        writer = LogWriter(LogPath(path), str)
        writer.write("a\n")
        writer.end()
        change(path)
        writer.reopen()
        writer.write("b\n")
        writer.end()
        return path, self.lines(path)

    def test_moved(self) -> None:
        """A file that was moved is left alone, and another one begun."""
        path, content = self.rotated(lambda path: os.rename(path, path + ".old"))
        self.assertEqual((self.lines(path + ".old"), content), (["a"], ["b"]))

    def test_mode(self) -> None:
        """Who could read the old file can read the new one, whatever the umask is by then."""

        def change(path: str) -> None:
            os.chmod(path, 0o644)
            os.rename(path, path + ".old")
            self.addCleanup(os.umask, os.umask(0o077))

        path, _ = self.rotated(change)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)

    def test_created(self) -> None:
        """A file made in its place is used as it is."""

        def create(path: str) -> None:
            os.rename(path, path + ".1")
            Path(path).touch()

        path, content = self.rotated(create)
        self.assertEqual((self.lines(path + ".1"), content), (["a"], ["b"]))
        self.assertFalse(os.path.exists(path + ".2"))

    def test_inPlace(self) -> None:
        """A file that is in its place is renamed, as twistd does."""
        path, content = self.rotated(lambda path: None)
        self.assertEqual((self.lines(path + ".1"), content), (["a"], ["b"]))

    def test_truncated(self) -> None:
        """After a truncation the next line is the first, without a hole before it."""
        path = self.mktemp()
        target = LogPath(path)
        target.write([(0, b"a\n")])
        os.truncate(path, 0)
        target.write([(0, b"b\n")])
        self.assertEqual(Path(path).read_bytes(), b"b\n")

    def test_cannotReopen(self) -> None:
        """If the new file cannot be opened, the old one goes on, and says so."""
        folder = Path(self.mktemp())
        folder.mkdir()
        writer = LogWriter(LogPath(str(folder / "log")), lambda sentence: f"! {sentence}\n")
        folder.rename(f"{folder}.old")
        writer.reopen()
        writer.write("b\n")
        writer.end()
        content = Path(f"{folder}.old/log").read_text()
        self.assertEqual(content, "! The log cannot be opened again: no such file or directory\nb\n")

    def test_system(self) -> None:
        """Syslog gets lines with their priority."""
        sent: list[tuple[int, str]] = []
        self.patch(syslog, "syslog", lambda priority, line: sent.append((priority, line)))
        SystemLog("twisted").write([(syslog.LOG_WARNING, b"a\n\tb\n")])
        self.assertEqual(sent, [(syslog.LOG_WARNING, "a"), (syslog.LOG_WARNING, "\tb")])

    def test_fullStderr(self) -> None:
        """A sentence for a pipe that is full is not waited for."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_blocking(writing, False)
        with os.fdopen(writing, "w") as stream:
            try:
                while os.write(writing, b"x" * 4096):
                    pass
            except BlockingIOError:
                os.set_blocking(writing, True)
            report("late", stream)


class ProgramTests(SynchronousTestCase):
    """A real broker whose standard output is a full pipe."""

    def setUp(self) -> None:
        """A broker that listens; then its pipe is filled."""
        reading, writing = os.pipe()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        words = BrokerProcess("--listen", "unix:s").command
        self.process = subprocess.Popen(words, cwd=folder.name, stdout=writing, stderr=writing)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.socket = f"{folder.name}/s"
        self.log = os.fdopen(reading)
        self.addCleanup(self.log.close)
        while "Listening on" not in (line := self.log.readline()):
            self.assertTrue(line)
        ours = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)  # the broker's still blocks
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while os.write(ours, b"\n" * size):
                    pass
        os.close(ours)
        os.close(writing)

    def join(self) -> None:
        """Let a client join and leave, so that the log grows by two lines."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(self.socket)
            client.sendall(b"PING:\n")
            self.assertEqual(client.recv(5), b"PONG:")

    def test_goesOn(self) -> None:
        """Clients are served; a stop ends it in time, and all that was logged can be read in order."""
        for _ in range(9):
            self.join()
        self.process.terminate()
        log = self.log.read()
        self.assertEqual(self.process.wait(PATIENCE), 0)
        self.assertEqual(re.findall(r"minimq-(\d+) joined", log), [str(1000 + each) for each in range(9)])
        self.assertTrue(log.endswith("Server Shut Down.\n"), log[-200:])

    def test_stops(self) -> None:
        """SIGTERM ends it although the pipe stays full."""
        self.join()
        self.process.terminate()
        self.assertEqual(self.process.wait(PATIENCE), 0)
