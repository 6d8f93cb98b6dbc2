"""Source distributions of frameworks, whose own tests are run and not copied into this tree."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.pages import ROOT


def fetched(name: str, version: str, folder: Path) -> Path:
    """Return the unpacked source distribution of a release of a package."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    source = f"{name}=={version}"
    subprocess.run([*words, "--no-build-isolation", "--dest", str(folder), source], check=True, capture_output=True)
    [archive] = folder.glob(f"{name}-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def passedOf(folder: Path, port: int, *words: str) -> int:
    """Run pytest in a folder with a broker's port in ``FLEXIMQ_PORT``, and return how many tests passed.

    :raises AssertionError: a test failed; it has the output.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, "FLEXIMQ_PORT": str(port), "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    passed = re.search(r"(\d+) passed", ended.stdout)
    if ended.returncode or passed is None:
        raise AssertionError(ended.stdout + ended.stderr)
    return int(passed[1])
