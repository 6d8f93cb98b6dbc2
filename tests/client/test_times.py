"""Durations and times, as programs give them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.times import milliseconds, moment, seconds


class DurationTests(SynchronousTestCase):
    """Seconds and timedeltas."""

    def test_secondsAndTimedeltasMeanTheSame(self) -> None:
        """In milliseconds; little is not nothing."""
        for given, expected in ((0, 0), (1, 1000), (0.5, 500), (1e-9, 1), (timedelta(minutes=1), 60_000)):
            self.assertEqual(milliseconds("delay", given), expected)

    def test_wrongDurationsAreNamed(self) -> None:
        """Negative, endless and other values."""
        wrong: Any
        for wrong in (-1, timedelta(seconds=-1), float("inf"), float("nan")):
            self.assertIn("delay is", str(self.assertRaises(ValueError, seconds, "delay", wrong)))
        for wrong in ("1", None, True):
            self.assertRaises(TypeError, seconds, "delay", wrong)


class MomentTests(SynchronousTestCase):
    """Times."""

    def test_zonesAreRespected(self) -> None:
        """The same moment in two zones."""
        for zone in (UTC, timezone(timedelta(hours=2))):
            at = datetime(2030, 1, 1, tzinfo=UTC).astimezone(zone)
            self.assertEqual(moment("at", at), 1_893_456_000_000)

    def test_naiveTimesAreRefused(self) -> None:
        """With advice; and what is no time, or before 1970."""
        error = self.assertRaises(ValueError, moment, "at", datetime(2030, 1, 1))  # noqa: DTZ001
        self.assertIn("no zone", str(error))
        self.assertRaises(ValueError, moment, "at", datetime(1960, 1, 1, tzinfo=UTC))
        wrong: Any = 1_893_456_000
        self.assertRaises(TypeError, moment, "at", wrong)
