"""What is granted by patterns, and how much of what was asked is remembered."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.interfaces import IRights
from fleximq.rights import ALL_BUT_ADMIN, EVERYTHING, Action
from fleximq.security.permissions import MAX_ANSWERS, NAME_CHARACTERS, Answers, Rights
from fleximq.values.patterns import anyOf


class UnrestrictedTests(SynchronousTestCase):
    """The rights without permissions."""

    def test_onePairOfRightsDiffersInRightToAdminAlone(self) -> None:
        """One pair of rights differs in the right to admin alone."""
        for action in Action:
            self.assertTrue(EVERYTHING.may(action, "x"))
            self.assertEqual(ALL_BUT_ADMIN.may(action, "x"), action is not Action.ADMIN)


class RightsTests(SynchronousTestCase):
    """One principal's rights."""

    def test_bothKindsProvideInterfaceOfBroker(self) -> None:
        """Both kinds are what the broker asks."""
        for rights in (Rights({}), EVERYTHING, ALL_BUT_ADMIN):
            self.assertTrue(verifyObject(IRights, rights))

    def test_whatIsNotGrantedIsNotPermitted(self) -> None:
        """What is not granted is not permitted."""
        rights = Rights({})
        for action in Action:
            self.assertFalse(rights.may(action, "a"))
            self.assertFalse(rights.mayMatch(action, "#"))
            self.assertFalse(rights.mayAll(action))

    def test_actionsAreApart(self) -> None:
        """What is granted for one action says nothing about another."""
        rights = Rights({"publish": ("a.#",)})
        self.assertEqual([action for action in Action if rights.may(action, "a.b")], [Action.PUBLISH])
        self.assertEqual([action for action in Action if rights.mayMatch(action, "a.*")], [Action.PUBLISH])

    def test_noWildcardAtFirstLevelCoversWhatBeginsWithDollarSign(self) -> None:
        """No wildcard at the first level covers what begins with a dollar sign."""
        rights = Rights({"subscribe": ("#", "*.x", "$sys/#")})
        self.assertEqual(
            [name for name in ("a", "$dead/a", "$dead.x", "$sys/clients/joined") if rights.may("subscribe", name)],
            ["a", "$sys/clients/joined"],
        )

    def test_paths(self) -> None:
        """The first slash of a path does not count, neither in what is granted nor in what is asked."""
        for granted in ("/time/now", "time/now"):
            rights = Rights({"request": (granted,), "publish": (granted,)})
            self.assertTrue(rights.may("request", "/time/now"))
            self.assertTrue(rights.may("request", "time/now"))
            self.assertFalse(rights.may("request", "//time/now"))
        self.assertFalse(rights.may("publish", "/time/now"))

    def test_broadcastHasNoName(self) -> None:
        """A broadcast has no name; true, which is ``#``, covers it."""
        self.assertTrue(Rights({"broadcast": ("#",)}).may("broadcast", ""))
        self.assertFalse(Rights({"broadcast": ()}).may("broadcast", ""))

    def test_mayAll(self) -> None:
        """Only one pattern for all says all."""
        self.assertTrue(Rights({"subscribe": ("a", "#")}).mayAll("subscribe"))
        self.assertFalse(Rights({"subscribe": ("*", "*.#", "$sys/#")}).mayAll("subscribe"))

    @given(
        st.lists(st.sampled_from(["a", "a.#", "*.b", "#", "$s.#", "b/*/c"]), max_size=4), st.text("ab$./", max_size=6)
    )
    def test_asPatterns(self, patterns: list[str], name: str) -> None:
        """An answer is that of the patterns, and the same when it is asked again."""
        rights = Rights({"publish": patterns})
        expected = anyOf(patterns)(name)
        self.assertEqual([rights.may("publish", name) for _ in range(2)], [expected, expected])

    def test_whoeverAsksAboutEverOtherNamesDoesNotFillMemory(self) -> None:
        """Whoever asks about ever other names does not fill the memory."""
        answers: Answers = {}
        rights = Rights({"publish": ("a.#",)}, answers)
        for number in range(MAX_ANSWERS + 10):
            self.assertTrue(rights.may("publish", f"a.{number}"))
        self.assertEqual(len(answers), 10)
        rights.may("publish", "a" * NAME_CHARACTERS)
        self.assertEqual(len(answers), 11)
        rights.may("publish", "a" * (NAME_CHARACTERS + 1))
        self.assertEqual(len(answers), 11)

    def test_whatIsRememberedForOneIsNotAnothersAnswer(self) -> None:
        """What is remembered for one is not another's answer."""
        answers: Answers = {}
        one, other = Rights({"publish": ("a",)}, answers), Rights({"publish": ("b",)}, answers)
        self.assertEqual([each.may("publish", "a") for each in (one, other, one, other)], [True, False, True, False])
