"""The page on operating describes exactly the existing options; the pages that modules cite exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.extension_options import extensions
from fleximq.config.option_table import OPTIONS
from fleximq.config.option_values import flag, texts
from fleximq.config.settings import Settings

ROOT = Path(__file__).parents[1]


def documentedOptions(text: str) -> dict[str, str | None]:
    """Return the options in the tables of a page, by name, with the text after ``Default:`` up to a full stop."""
    rows = re.findall(r"^``--(.+(?:\n\n? .+)*)", text, flags=re.MULTILINE)
    return {re.split("[` ]", each)[0]: _default(each) for each in rows}


def _default(description: str) -> str | None:
    found = re.search(r"Default:\s+([^\s.,;]+)", description)
    return found and found[1]


class OperatingTests(SynchronousTestCase):
    """The page on operating, against the table of options."""

    documented = documentedOptions((ROOT / "docs" / "guides" / "operating.rst").read_text())

    def test_everyOption(self) -> None:
        """No option is left out, and none is described that does not exist."""
        self.assertEqual(sorted(self.documented), sorted([*(option.name for option in OPTIONS), "config"]))

    def test_defaults(self) -> None:
        """The defaults on the page, read as the command line reads them, are those of the settings."""
        for option in OPTIONS:
            if option.read not in (flag, texts, extensions):
                said = self.documented[option.name]
                self.assertEqual(said and option.read(option.name, said), option.of(Settings()), option.name)


class DocumentedOptionsTests(SynchronousTestCase):
    """How descriptions are found."""

    def test_found(self) -> None:
        """Name and default are taken from each row; a default may be missing, or on a further line of the row."""
        text = "``--one SIZE``  One. Default:\n                16MiB; at most 1GiB.\n``--two``       Two.\n"
        self.assertEqual(documentedOptions(text), {"one": "16MiB", "two": None})


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
