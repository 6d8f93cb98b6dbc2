"""The compiled core under AddressSanitizer, which ends the process at the first access outside of an object."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.nightly import nightly

ROOT = Path(__file__).parents[2]
SECONDS = 600


@nightly
class SanitizedTests(SynchronousTestCase):
    """A build of its own, in a folder from which the tests import it."""

    def setUp(self) -> None:
        """Build it."""
        found = subprocess.run(["gcc", "-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True)
        library = Path(found.stdout.strip()) if found.returncode == 0 else Path()
        if not library.is_absolute():
            raise SkipTest("there is no gcc with AddressSanitizer")
        self.folder = Path(tempfile.mkdtemp())
        flags = "-fsanitize=address -fno-omit-frame-pointer -O1 -g"
        command = [sys.executable, "setup.py", "--quiet", "build", "--build-base", str(self.folder), "--force"]
        command += ["--build-lib", str(self.folder / "lib")]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "CFLAGS": flags, "LDFLAGS": flags}, check=True)
        self.variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.folder / "lib"), str(ROOT)]),
            "PYTHONSAFEPATH": "1",
            "PYTHONMALLOC": "malloc",  # so that the end of every object is guarded
            "LD_PRELOAD": str(library.resolve()),
            "ASAN_OPTIONS": "detect_leaks=0",
            "FLEXIMQ_NIGHTLY": "",
        }

    def runModule(self, *arguments: str) -> str:
        """Run a module of Python and return its output; it must succeed."""
        ended = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS * 3,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout[-4000:])
        return ended.stdout

    def test_used(self) -> None:
        """It is this build that runs."""
        words = "from fleximq.compiled import choice, fleximq_frames as f; print(choice.IMPLEMENTATION, f.__file__)"
        ended = subprocess.run([sys.executable, "-c", words], env=self.variables, stdout=subprocess.PIPE, text=True)
        self.assertTrue(ended.stdout.startswith(f"compiled {self.folder}"), ended.stdout)

    def test_tests(self) -> None:
        """The comparison with the reference, and the tests of scanners."""
        self.runModule("tests.run", "tests.compiled.test_same", "tests.compiled.test_wire_twins")

    def test_fuzzed(self) -> None:
        """Hostile frames."""
        self.runModule("tests.fuzz", "--engine", "chance", "--seconds", str(SECONDS))
