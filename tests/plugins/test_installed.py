"""The examples, installed by pip beside the broker into an environment of their own."""

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import venv
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.nightly import nightly
from tests.plugins.examples import EXAMPLES, PLUGINS

ROOT = PLUGINS.parent
#: What a wheel of the broker is built of.
SOURCES = ("setup.cfg", "pyproject.toml", "README.rst", "LICENSE", "fleximq", "twisted", "pyspark_fleximq.py")
#: Seconds that anything may take; they cost nothing while all goes well.
PATIENCE = 300.0


def without(*names: str) -> dict[str, str]:
    """Return the variables of this process without these."""
    return {name: value for name, value in os.environ.items() if name not in names}


class Environment:
    """A fresh virtual environment, which borrows from the one that runs the tests, but has our packages of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        venv.create(folder / "env", symlinks=True)
        self.python = str(folder / "env" / "bin" / "python")
        borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (self.packages() / "borrowed.pth").write_text("\n".join(borrowed))

    def packages(self) -> Path:
        """Return the folder of its packages."""
        return Path(self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def run(self, *words: str) -> str:
        """Run its interpreter, outside of the repository, and return what it prints.

        :raises AssertionError: if it fails.
        """
        ended = subprocess.run(
            [self.python, *words],
            cwd=self._folder, env=without("PYTHONPATH"), capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        if ended.returncode:
            raise AssertionError(f"{words} ended with {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def install(self, *folders: Path) -> None:
        """Install these with pip. Nothing is fetched; they are copied, so that no build leaves anything behind."""
        copies = []
        for folder in folders:
            copy = self._folder / "sources" / folder.name
            copy.mkdir(parents=True)
            for name in SOURCES if folder == ROOT else os.listdir(folder):
                take = shutil.copytree if (folder / name).is_dir() else shutil.copy
                take(folder / name, copy / name)
            copies.append(str(copy))
        offline = (
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--ignore-installed",
            "--disable-pip-version-check",
        )
        self.run("-m", "pip", "install", "--quiet", *offline, *copies)


class InstalledBroker(BrokerProcess):
    """The broker of a fresh environment; nothing of the repository is on its path."""

    def _variables(self) -> dict[str, str]:
        return {**without("PYTHONPATH"), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


@nightly
class InstalledExamplesTests(SynchronousTestCase):
    """The whole journey: pip, twistd, a conversation, the trail of it."""

    def setUp(self) -> None:
        """Install the broker and all examples."""
        folder = Path(tempfile.mkdtemp(prefix="fleximq-env-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.trail = folder / "audit.jsonl"
        self.environment = Environment(folder)
        self.environment.install(ROOT, *(PLUGINS / name for name in EXAMPLES))

    def test_foundAndWorking(self) -> None:
        """The environment's own packages are found as plug-ins, and do in a broker what they are for."""
        self._areItsOwn()
        broker = InstalledBroker(
            "--listen", "tcp:0:interface=127.0.0.1", "--listen", "line_echo+tcp:0:interface=127.0.0.1",
            "--extension", f"audit_trail:path={self.trail},every=0.05",
        )  # fmt: skip
        broker.python = self.environment.python
        with broker:
            broker.waitForOutput("extension audit_trail is on")
            self._talk(broker)
        events = [json.loads(line) for line in self.trail.read_text().splitlines()]
        self.assertEqual((events[0]["event"], events[-1]["event"]), ("started", "stopped"))
        met = [(each["event"], each.get("dialect"), each.get("topic"), each.get("size")) for each in events[1:-1]]
        self.assertIn(("published", "line_echo", "news", 11), met)
        self.assertEqual(met.count(("joined", "line_echo", None, None)), 2)

    def _areItsOwn(self) -> None:
        """What the environment imports are its own installations."""
        modules = ["fleximq", *EXAMPLES.values()]
        code = f"import {', '.join(modules)}\nfor each in ({', '.join(modules)}): print(each.__file__)"
        packages = str(self.environment.packages())
        found = self.environment.run("-P", "-c", code).splitlines()
        self.assertEqual([path.startswith(packages) for path in found], [True] * len(modules), found)

    def _talk(self, broker: BrokerProcess) -> None:
        """One reads on the port of all dialects, one writes on that of lines."""
        with (
            socket.create_connection(("127.0.0.1", broker.port(0)), PATIENCE) as reader,
            socket.create_connection(("127.0.0.1", broker.port(1)), PATIENCE) as writer,
        ):
            reader.sendall(b"+news\nnews ready\n")
            self.assertEqual(reader.makefile("rb").readline(), b"news ready\n")
            writer.sendall(b"news hello there\n")
            self.assertEqual(reader.makefile("rb").readline(), b"news hello there\n")
