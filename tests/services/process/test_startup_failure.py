"""How a start ends that cannot succeed."""

import io
import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from fleximq.services.process.startup_failure import STATUS_BYTES, StartupFailure


class StartupFailureTests(SynchronousTestCase):
    """What is said and what is left behind."""

    def abortStart(self, sentence: str = "cannot listen on x: taken", **configuration: object) -> str:
        """Return what is said on standard error."""
        stderr = io.StringIO()
        error = self.assertRaises(SystemExit, StartupFailure(configuration, stderr), sentence)
        self.assertEqual(error.code, 1)
        return stderr.getvalue()

    def test_sentence(self) -> None:
        """One line on standard error, and exit code 1."""
        self.assertEqual(self.abortStart(), "fleximq: cannot listen on x: taken\n")

    def test_closedStderr(self) -> None:
        """A standard error that takes nothing keeps nobody here."""
        stderr = io.StringIO()
        stderr.close()
        self.assertRaises(SystemExit, StartupFailure({}, stderr), "x")

    def test_ownPidfile(self) -> None:
        """Our own pid file goes."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        self.abortStart(pidfile=path)
        self.assertFalse(os.path.exists(path))

    def test_foreignPidfile(self) -> None:
        """Somebody else's stays, and one that is missing is no matter."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("1")
        self.abortStart(pidfile=path)
        self.assertTrue(os.path.exists(path))
        self.abortStart(pidfile=self.mktemp())
        self.abortStart(pidfile="")

    def told(self, sentence: str) -> bytes:
        """Return what the parent of a daemon reads."""
        reading, writing = os.pipe()
        self.abortStart(sentence, statusPipe=writing)
        with os.fdopen(reading, "rb") as pipe:
            return pipe.read()

    def test_parent(self) -> None:
        """The waiting parent of a daemon gets the sentence in the form it knows, and the end of it."""
        self.assertEqual(self.told("cannot listen on x: taken"), b"1 fleximq: cannot listen on x: taken")

    def test_longSentence(self) -> None:
        """It gets as much as it reads, in ASCII."""
        told = self.told("\u00fc" + "x" * 200)
        self.assertEqual(len(told), STATUS_BYTES)
        self.assertTrue(told.startswith(b"1 fleximq: \\xfcxxx"), told)

    def test_late(self) -> None:
        """When the reactor runs, it is stopped, and the exit code is 1 all the same."""
        code = (
            "from twisted.internet import reactor\n"
            "from twisted.logger import globalLogBeginner\n"
            "globalLogBeginner.beginLoggingTo([], redirectStandardIO=False)\n"
            "from fleximq.services.process.startup_failure import StartupFailure\n"
            "reactor.callLater(0, StartupFailure({}).duringRun, 'cannot listen on x: taken', reactor)\n"
            "reactor.addSystemEventTrigger('after', 'shutdown', print, 'stopped')\n"
            "reactor.run()\n"
            "print('in good order')\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(Path(fleximq.__file__).parents[1])},
            capture_output=True,
            timeout=300,
            text=True,
        )
        self.assertEqual(
            (ended.returncode, ended.stdout, ended.stderr),
            (1, "stopped\nin good order\n", "fleximq: cannot listen on x: taken\n"),
        )
