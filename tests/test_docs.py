"""Pages describe exactly the options and metrics that exist; the pages that modules cite exist."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.option_table import grouped

ROOT = Path(__file__).parents[1]


class GeneratedTests(SynchronousTestCase):
    """The tables of options and metrics, and the example of a settings file."""

    def test_pagesHaveWhatTheProgramSays(self) -> None:
        """docs/write_tables.py would change nothing, and writes every group of options."""
        writer = runpy.run_path(str(ROOT / "docs" / "write_tables.py"))
        tables = []
        for path, text in writer["files"]():
            self.assertEqual(path.read_text(), text, f"python docs/write_tables.py writes {path.name}")
            tables += re.findall(r"(?m)^\.\. table: (.*)$", text)
        self.assertEqual(sorted(tables), sorted(["api", "metrics", *(f"options {group}" for group in grouped())]))


class CitedPagesTests(SynchronousTestCase):
    """The files of docs/ that docstrings and comments of modules cite."""

    def test_exist(self) -> None:
        """Each cited file exists, and each title quoted after a page is a heading or a term on it."""
        for file in _modules():
            words = re.sub(r"\s+(?:#:?\s)?\s*", " ", file.read_text())
            for path, titles in re.findall(r'(?<![\w/.])(docs/[\w./-]*\w)((?:,? (?:and )?"[A-Z][^"]*")*)', words):
                self.assertTrue((ROOT / path).exists(), f"{file} cites {path}")
                for title in re.findall(r'"([^"]+)"', titles):
                    heading = rf"^(?:{re.escape(title)}\n[-=~]+|\*{re.escape(title)}\*.*)$"
                    self.assertRegex((ROOT / path).read_text(), re.compile(heading, re.MULTILINE), str(file))


def _modules() -> Iterator[Path]:
    """Yield the files of Python of the repository."""
    for folder in ("benchmarks", "docs", "fleximq", "plugins", "tests", "twisted"):
        yield from (ROOT / folder).rglob("*.py")
