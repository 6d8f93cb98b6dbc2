"""Does what docs/tutorials/lake.rst says, block by block as it is written; only ports and keys are others."""

import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import fleximq
from tests import readme
from tests.broker_process import BrokerProcess
from tests.installed_pipeline.tutorial import DOCS, QUICKLY, SECONDS
from tests.pipeline.object_store import BUCKET, ObjectStore, environment, sharedStore

TEXT = (DOCS / "tutorials" / "lake.rst").read_text()
_MODULES = {"fleximq": "fleximq", "fleximq-pipeline": "fleximq.pipeline"}


class LakeTutorial(ExitStack):
    """The folder in which a reader works, an object store and a broker; in a ``with`` statement."""

    store: ObjectStore
    folder: Path
    broker: BrokerProcess

    def __enter__(self) -> "LakeTutorial":
        self.store = sharedStore()
        self.lake = self.store.newPrefix()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="fleximq-tutorial-")))
        program, *words = shlex.split(readme.saved(TEXT, "broker"))
        assert (program, words[:2]) == ("twistd", ["-n", "fleximq"]), "the page starts the broker in another way"
        here = {"tcp:7890": "tcp:0:interface=127.0.0.1", "kept": str(self.folder / "kept")}
        self.broker = self.enter_context(BrokerProcess(*(here.get(word, word) for word in words[2:])))
        for name in ("shop", "read"):
            (self.folder / f"{name}.py").write_text(self._here(readme.saved(TEXT, name)))
        return self

    def _here(self, text: str) -> str:
        return text.replace("localhost:7890", f"127.0.0.1:{self.broker.port()}").replace(
            f"s3://{BUCKET}/lake", self.lake
        )

    def run(self, name: str) -> str:
        """Run the command of a block, or the program of that name, and return what it writes to standard output.

        :raises AssertionError: it ended with an error.
        """
        written = readme.saved(TEXT, name) if name not in ("shop", "read") else f"python {name}.py"
        program, *words = shlex.split(self._here(written).replace("\\\n", " "))
        module = ["-m", _MODULES[program]] if program in _MODULES else []
        quickly = QUICKLY if program == "fleximq-pipeline" and words[0] == "ingest" else ()
        found = subprocess.run(
            [sys.executable, *module, *words, *quickly],
            cwd=self.folder,
            env=os.environ | environment(self.store.endpoint) | {"PYTHONPATH": str(Path(fleximq.__file__).parents[1])},
            timeout=SECONDS,
            text=True,
            capture_output=True,
        )
        assert found.returncode == 0, f"{name}: {found.stdout}\n{found.stderr}"
        return found.stdout
