"""Arguments of requests: numbers, flags and times."""

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.http.operations.arguments import flag, milliseconds, moment, seconds, whole
from fleximq.errors import BadRequest


class ArgumentTests(SynchronousTestCase):
    """What is read, and what is refused, in sentences of one form."""

    def refused(self, read: Callable[..., Any], *arguments: Any) -> str:
        return str(self.assertRaises(BadRequest, read, *arguments))

    def test_seconds(self) -> None:
        read = [seconds({"wait": each}, "wait", None, 0, 300) for each in ("0", "1.5", "300", "1e2")]
        self.assertEqual((read, seconds({}, "wait", None, 0, 300)), ([0, 1.5, 300, 100], None))
        for text in ("", "x", "-1", "300.1", "nan", "inf", "1_0", "\u0663"):
            words = self.refused(seconds, {"wait": text}, "wait", None, 0, 300)
            self.assertEqual(words, f"wait is {text!r}, but must be a number of seconds from 0 to 300")

    def test_milliseconds(self) -> None:
        self.assertEqual(milliseconds({"delay": "0.25"}, "delay", 0, 10), 250)
        words = self.refused(milliseconds, {"delay": "-1"}, "delay", 0.001, 315360000)
        self.assertEqual(words, "delay is '-1', but must be a number of seconds from 0.001 to 315360000")

    def test_wholeNumbers(self) -> None:
        self.assertEqual([whole({"most": each}, "most", 7, 1, 256) for each in ("1", "256")], [1, 256])
        self.assertEqual(whole({}, "most", 7, 1, 256), 7)
        for text in ("", "0", "257", "1.0", "+1", "\u0663", "9" * 30):
            words = self.refused(whole, {"most": text}, "most", 7, 1, 256)
            self.assertEqual(words, f"most is {text!r}, but must be a whole number from 1 to 256")

    def test_flags(self) -> None:
        read = [flag(each, "create") for each in ({"create": "true"}, {"create": "false"}, {})]
        self.assertEqual(read, [True, False, False])
        self.assertEqual(self.refused(flag, {"create": "1"}, "create"), "create is '1', but must be true or false")

    def test_times(self) -> None:
        self.assertEqual(moment("at", "1970-01-01T01:00:01+01:00"), 1000)
        self.assertEqual(moment("at", "1960-01-01T00:00:00Z"), 0)
        kind = "a time in ISO 8601 with a zone, e.g. 2030-01-31T12:00:00Z"
        self.assertEqual(self.refused(moment, "at", "2030-01-31"), f"at is '2030-01-31', but must be {kind}")

    def test_aLongTextIsCut(self) -> None:
        self.assertLess(len(self.refused(flag, {"create": "x" * 5000}, "create")), 200)
