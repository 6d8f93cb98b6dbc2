"""docs/guides/security.rst promises only what tests show: each section names them in a comment, and they are there."""

import re
import tomllib
from pathlib import Path
from unittest import TestCase

from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.permission_options import tables
from fleximq.security.permissions import Permissions
from fleximq.security.principal import Principal

PAGE = (Path(__file__).parents[1] / "docs" / "guides" / "security.rst").read_text()
_SECTION = re.compile(r"(?m)^([^\n]+)\n(?:-{4,}|~{4,})\n\n((?:\.\. shown by:\n(?:   \S.*\n)+)?)")


class PromisesTests(SynchronousTestCase):
    """The comments ``.. shown by:`` below the headings."""

    def test_everySection(self) -> None:
        """Every section has one, and there are no others."""
        self.assertEqual([title for title, shown in _SECTION.findall(PAGE) if not shown], [])
        self.assertEqual(PAGE.count(".. shown by:"), len(_SECTION.findall(PAGE)))

    def test_named(self) -> None:
        """Each names modules, classes or methods of tests that exist and hold at least one test."""
        for name in " ".join(shown.partition(":")[2] for _, shown in _SECTION.findall(PAGE)).split():
            found = namedAny(f"tests.{name}")
            inside = (
                [found] if name.rpartition(".")[2].startswith("test_") and callable(found) else vars(found).values()
            )
            cases = [each for each in inside if isinstance(each, type) and issubclass(each, TestCase)]
            self.assertTrue(cases or any(getattr(each, "__name__", "").startswith("test_") for each in inside), name)


class StepsTests(SynchronousTestCase):
    """The settings of the first steps."""

    def test_operator(self) -> None:
        """The role of the operator may look into queues and dead letters."""
        block = PAGE.partition("toml\n\n")[2].partition("\n\nCheck it")[0]
        settings = tomllib.loads(block)
        rights = Permissions(tables("roles", settings["roles"]), None).rightsOf(Principal("alice", frozenset({"ops"})))
        self.assertTrue(rights.may("consume", "jobs") and rights.may("consume", "$dead/jobs"))
