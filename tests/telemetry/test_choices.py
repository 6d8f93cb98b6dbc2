"""The options of the extension ``otel``."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.telemetry.choices import Choices, configure


class ChoicesTests(SynchronousTestCase):
    """What may be chosen."""

    def test_read(self) -> None:
        """Options are read as they stand on the command line."""
        found = configure({"exporter": "console", "sample": "0.25", "service": "x", "pattern": "a.#"})
        self.assertEqual(found, Choices("console", None, 0.25, "x", "a.#"))

    def test_bounds(self) -> None:
        """A sample is a part."""
        for sample in (0.0, 1.0):
            self.assertEqual(Choices(sample=sample).sample, sample)
        for sample in (-0.001, 1.001):
            self.assertRaises(SettingError, Choices, sample=sample)

    def test_wrong(self) -> None:
        """What cannot be is refused with the option's name."""
        for options, name in (
            ({"exporter": "x"}, "exporter"),
            ({"exporter": "console", "endpoint": "ftp://x"}, "endpoint"),
            ({"exporter": "console", "sample": "x"}, "sample"),
            ({"exporter": "console", "service": ""}, "service"),
            ({"exporter": "console", "pattern": ""}, "pattern"),
            ({"color": "red"}, "there is no option color"),
        ):
            self.assertTrue(str(self.assertRaises(SettingError, configure, options)).startswith(name), options)

    def test_installed(self) -> None:
        """The extension is among those that are installed with the broker."""
        self.assertIn("otel", installed().extensions)
