"""Times in ISO 8601."""

from datetime import UTC, datetime

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.zoned_time import zonedTime


class ZonedTimeTests(SynchronousTestCase):
    """Texts as times."""

    def test_withZone(self) -> None:
        """The zone counts, whether it is a letter or hours and minutes."""
        for text in ("2030-01-31T12:00:00Z", "2030-01-31T13:30:00+01:30"):
            self.assertEqual(zonedTime(text), datetime(2030, 1, 31, 12, tzinfo=UTC))

    def test_others(self) -> None:
        """A time without a zone, and a text that is no time, are none."""
        for text in ("2030-01-31T12:00:00", "2030-01-31", "2030-13-01T00:00:00Z", "soon", ""):
            self.assertIsNone(zonedTime(text), text)
