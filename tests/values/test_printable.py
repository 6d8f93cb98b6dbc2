"""Control characters as escapes."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as some
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.printable import jsonLine, printable


class PrintableTests(SynchronousTestCase):
    """``printable`` and ``jsonLine``."""

    def test_eachKindOfControlCharacterAndNeighboursThatAreNone(self) -> None:
        """Each kind of control character, and neighbours that are none."""
        self.assertEqual(
            printable("\x00\x1b\x7f\x9b\u061c\u202e\u2028\u2029\u2066"),
            r"\x00\x1b\x7f\x9b\u061c\u202e\u2028\u2029\u2066",
        )
        self.assertEqual(printable(" ~\xa0é\u2010\u202f€😀"), " ~\xa0é\u2010\u202f€😀")

    def test_lineFeedsAndTabsStayOnlyWhereLinesAreExpected(self) -> None:
        """Line feeds and tabs stay only where lines are expected."""
        self.assertEqual(printable("a\n\tb\r"), r"a\x0a\x09b\x0d")
        self.assertEqual(printable("a\n\tb\r", lines=True), "a\n\tb\\x0d")

    @given(some.text())
    def test_allText(self, text: str) -> None:
        """No control character is left; JSON says the same as before."""
        line = jsonLine({"a": text})
        self.assertFalse({unicodedata.category(each) for each in printable(text) + line} & {"Cc", "Zl", "Zp"})
        self.assertEqual(json.loads(line), {"a": text})
