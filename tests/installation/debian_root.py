"""Fresh installations of Debian in folders, made by debootstrap; commands run in them by chroot.

The packages that pip installs there are downloaded once, by the Python that runs the tests.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SkipTest

ROOT = Path(__file__).parents[2]
#: The releases of Debian by their Python, which must be that of the tests.
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
#: What it contains beside the packages that are always there.
PACKAGES = "python3,python3-venv,ca-certificates,adduser"
#: Seconds that a command may take.
PATIENCE = 600


class DebianRoot:
    """A copy of a fresh Debian; ``environment`` are the variables of its commands, ``workdir`` their folder."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="fleximq-root-", dir=_folder())) / "root"
        subprocess.run(["cp", "-a", _fresh(), self.path], check=True, timeout=PATIENCE)
        shutil.copytree(_wheels(), self.path / "wheels")
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
        self.workdir = "/"

    def command(self, words: Sequence[str], user: str = "root") -> list[str]:
        """Return the command that runs these words in the folder."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        chroot = ["chroot", f"--userspec={user}:{user}", str(self.path)]
        return [*chroot, "/usr/bin/env", "-i", "-C", self.workdir, *variables, *words]

    def run(self, *words: str, user: str = "root") -> str:
        """Run a command and return what it prints.

        :raises AssertionError: it fails.
        """
        command = self.command(words, user)
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        if ended.returncode:
            raise AssertionError(f"{words} ended with {ended.returncode}:\n{ended.stdout}")
        return ended.stdout

    def copy(self, names: Mapping[str, str]) -> None:
        """Copy files and folders of the repository to paths of this root."""
        unbuilt = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
        for name, path in names.items():
            target = self.path / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=unbuilt)
            else:
                shutil.copy(ROOT / name, target)


@cache
def sourceDistribution() -> Path:
    """Return the archive that is made of the repository, in which this leaves nothing."""
    folder = Path(tempfile.mkdtemp(prefix="fleximq-sdist-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = str(folder)
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", target, "sdist", "--dist-dir", target]
    subprocess.run(command, cwd=ROOT, check=True, stderr=subprocess.DEVNULL, timeout=PATIENCE)
    [archive] = folder.glob("*.tar.gz")
    return archive


@cache
def _folder() -> Path:
    if os.getuid() != 0 or shutil.which("debootstrap") is None:
        raise SkipTest("a fresh Debian needs debootstrap and the rights of root")
    if sys.version_info[:2] not in SUITES:
        raise SkipTest("no release of Debian that is known here has this Python")
    folder = Path(tempfile.mkdtemp(prefix="fleximq-debian-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _fresh() -> Path:
    fresh = _folder() / "fresh"
    suite = SUITES[sys.version_info[:2]]
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(fresh)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    return fresh


@cache
def _wheels() -> Path:
    wheels = _folder() / "wheels"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels)]
    subprocess.run([*pip, str(sourceDistribution()), "setuptools", "cython"], check=True, timeout=PATIENCE)
    for made in wheels.glob("fleximq-*"):
        made.unlink()  # each root builds its own
    return wheels
