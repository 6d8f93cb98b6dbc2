"""After how long messages expire."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.rules import AgeLimits


class TimesToLiveTests(SynchronousTestCase):
    """Patterns and seconds."""

    def test_none(self) -> None:
        """Without patterns nothing expires."""
        none = AgeLimits(())
        self.assertFalse(none)
        self.assertIsNone(none.of("t"))

    def test_microseconds(self) -> None:
        """What was said in seconds is added in microseconds, parts of a second included."""
        times = AgeLimits((("a.*", 60), ("b", 0.25)))
        self.assertTrue(times)
        self.assertEqual(times.of("a.x"), 60_000_000)
        self.assertEqual(times.of("b"), 250_000)
        self.assertIsNone(times.of("c"))

    def test_first(self) -> None:
        """The first pattern that matches counts."""
        times = AgeLimits((("a.b", 1), ("a.#", 2)))
        self.assertEqual([times.of(name) for name in ("a.b", "a.c", "b")], [1_000_000, 2_000_000, None])
