"""Clients that come and go."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.rates.flapping import WINDOW, FlappingLimit


class FlappingTests(SynchronousTestCase):
    """Three departures in a minute mean five minutes."""

    def setUp(self) -> None:
        """Nobody has left so far; ten are remembered."""
        self.clock = Clock()
        self.flapping = FlappingLimit(3, 300.0, self.clock.seconds, 10)

    def leave(self, who: object = "anna", times: int = 1, lived: float = 1.0, every: float = 0.0) -> None:
        """Leave so many times."""
        for _ in range(times):
            self.flapping.left(who, lived)
            self.clock.advance(every)

    def test_oneDepartureLessIsNoneTooMany(self) -> None:
        """One departure less is none too many."""
        self.leave(times=2)
        self.assertEqual(self.flapping.waits("anna"), 0)

    def test_at(self) -> None:
        """So many departures keep it away for that time, and nobody else."""
        self.assertEqual([self.flapping.left("anna", 1.0) for _ in range(3)], [False, False, True])
        self.assertEqual((self.flapping.waits("anna"), self.flapping.waits("bert")), (300, 0))
        self.clock.advance(299)
        self.assertEqual(self.flapping.waits("anna"), 1)
        self.clock.advance(1)
        self.assertEqual(self.flapping.waits("anna"), 0)
        self.assertEqual(len(self.flapping), 0)

    def test_departuresFurtherApartDoNotAddUp(self) -> None:
        """Departures further apart do not add up."""
        self.leave(times=10, every=WINDOW / 2)
        self.assertEqual(self.flapping.waits("anna"), 0)

    def test_longLived(self) -> None:
        """Who stays for a minute does not flap, however many leave at once."""
        self.leave(times=100, lived=WINDOW)
        self.assertEqual(self.flapping.waits("anna"), 0)

    def test_clientsThatAreNotToldApartAreNotCounted(self) -> None:
        """Clients that are not told apart are not counted."""
        self.leave(None, times=100)
        self.assertEqual((self.flapping.waits(None), len(self.flapping)), (0, 0))

    def test_withoutNumberNobodyHasToWait(self) -> None:
        """Without a number nobody has to wait."""
        off = FlappingLimit()
        for _ in range(100):
            off.left("anna", 0.0)
        self.assertEqual((off.waits("anna"), len(off)), (0, 0))

    def test_howeverManyComeAndGoNoMoreAreRememberedThanThat(self) -> None:
        """However many come and go, no more are remembered than that: of those who left and of those who wait."""
        for number in range(100):
            self.leave(number, times=3)
            self.leave(-number, times=2)
            self.assertLessEqual(len(self.flapping), 20)

    def test_whoLeftMinuteAgoIsForgottenWhenSomebodyElseLeaves(self) -> None:
        """Who left a minute ago is forgotten when somebody else leaves."""
        self.leave("anna")
        self.clock.advance(WINDOW)
        self.leave("bert")
        self.assertEqual(len(self.flapping), 1)

    def test_clockSetBack(self) -> None:
        """A clock that is set back makes nobody wait longer than the time that is set."""
        self.clock.advance(10_000)
        self.leave(times=3)
        self.clock.rightNow = 0.0
        self.assertEqual(self.flapping.waits("anna"), 300)

    def test_changed(self) -> None:
        """Other numbers count from then on; without any, all may come."""
        self.leave(times=3)
        self.flapping.change(3, 60.0)
        self.assertEqual(self.flapping.waits("anna"), 60)
        self.flapping.change(0, 60.0)
        self.assertEqual((self.flapping.waits("anna"), len(self.flapping)), (0, 0))
