"""What principals and roles may be called."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.principal import MAX_NAME_CHARACTERS, isName, isRole


class NameTests(SynchronousTestCase):
    """Names."""

    def test_anyTextInOneLineSaveWhatStandsForSomebodyElse(self) -> None:
        """Any text in one line, save what stands for somebody else."""
        for name in (
            "a",
            "Zoë",
            "alice@example.com",
            "https://id.example/7",
            "a b",
            "#",
            "*",
            "x" * MAX_NAME_CHARACTERS,
        ):
            self.assertTrue(isName(name), name)
        for name in (
            "",
            " a",
            "a\n",
            "a\0b",
            "a\u2028b",
            "\udc80",
            "anonymous",
            "spawn:x",
            "x" * (MAX_NAME_CHARACTERS + 1),
        ):
            self.assertFalse(isName(name), name)
        for value in (None, 1, b"a", ["a"]):
            self.assertFalse(isName(value), value)

    def test_lettersDigitsAndFewSignsUpTo64(self) -> None:
        """Letters, digits and a few signs, up to 64."""
        for name in ("a", "ops", "a.b-c_d", "7", "x" * 64):
            self.assertTrue(isRole(name), name)
        for wrong in ("", "a b", "a,b", "a:b", "é", ".a", "x" * 65, "a\n", None, 7):
            self.assertFalse(isRole(wrong), wrong)
