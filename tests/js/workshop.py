"""Where the JavaScript client is built and run: node, and a copy of ``js/`` with the packages that it is built with."""

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SkipTest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "js"
HERE = Path(__file__).parent
#: Seconds that anything may take; they only end a test that hangs.
PATIENCE = 300.0
#: The oldest node that the client supports.
_OLDEST = 20


@cache
def node() -> str:
    """Return the path of node; raises SkipTest without one."""
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        raise SkipTest("the tests of the JavaScript client need node and npm")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < _OLDEST:
        raise SkipTest(f"the tests of the JavaScript client need node {_OLDEST}, and this is {version.strip()}")
    return found


@cache
def workshop() -> Path:
    """Return a copy of ``js/`` and of these tests with the packages; raises SkipTest if they cannot be installed."""
    node()
    folder = Path(tempfile.mkdtemp(prefix="fleximq-js-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    left = shutil.ignore_patterns("node_modules", "types", "__pycache__")
    shutil.copytree(SOURCES, folder / "js", ignore=left)
    shutil.copytree(HERE, folder / "tests", ignore=left)
    ended = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder / "js",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "npm_config_update_notifier": "false"},
    )
    if ended.returncode:
        raise SkipTest(f"npm cannot install the packages that build the JavaScript client: {ended.stderr[-300:]}")
    # The tests find the same packages.
    (folder / "node_modules").symlink_to(folder / "js" / "node_modules")
    return folder
