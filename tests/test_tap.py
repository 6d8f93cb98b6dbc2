"""The real program: what ``twistd fleximq`` says and leaves behind, in the foreground and as a daemon."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq

#: Seconds that anything may take; they cost nothing while all goes well.
PATIENCE = 300.0


@contextlib.contextmanager
def takenPort() -> Iterator[str]:
    """Yield a ``--listen`` value that somebody else has taken."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"


class TwistdTests(SynchronousTestCase):
    """Runs twistd in an empty folder of its own."""

    def setUp(self) -> None:
        """The folder; its name is short enough for sockets."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.more: list[str] = []

    def twistd(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end, or to that of the process that a daemon leaves behind."""
        program = Path(sysconfig.get_path("scripts")) / "twistd"
        source = str(Path(fleximq.__file__).parents[1])
        return subprocess.run(
            [sys.executable, str(program), *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([source, *self.more, os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def plugIn(self, code: str) -> None:
        """Install a drop-in file that holds one plug-in, for the programs that are run from now on."""
        drop = self.folder / "more" / "twisted" / "plugins"
        drop.mkdir(parents=True)
        (drop / "sample_plugin.py").write_text(f"from fleximq.plugin import Dialect\n\nsample = {code}\n")
        self.more = [str(self.folder / "more")]

    def left(self) -> list[str]:
        """Return what is in the folder now."""
        return sorted(os.listdir(self.folder))


class SentenceTests(TwistdTests):
    """What goes wrong is one sentence and exit code 1."""

    def test_help(self) -> None:
        """The help is ours, on standard output."""
        ended = self.twistd("fleximq", "--help")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertTrue(ended.stdout.startswith("Usage: twistd [options] fleximq [--listen"), ended.stdout)
        self.assertIn("Examples:", ended.stdout)

    def test_wrongValue(self) -> None:
        """A wrong value is told on standard error alone."""
        ended = self.twistd("-n", "fleximq", "--keepalive", "soon")
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        self.assertEqual(
            ended.stderr, "fleximq: keepalive is 'soon', but must be a number of seconds, e.g. 30 or 0.5\n"
        )

    def test_wrongConfig(self) -> None:
        """So is what is wrong in a settings file, and one that is not there."""
        (self.folder / "x.toml").write_text("keepalive = 0\n")
        for name, words in (
            ("x.toml", "x.toml: keepalive is 0, but must be over 0 and at most 31622400 seconds"),
            ("y.toml", "y.toml cannot be read: no such file or directory"),
        ):
            ended = self.twistd("-n", "fleximq", "--config", name)
            self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (1, "", f"fleximq: {words}\n"))

    def test_dialectThatCannotBeLoaded(self) -> None:
        """A plug-in that a listener names has to be there in full."""
        self.plugIn("Dialect('gone', stream='there.is.no.such')")
        ended = self.twistd("-n", "fleximq", "--listen", "gone+tcp:0")
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(
            ended.stderr,
            "fleximq: the dialect gone cannot be loaded: 'there.is.no.such' does not name an object\n",
        )
        self.assertNotIn("Traceback", ended.stdout)

    def test_collision(self) -> None:
        """Plug-ins that collide are told before anything starts."""
        self.plugIn("Dialect('minimq')")
        ended = self.twistd("-n", "fleximq")
        self.assertEqual(
            (ended.returncode, ended.stderr),
            (1, "fleximq: two plug-ins bring a dialect named minimq: uninstall one of them\n"),
        )

    def test_takenPort(self) -> None:
        """A port that is taken is told without a traceback; nothing is left behind."""
        with takenPort() as listen:
            ended = self.twistd("-n", "fleximq", "--listen", listen)
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(ended.stderr, f"fleximq: cannot listen on {listen}: address already in use\n")
        self.assertNotIn("Traceback", ended.stdout)
        self.assertEqual(self.left(), [])

    def test_daemonTakenPort(self) -> None:
        """The process that started a daemon tells it too, and leaves only the log."""
        with takenPort() as listen:
            ended = self.twistd("fleximq", "--listen", listen)
        self.assertEqual(ended.returncode, 1)
        self.assertIn(f"fleximq: cannot listen on {listen}: address already in use", ended.stderr)
        self.assertEqual(self.left(), ["twistd.log"])
        log = (self.folder / "twistd.log").read_text()
        self.assertIn(f"cannot listen on {listen}: address already in use", log)
        self.assertNotIn("Traceback", log)

    def test_secondListener(self) -> None:
        """A second listener that cannot be opened ends all; what the first left does not stop the next start."""
        with takenPort() as listen:
            ended = self.twistd("-n", "fleximq", "--listen", "unix:s", "--listen", listen)
            self.assertEqual(ended.returncode, 1)
            again = self.twistd("-n", "fleximq", "--listen", "unix:s", "--listen", listen)
        self.assertEqual(again.stderr, ended.stderr)


class PidFileTests(TwistdTests):
    """A pid file that was left in the folder."""

    def started(self, content: str) -> "subprocess.CompletedProcess[str]":
        """Start a broker that serves standard input, which ends at once, in a folder with this pid file."""
        (self.folder / "twistd.pid").write_text(content)
        return self.twistd("-n", "fleximq", "--listen", "stdio:")

    def test_stale(self) -> None:
        """That of a dead process, of another program, and an empty one prevent no start, and are removed at the end."""
        other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        self.addCleanup(other.communicate)
        for content in ("", "\n", f"{2**22 + 1}", f"{other.pid}"):
            ended = self.started(content)
            self.assertEqual((ended.returncode, self.left()), (0, []), ended.stderr)

    def test_ownNumber(self) -> None:
        """So it is with the process id that the new broker has too, as in a container that is started again."""
        program = Path(sysconfig.get_path("scripts")) / "twistd"
        words = f"echo -n $$ > twistd.pid; exec {sys.executable} {program} -n fleximq --listen stdio:"
        environment = {**os.environ, "PYTHONPATH": str(Path(fleximq.__file__).parents[1])}
        ended = subprocess.run(
            ["sh", "-c", words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=PATIENCE,
        )  # fmt: skip
        self.assertEqual((ended.returncode, self.left()), (0, []), ended.stderr)

    def test_running(self) -> None:
        """That of another broker does."""
        other = subprocess.Popen(["sh", "-c", "read line", "fleximq"], stdin=subprocess.PIPE)
        self.addCleanup(other.communicate)
        ended = self.started(f"{other.pid}")
        self.assertEqual(ended.returncode, 1)
        self.assertIn(f"Another twistd server is running, PID {other.pid}", ended.stderr)
        self.assertEqual(self.left(), ["twistd.pid"])

    def test_wrong(self) -> None:
        """Anything else in it is one sentence."""
        for content in ("9" * 30, "-1", "0", "what", "\0" * 9):
            ended = self.started(content)
            self.assertEqual((ended.returncode, ended.stderr.count("\n"), ended.stdout), (1, 1, ""), ended.stderr)
            self.assertIn("twistd.pid contains ", ended.stderr)
            self.assertIn("which is no process id: remove it, or choose another one with", ended.stderr)

    def test_unusable(self) -> None:
        """So is a place where none can be written."""
        for path in ("no/such", "."):
            ended = self.twistd("-n", f"--pidfile={path}", "fleximq", "--listen", "stdio:")
            self.assertEqual((ended.returncode, ended.stderr.count("\n"), ended.stdout), (1, 1, ""), ended.stderr)


class DaemonTests(TwistdTests):
    """A daemon that starts and ends well."""

    def test_daemon(self) -> None:
        """It listens when its parent is gone, and removes socket, lock and pid file when it ends."""
        ended = self.twistd("fleximq", "--listen", "unix:s")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        pid = int((self.folder / "twistd.pid").read_text())
        self.addCleanup(self.kill, pid, signal.SIGKILL)
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            asking.connect(str(self.folder / "s"))
            asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
            self.assertTrue(asking.recv(1000).startswith(b"HTTP/1.0 200 OK\r\n"))
        self.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while self.left() != ["twistd.log"] and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.left(), ["twistd.log"])

    def kill(self, pid: int, number: int) -> None:
        """Send a signal, if there is still somebody to get it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
