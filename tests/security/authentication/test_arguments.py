"""What stands behind ``SCHEME:``."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq.security.authentication.schemes import pairs, split


class ArgumentsTests(SynchronousTestCase):
    """Parts and pairs."""

    def test_commasSeparateButForThoseBehindBackslash(self) -> None:
        """Commas separate, but for those behind a backslash."""
        self.assertEqual(split(""), [])
        self.assertEqual(split("a,b=c"), ["a", "b=c"])
        self.assertEqual(split(r"a\,b,c"), ["a,b", "c"])

    def test_firstEqualsSignEndsKey(self) -> None:
        """The first equals sign ends the key."""
        self.assertEqual(pairs(["a=1", "b=x=y"], ("a", "b")), {"a": "1", "b": "x=y"})

    def test_everythingElseIsRefusedByOneSentence(self) -> None:
        """Everything else is a sentence."""
        for part, sentence in (
            ("a", "'a' is not of the form key=value; the keys are a, b"),
            ("=1", "'=1' is not of the form key=value; the keys are a, b"),
            ("c=1", "there is no option c, only a, b"),
            ("a=", "a has no value"),
        ):
            self.assertEqual(str(self.assertRaises(SettingError, pairs, [part], ("a", "b"))), sentence)
        self.assertEqual(str(self.assertRaises(SettingError, pairs, ["a=1", "a=1"], ("a",))), "a is given twice")
