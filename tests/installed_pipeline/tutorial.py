"""Does what docs/tutorials/pipeline.rst says, block by block as it is written; only the port is another.

``python -m tests.installed_pipeline.tutorial`` does it as well, and puts its chart into docs/pictures/.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fleximq
from tests import readme
from tests.broker_process import BrokerProcess

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "tutorials" / "pipeline.rst").read_text()
PICTURE = "pipeline_rates.svg"
SECONDS = 900
#: What a test of it leaves out: the archive of classes, which would be made anew.
QUICKLY = ("--no-cache", "--master", "local[2]")


class Tutorial:
    """The folder in which a reader works, and a broker; in a ``with`` statement."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-tutorial-"))
        program, *words = shlex.split(readme.saved(TEXT, "broker"))
        assert (program, words[:2]) == ("twistd", ["-n", "fleximq"]), "the page starts the broker in another way"
        here = {"tcp:7890": "tcp:0:interface=127.0.0.1", "kept": str(self.folder / "kept")}
        self.broker = BrokerProcess(*(here.get(word, word) for word in words[2:]))

    def __enter__(self) -> "Tutorial":
        self.broker.__enter__()
        for name in ("stations", "chart"):
            (self.folder / f"{name}.py").write_text(self._here(readme.saved(TEXT, name)))
        return self

    def __exit__(self, *error: object) -> None:
        self.broker.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _here(self, text: str) -> str:
        return text.replace("localhost:7890", f"127.0.0.1:{self.broker.port()}")

    def run(self, name: str) -> str:
        """Run the command of a block, and return what it writes to standard output.

        :raises AssertionError: it ended with an error.
        """
        # A shell takes a backslash at a line's end for nothing, but shlex for a line's end.
        program, *words = shlex.split(self._here(readme.saved(TEXT, name)).replace("\\\n", " "))
        assert program in ("python", "fleximq-pipeline"), program
        module = ["-m", "fleximq.pipeline"] if program == "fleximq-pipeline" else []
        found = subprocess.run(
            [sys.executable, *module, *words, *(QUICKLY if module else ())],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(Path(fleximq.__file__).parents[1])},
            timeout=SECONDS,
            text=True,
            capture_output=True,
        )
        assert found.returncode == 0, f"{name}: {found.stdout}\n{found.stderr}"
        return found.stdout


def main() -> None:
    """Make the chart of the page."""
    with Tutorial() as tutorial:
        for name in ("publish", "ask", "ingest", "lake", "stats", "draw", "replay", "again"):
            print(f"{name}:\n{tutorial.run(name)}", flush=True)
        shutil.copy(tutorial.folder / "rates.svg", DOCS / "pictures" / PICTURE)


if __name__ == "__main__":
    main()
