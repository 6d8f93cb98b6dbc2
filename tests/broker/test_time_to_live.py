"""After how long messages expire."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.rules import TimesToLive


class TimesToLiveTests(SynchronousTestCase):
    """Patterns and seconds."""

    def test_none(self) -> None:
        """Without patterns nothing expires."""
        none = TimesToLive(())
        self.assertFalse(none)
        self.assertIsNone(none.expiresAt("t", 1))

    def test_microseconds(self) -> None:
        """What was said in seconds is added in microseconds, parts of a second included."""
        times = TimesToLive((("a.*", 60), ("b", 0.25)))
        self.assertTrue(times)
        self.assertEqual(times.expiresAt("a.x", 5), 60_000_005)
        self.assertEqual(times.expiresAt("b", 5), 250_005)
        self.assertIsNone(times.expiresAt("c", 5))

    def test_first(self) -> None:
        """The first pattern that matches counts."""
        times = TimesToLive((("a.b", 1), ("a.#", 2)))
        self.assertEqual([times.of(name) for name in ("a.b", "a.c", "b")], [1_000_000, 2_000_000, None])
