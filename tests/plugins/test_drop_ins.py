"""The examples' drop-in files, which Twisted reads whenever it looks for plug-ins."""

import ast

from twisted.trial.unittest import SynchronousTestCase

from tests.import_rules import importsOf
from tests.plugins.examples import EXAMPLES, PLUGINS


class DropInTests(SynchronousTestCase):
    """One file for each example, with names only."""

    def test_namesOnly(self) -> None:
        """They import nothing but what names are made of."""
        for folder in EXAMPLES:
            (path,) = (PLUGINS / folder / "twisted" / "plugins").glob("*.py")
            imported = {name.rpartition(".")[0] for _, name in importsOf("", path.read_text())}
            self.assertEqual(imported, {"fleximq.api"}, folder)
            self.assertTrue(ast.get_docstring(ast.parse(path.read_text())), folder)

    def test_twistedStaysTwisted(self) -> None:
        """No package marker stands in their ``twisted/``: it would hide Twisted itself."""
        self.assertEqual([str(path) for path in PLUGINS.glob("*/twisted/**/__init__.py*")], [])
