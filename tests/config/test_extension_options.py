"""Which extensions are turned on, as it can be written."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.extension_options import EnabledExtension, extensions
from fleximq.errors import SettingError


class ExtensionsTests(SynchronousTestCase):
    """Texts of the command line, tables of a file."""

    def refused(self, value: object) -> str:
        """Return the sentence with which a value is refused."""
        return str(self.assertRaises(SettingError, extensions, "extension", value))

    def test_nameAndBehindItOptions(self) -> None:
        """A name, and behind it options; a key without a value is on."""
        read = {
            "audit": EnabledExtension("audit"),
            "audit:path=/var/log/a=b:c": EnabledExtension("audit", {"path": "/var/log/a=b:c"}),
            "audit:path=/x,payloads": EnabledExtension("audit", {"path": "/x", "payloads": True}),
            "audit:path=/a\\,b,n=": EnabledExtension("audit", {"path": "/a,b", "n": ""}),
        }
        for text, chosen in read.items():
            self.assertEqual(extensions("extension", text), (chosen,))

    def test_optionsAddUpInTheirOrder(self) -> None:
        """They add up in their order, and what was read already stays as it is."""
        self.assertEqual(
            extensions("extension", ["b", "a:x=1"]), (EnabledExtension("b"), EnabledExtension("a", {"x": "1"}))
        )
        self.assertEqual(extensions("extension", (EnabledExtension("b"),)), (EnabledExtension("b"),))
        self.assertEqual(extensions("extension", ()), ())

    def test_fileHasTableForEachEmptyOneIfNothingIsToBeSaid(self) -> None:
        """A file has a table for each, an empty one if nothing is to be said."""
        self.assertEqual(
            extensions("extension", {"b": {}, "a": {"size": 3, "on": True}}),
            (EnabledExtension("b", {}), EnabledExtension("a", {"size": 3, "on": True})),
        )

    def test_noTable(self) -> None:
        """Anything else behind a name is no table."""
        self.assertEqual(
            self.refused({"audit": "/x"}), "extension.audit is '/x', but must be a table: [extension.audit]"
        )

    def test_numberFlagOrListOfSuchIsNeither(self) -> None:
        """A number, a flag or a list of such is neither."""
        for value in (1, True, [1], b"a", None):
            self.assertIn("but must be NAME[:key=value,...] or a table for each: [extension.NAME]", self.refused(value))

    def test_optionHasNameOnce(self) -> None:
        """An option has a name, once."""
        for text in ("a:", "a:=1", "a:x=1,", "a:1x=1", "a:x y=1"):
            self.assertEqual(
                self.refused(text),
                f"extension is {text!r}, but NAME: must be followed by key=value, separated by commas",
            )
        self.assertEqual(self.refused("a:x=1,x=2"), "extension is 'a:x=1,x=2', but names x twice")

    def test_extensionIsTurnedOnOnce(self) -> None:
        """An extension is turned on once."""
        self.assertEqual(self.refused(["a", "a:x=1"]), "extension names a twice, but an extension is turned on once")
