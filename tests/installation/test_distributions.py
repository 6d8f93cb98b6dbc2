"""What is handed out: the source distribution and the wheel without compiled code."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.installation.debian_root import PATIENCE, ROOT, sourceDistribution
from tests.nightly import nightly


@nightly
class DistributionTests(SynchronousTestCase):
    """Both are made of the repository as it is."""

    def test_source(self) -> None:
        """The source distribution has all files of the repository whose paths do not begin with a dot."""
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if listed.returncode:
            raise SkipTest("this is not a clone of the repository")
        with tarfile.open(sourceDistribution()) as archive:
            names = {member.name.partition("/")[2] for member in archive if member.isfile()}
        tracked = {name for name in listed.stdout.splitlines() if not name.startswith(".")}
        self.assertEqual(tracked - names, set())

    def test_pure(self) -> None:
        """With FLEXIMQ_PURE=1 the wheel is for every Python and machine."""
        folder = Path(self.mktemp())
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        variables = {**os.environ, "FLEXIMQ_PURE": "1"}
        subprocess.run([*pip, "--wheel-dir", folder, sourceDistribution()], env=variables, check=True, timeout=PATIENCE)
        [wheel] = folder.iterdir()
        self.assertTrue(wheel.name.endswith("-py3-none-any.whl"), wheel.name)
        with zipfile.ZipFile(wheel) as archive:
            self.assertEqual([name for name in archive.namelist() if name.endswith((".so", ".pyx", ".c"))], [])
