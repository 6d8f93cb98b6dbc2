"""fleximq.api: its names are complete and documented, and plug-ins of ours import nothing else."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq import api
from tests.import_rules import importsOf
from tests.plugins.examples import PLUGINS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "api" / "framework.rst"


def shownToTypeCheckers() -> dict[str, object]:
    """Return the objects that the module shows to type checkers, by their public names."""
    source = ast.parse(Path(api.__file__).read_text())
    (block,) = (node for node in source.body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    return {
        alias.asname or alias.name: getattr(import_module(node.module or ""), alias.name)
        for node in imports
        for alias in node.names
    }


def foreignImports() -> Iterator[tuple[str, str]]:
    """Yield each name of fleximq that an example or the extension ``otel`` imports, with the path of its file."""
    for path in (*PLUGINS.rglob("*.py"), *(ROOT / "fleximq" / "telemetry").rglob("*.py")):
        for _, name in importsOf("", path.read_text()):
            if name.startswith("fleximq.") and not name.startswith("fleximq.telemetry."):
                yield str(path.relative_to(ROOT)), name


class NamesTests(SynchronousTestCase):
    """The public names."""

    def test_namesAtRunTimeAreThoseOfTypeCheckers(self) -> None:
        self.assertEqual({name: getattr(api, name) for name in api.__all__}, shownToTypeCheckers())

    def test_dirListsThePublicNames(self) -> None:
        self.assertEqual(dir(api), sorted(api.__all__))

    def test_anUnknownNameIsAnAttributeError(self) -> None:
        error = self.assertRaises(AttributeError, getattr, api, "Brocker")
        self.assertEqual(str(error), "fleximq.api has no name 'Brocker'")

    def test_thePageOfStableNamesListsEachNameOnce(self) -> None:
        listed = re.findall(r"``(\w+)``", PAGE.read_text().partition("Stable names")[2])
        self.assertEqual(sorted(each for each in listed if each in api.__all__), sorted(api.__all__))


class ImportTests(SynchronousTestCase):
    """Who imports what."""

    def test_examplesAndTelemetryImportTheFaceAlone(self) -> None:
        allowed = {"fleximq.__version__", *(f"fleximq.api.{name}" for name in api.__all__)}
        self.assertEqual([each for each in foreignImports() if each[1] not in allowed], [])
