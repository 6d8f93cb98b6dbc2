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

    def test_defaults(self) -> None:
        """What it shows are the defaults, save where it says otherwise."""
        differing = set(re.findall(r"^([a-z-]+) = .*# .*default: ", self.text, re.MULTILINE)) | {"listen"}
        written = tomllib.loads(self.text)
        for option in OPTIONS:
            if option.name in written:
                value = option.read(option.name, written[option.name])
                self.assertEqual(value != option.of(Settings()), option.name in differing, option.name)

    def test_everyOption(self) -> None:
        """Nothing that can be set is left out."""
        named = set(re.findall(r"^(?:# )?([a-z-]+) = ", self.text, re.MULTILINE)) | {"extension"}
        self.assertEqual({option.name for option in OPTIONS} - named, set())

    def test_withoutComments(self) -> None:
        """What is commented out in it would be TOML as well."""
        extension = self.text[self.text.index("# [extension.") :].replace("# ", "")
        self.assertEqual(list(tomllib.loads(extension)["extension"]), ["audit_trail"])

    def test_permissions(self) -> None:
        """The tables of permissions that are commented out are good ones."""
        start = self.text.index("# [roles.")
        tables = tomllib.loads(self.text[start : self.text.index("\n\n", start)].replace("# ", ""))
        settings = Settings.of(tables)
        self.assertEqual([each.name for each in (*(settings.roles or ()), *(settings.principals or ()))], list(NAMES))
