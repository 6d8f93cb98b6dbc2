"""What Spark's Python processes say at their end."""

import os
import socket
import struct
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import pyspark
    from pyspark import daemon as _daemon

    import fleximq
    from fleximq.pipeline.command import quiet_daemon

    daemon: Any = _daemon

#: Seconds that a process may take.
PATIENCE = 60


class LastWordsTests(SynchronousTestCase):
    """What is printed where Spark's daemon prints an error."""

    def said(self, error: BaseException) -> str:
        """Return what is printed of an error that ends a process."""

        def manage() -> None:
            try:
                raise error
            except BaseException:
                daemon.traceback.print_exc()

        self.patch(daemon, "traceback", daemon.traceback)
        self.patch(daemon, "manager", manage)
        written = StringIO()
        with redirect_stderr(written):
            quiet_daemon.main()
        return written.getvalue()

    def test_ended(self) -> None:
        """Nothing, if nobody listens any more or the user has ended it."""
        for error in (BrokenPipeError(32, "Broken pipe"), ConnectionResetError(), KeyboardInterrupt()):
            self.assertEqual(self.said(error), "", error)

    def test_others(self) -> None:
        """Anything else as ever."""
        said = self.said(OSError(28, "no space left"))
        self.assertTrue(said.startswith("Traceback") and said.endswith("no space left\n"), said)

    def test_rest(self) -> None:
        """Whatever else the daemon wants of ``traceback`` is there."""
        self.said(KeyboardInterrupt())
        self.patch(daemon, "traceback", quiet_daemon._Words())
        try:
            raise ValueError("no")
        except ValueError:
            self.assertIn("ValueError: no", daemon.traceback.format_exc())


class PythonTests(SynchronousTestCase):
    """The Python that Spark is given."""

    def setUp(self) -> None:
        """Write one, into a folder whose name is short enough for a socket's."""
        folder = TemporaryDirectory(prefix="a 'folder' ")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.python = quiet_daemon.pythonFor(sys.executable, f"{self.folder}/python")

    def ended(self, planner: int) -> None:
        """Wait for the end of a process that is not a child of this one."""
        for _ in range(PATIENCE * 100):
            try:
                os.kill(planner, 0)
            except ProcessLookupError:
                return
            sleep(0.01)
        self.fail(f"process {planner} goes on")

    def test_words(self) -> None:
        """It is Python: it gets all words as they are."""
        words = ("-c", "import sys; print(sys.argv[1:])", "-m", "pyspark.daemon", "a b", "", "$x 'y'")
        said = subprocess.run([self.python, *words], capture_output=True, text=True, check=True, timeout=PATIENCE)
        self.assertEqual((said.stdout, said.stderr), (f"{list(words[2:])}\n", ""))

    def test_planner(self) -> None:
        """What plans a query, and is not needed any more, ends without a word."""
        paths = [Path(package.__file__ or "").parents[1] for package in (fleximq, pyspark)]
        # As Spark starts it, which then leaves it at once.
        with subprocess.Popen(
            [self.python, "-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={
                **os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHON_UNIX_DOMAIN_ENABLED": "True",
                "PYTHON_WORKER_FACTORY_SOCK_DIR": self.folder, "SPARK_REUSE_WORKER": "1",
                "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
            },
        ) as program:  # fmt: skip
            self.addCleanup(program.kill)
            assert program.stdout is not None
            (size,) = struct.unpack(">i", program.stdout.read(4))
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(PATIENCE)
                link.connect(program.stdout.read(size))
                (planner,) = struct.unpack(">i", link.recv(4))
            self.ended(planner)
            self.assertEqual(program.communicate(timeout=PATIENCE), (b"", b""))
