"""What is known of secrets for a while."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.authentication.result_cache import ResultCache


class RememberedTests(SynchronousTestCase):
    """A memory of ten seconds, for three."""

    def setUp(self) -> None:
        """Remember nothing yet."""
        self.clock = Clock()
        self.memory: ResultCache[str] = ResultCache(self.clock.seconds, 10.0, most=3)

    def test_onlyJustSameTextsAreKnownAndWhereOneEndsAndNextBeginsMatters(self) -> None:
        """Only just the same texts are known, and where one ends and the next begins matters."""
        self.memory.put("who", "ab", "c")
        self.assertEqual(self.memory.get("ab", "c"), "who")
        for other in (("a", "bc"), ("abc",), ("abc", ""), ("ab", "c", ""), ("ab", "d"), ("\udc80",)):
            self.assertIsNone(self.memory.get(*other))

    def test_afterItsTimeItIsForgottenAndTakesNoRoom(self) -> None:
        """After its time it is forgotten, and takes no room."""
        self.memory.put("who", "a")
        self.clock.advance(9.9)
        self.assertEqual(self.memory.get("a"), "who")
        self.clock.advance(0.1)
        self.assertIsNone(self.memory.get("a"))
        self.assertEqual(len(self.memory), 0)

    def test_oneThingMayBeForgottenSoonerThanRestNeverLater(self) -> None:
        """One thing may be forgotten sooner than the rest, never later; at once is not at all."""
        for lasting, known in ((1.0, 0.9), (99.0, 9.9)):
            self.memory.put("who", "a", lasting=lasting)
            self.clock.advance(known)
            self.assertEqual(self.memory.get("a"), "who")
            self.clock.advance(0.2)
            self.assertIsNone(self.memory.get("a"))
        self.memory.put("who", "a")
        self.memory.put("who", "a", lasting=0)
        self.assertIsNone(self.memory.get("a"))

    def test_oldestIsForgottenAtBound(self) -> None:
        """It holds so many; the oldest goes."""
        for name in "abcd":
            self.memory.put(name, name)
        self.assertEqual([self.memory.get(name) for name in "abcd"], [None, "b", "c", "d"])

    def test_noSecrets(self) -> None:
        """What was shown is nowhere in it."""
        self.memory.put("who", "the password")
        self.assertNotIn("password", repr(vars(self.memory)))
