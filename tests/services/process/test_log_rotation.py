"""The log and the audit log of a real broker under the real logrotate, and moved by hand."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.broker_process import PATIENCE, BrokerProcess

STANZA = Path(__file__).parents[3] / "docs" / "systemd" / "fleximq.logrotate"


class LoggingBroker(BrokerProcess):
    """Writes its log into the file ``b.log`` and its audit log into ``audit.log``, in its folder."""

    def __init__(self) -> None:
        super().__init__("--listen", "unix:s", "--audit-log", "audit.log")

    @property
    def _words(self) -> list[str]:
        return ["-n", "--pidfile=", "--logfile=b.log", "fleximq", *self.arguments]


class RotationTests(SynchronousTestCase):
    """No line is lost, and no file is empty."""

    def setUp(self) -> None:
        """A broker with one client."""
        self.broker = LoggingBroker()
        self.addCleanup(self.broker.stop)
        self.broker.start()
        self.log, self.audit = self.broker.folder / "b.log", self.broker.folder / "audit.log"
        self.client = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.client.close)
        self.until(lambda: self.client.connect_ex(str(self.broker.folder / "s")) == 0, lambda: None)
        self.ping(self.client)

    def until(self, holds: Callable[[], object], between: Callable[[], object]) -> None:
        """Do something, usually a round trip to the broker, until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), deadline, {each.name: each for each in self.broker.folder.iterdir()})
            between()

    def isOpen(self, path: Path) -> bool:
        """Return whether the broker has this file open."""
        opened = Path(f"/proc/{self.broker.pid}/fd").iterdir()
        return path.exists() and any(each.exists() and each.samefile(path) for each in opened)

    def ping(self, client: socket.socket) -> None:
        """Wait for an answer."""
        client.settimeout(PATIENCE)
        client.sendall(b"PING:\n")
        self.assertEqual(client.recv(5), b"PONG:")
        client.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            client.recv(100)

    def join(self) -> None:
        """Let a client join, which both logs say."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.broker.folder / "s"))
            self.ping(client)

    def signal(self, *awaited: Path) -> None:
        """Send SIGUSR1, and wait until these files are there."""
        os.kill(self.broker.pid, signal.SIGUSR1)
        self.until(lambda: all(each.exists() for each in awaited), lambda: self.ping(self.client))

    def joined(self, *paths: Path) -> list[int]:
        """Return the clients that joined, as these files say one after the other."""
        return [int(each) for path in paths for each in re.findall(r"minimq-(\d+) joined", path.read_text())]

    def moved(self, path: Path) -> Path:
        """Move a file aside."""
        return path.rename(f"{path}.old")

    def test_moved(self) -> None:
        """After a move and SIGUSR1 both begin new files."""
        old, oldAudit = self.moved(self.log), self.moved(self.audit)
        self.signal(self.log, self.audit)
        self.join()
        self.until(lambda: self.joined(old, self.log) == [1000, 1001], lambda: self.ping(self.client))
        self.assertEqual((self.joined(old), oldAudit.stat().st_size > 0), ([1000], True))

    def test_inPlace(self) -> None:
        """A log that was not moved is renamed by the broker, as twistd does."""
        rotated = Path(f"{self.log}.1")
        self.signal(rotated, self.log)
        self.join()
        self.until(lambda: self.joined(rotated, self.log) == [1000, 1001], lambda: self.ping(self.client))

    def rotate(self, *more: str) -> None:
        """Run the real logrotate with the stanza of the documentation, and these lines before it."""
        program = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise SkipTest("there is no logrotate here; on Debian the package logrotate has it")
        stanza = STANZA.read_text().replace("/var/log/fleximq", str(self.broker.folder))
        command = re.search(r"systemctl kill .*", stanza)
        assert command is not None
        stanza = stanza.replace(command[0], f"kill -USR1 {self.broker.pid}")
        configuration, state = self.broker.folder / "rotate", self.broker.folder / "state"
        configuration.write_text("\n".join([*more, stanza]))
        configuration.chmod(0o600)
        words = [program, "--force", "--state", str(state), str(configuration)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_logrotate(self) -> None:
        """Three rotations with and without ``create``: every client is in one of the files."""
        for each in range(3):
            self.rotate(("create", "nocreate")[each % 2])
            # With ``create`` they exist before the broker has got the signal.
            self.until(lambda: self.isOpen(self.log) and self.isOpen(self.audit), lambda: self.ping(self.client))
            self.join()
            self.until(lambda: len(self.joined(self.log)) == 1, lambda: self.ping(self.client))
            self.until(lambda: self.audit.read_text().count('"login"') == 1, lambda: self.ping(self.client))
        parts = [self.broker.folder / f"b.log{end}" for end in (".2.gz", ".1", "")]
        self.assertEqual([each.exists() for each in parts], [True] * 3)
        self.assertEqual(self.joined(*parts[1:]), [1002, 1003])
        empty = [each.name for each in self.broker.folder.glob("*.log*") if not each.stat().st_size]
        self.assertEqual(empty, [])
