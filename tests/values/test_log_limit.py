"""Few lines of the log, however much happens."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.log_limit import LogLimit


class SeldomTests(SynchronousTestCase):
    """Two lines a second."""

    def setUp(self) -> None:
        """Nothing was said so far."""
        self.logLimit = LogLimit(2)

    def test_asManyAsMayAreLetByOthersAreNot(self) -> None:
        """As many as may are let by, the others are not."""
        self.assertEqual([self.logLimit.passes(5.0) for _ in range(4)], [0, 0, None, None])

    def test_inNextSecondFirstLineSaysHowManyWereLeftOut(self) -> None:
        """In the next second the first line says how many were left out."""
        for _ in range(5):
            self.logLimit.passes(5.0)
        self.assertIsNone(self.logLimit.passes(5.9))
        self.assertEqual([self.logLimit.passes(6.0) for _ in range(3)], [4, 0, None])

    def test_clockSetBack(self) -> None:
        """A clock that goes back silences nothing."""
        for _ in range(3):
            self.logLimit.passes(100.0)
        self.assertEqual(self.logLimit.passes(50.0), 1)
