"""Kombu's own integration tests, fetched as a source distribution of the installed release, pass with our transport."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.pages import ROOT

_MISSING = "" if find_spec("amqp") and find_spec("pytest") else "needs kombu and pytest: tox -e frameworks"


def fetched(name: str, folder: Path) -> Path:
    """Return the unpacked source distribution of the installed release of a package."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    source = f"{name}=={version(name)}"
    subprocess.run([*words, "--no-build-isolation", "--dest", str(folder), source], check=True, capture_output=True)
    [archive] = folder.glob(f"{name}-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


class SuiteTests(SynchronousTestCase):
    """All seven classes of kombu's tests."""

    if _MISSING:
        skip = _MISSING

    def test_allPass(self) -> None:
        """38 of them, 11 of which run for several addresses too."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        shutil.copy(fetched("kombu", folder) / "t" / "integration" / "common.py", folder)
        shutil.copy(ROOT / "tests" / "integrations" / "kombu_suite.py", folder / "test_suite.py")
        with BrokerProcess("--journal", str(folder / "journal")) as broker:
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py"],
                cwd=folder,
                env={**os.environ, "FLEXIMQ_PORT": str(broker.port()), "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
        self.assertEqual(ended.returncode, 0, ended.stdout)
        passed = re.search(r"(\d+) passed", ended.stdout)
        assert passed is not None
        self.assertGreaterEqual(int(passed[1]), 38)
