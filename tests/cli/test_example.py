"""The settings file that docs/guides/operating.rst shows is one that a broker would take."""

import re
import tomllib
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.check_config import check
from fleximq.config.option_table import OPTIONS
from fleximq.config.settings import Settings

NAMES = "authenticated", "operator"
EXAMPLE = Path(__file__).parents[2] / "docs" / "fleximq.toml"


class ExampleTests(SynchronousTestCase):
    """docs/fleximq.toml."""

    text = EXAMPLE.read_text()

    def test_good(self) -> None:
        """check-config finds nothing wrong with it."""
        settings, sentences = check(str(EXAMPLE))
        self.assertEqual(sentences, [])
        self.assertIsNotNone(settings)

    def test_itSetsOnlyDefaults(self) -> None:
        """Its lines that are not commented out set each option to its default."""
        written = tomllib.loads(self.text)
        for option in OPTIONS:
            if option.name in written:
                self.assertEqual(option.read(option.name, written[option.name]), option.of(Settings()), option.name)

    def test_everyOptionHasALineThatCanBeUsed(self) -> None:
        """With the examples no longer commented out it is TOML that sets every option to a value that it accepts."""
        written = tomllib.loads(re.sub(r"(?m)^# (?=[a-z-]+ = |\[)", "", self.text))
        self.assertEqual({option.name for option in OPTIONS} - written.keys(), set())
        for option in OPTIONS:
            option.read(option.name, written[option.name])

    def test_permissions(self) -> None:
        """The tables of permissions that are commented out are good ones."""
        start = self.text.index("# [roles.")
        tables = tomllib.loads(self.text[start : self.text.index("\n\n", start)].replace("# ", ""))
        settings = Settings.of(tables)
        self.assertEqual([each.name for each in (*(settings.roles or ()), *(settings.principals or ()))], list(NAMES))
