"""One checker behind a portal."""

from typing import Any

from twisted.cred.checkers import ANONYMOUS, AllowAnonymousAccess, ICredentialsChecker
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.errors import JoinRejected, NoCapacity, SettingError
from fleximq.security.authentication.authenticator import AT_ONCE, AuthenticationMethod
from fleximq.security.authentication.checker_interfaces import IRemembering, IVouching
from fleximq.security.credentials import ApiKey, Password, Token
from fleximq.security.principal import Principal
from tests.security.sample_checkers import Answers, TwistedsOwn, pending


class MethodTests(SynchronousTestCase):
    """What comes of asking."""

    def ask(self, answer: Any, place: str = "here") -> Deferred[Any]:
        """Ask a way whose checker answers this."""
        way = AuthenticationMethod("sample", Answers({"t": answer}))
        return Deferred.fromCoroutine(way.ask(Token("t"), place))

    def test_principalIsGivenAsItIsMarkedWithScheme(self) -> None:
        """A principal is given as it is, marked with the scheme."""
        who = Principal("alice", frozenset({"ops"}), expires=7.0, proof="p")
        found = self.successResultOf(self.ask(who))
        self.assertEqual(found, Principal("alice", frozenset({"ops"}), {}, "sample", 7.0, "p"))

    def test_avatarIdsOfCheckersThatKnowNothingOfUsAreNames(self) -> None:
        """The avatar ids of checkers that know nothing of us are names."""
        for id in (b"alice", "alice"):
            self.assertEqual(self.successResultOf(self.ask(id)), Principal("alice", scheme="sample"))
        self.assertEqual(self.successResultOf(self.ask("zoë".encode())).name, "zoë")

    def test_noNames(self) -> None:
        """What nobody can be called is nobody, Twisted's anonymous included."""
        for id in (ANONYMOUS, b"", b"anonymous", b"spawn:x", b"\xff", "a\n", Principal("spawn:x"), Principal("")):
            self.assertIsNone(self.successResultOf(self.ask(id)), id)

    def test_whoIsNotKnownIsNobody(self) -> None:
        """Who is not known is nobody."""
        self.assertIsNone(self.successResultOf(self.ask(None)))

    def test_ownReasons(self) -> None:
        """A checker may say in our words why not."""
        for error in (NoCapacity("later"), JoinRejected("banned")):
            self.assertIs(self.failureResultOf(self.ask(error)).value, error)

    def test_checkerThatBreaksLetsNobodyIn(self) -> None:
        """A checker that breaks lets nobody in; the log has the reason, the peer has not."""
        error = self.failureResultOf(self.ask(ValueError("secret words")), NoCapacity).value
        self.assertEqual(str(error), "the credentials cannot be checked now")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_brokenOften(self) -> None:
        """At most ten tracebacks a second are logged."""
        way = AuthenticationMethod("sample", Answers({"t": ValueError("x")}))
        for _ in range(40):
            self.failureResultOf(Deferred.fromCoroutine(way.ask(Token("t"), "here")), NoCapacity)
        self.assertLessEqual(len(self.flushLoggedErrors(ValueError)), 20)

    def test_nameOrPasswordWithNULIsWrong(self) -> None:
        """A name or password with NUL is wrong; a checker that calls the system would fail, if the name exists."""
        way = AuthenticationMethod("own", TwistedsOwn())
        for username, password in (("zoë\0", "zoë\0"), ("zoë", "\0")):
            asked = Deferred.fromCoroutine(way.ask(Password(username, password), "here"))
            self.assertIsNone(self.successResultOf(asked))

    def test_methodTakesCredentialsOfItsChecker(self) -> None:
        """It takes what its checker takes, and for Twisted's names and passwords ours."""
        self.assertTrue(AuthenticationMethod("a", Answers({})).accepts(Token("")))
        self.assertFalse(AuthenticationMethod("a", Answers({})).accepts(ApiKey("")))
        self.assertTrue(AuthenticationMethod("a", TwistedsOwn()).accepts(Password("", "")))
        self.assertFalse(AuthenticationMethod("a", TwistedsOwn()).accepts(Token("")))

    def test_checkersThatComeWithTwistedAreAskedInTheirOwnWordsInUTF8(self) -> None:
        """Checkers that come with Twisted are asked in their own words, in UTF-8."""
        way = AuthenticationMethod("own", TwistedsOwn())
        for username, password, name in (("zoë", "zoë", "zoë"), ("zoë", "x", None), ("x", "y\udc80", None)):
            found = self.successResultOf(Deferred.fromCoroutine(way.ask(Password(username, password), "here")))
            self.assertEqual(found and found.name, name)

    def test_nothingToCheck(self) -> None:
        """A checker for something that no client can show is a mistake."""
        error = self.assertRaises(SettingError, AuthenticationMethod, "anonymous", AllowAnonymousAccess())
        self.assertEqual(str(error), "auth anonymous checks nothing that a client of this broker can show")

    def test_unlessItsSecretsCannotBeGuessedItIsAskedFewTimesAtTimeOnly(self) -> None:
        """Unless its secrets cannot be guessed, it is asked a few times at a time only."""
        checker = Answers({"t": pending()})
        way = AuthenticationMethod("a", checker)
        for _ in range(AT_ONCE + 3):
            Deferred.fromCoroutine(way.ask(Token("t"), "here"))
        self.assertEqual((way.guarded, len(checker.asked)), (True, AT_ONCE))
        checker = Answers({"t": pending()}, unguessable=True)
        way = AuthenticationMethod("a", checker)
        for _ in range(AT_ONCE + 3):
            Deferred.fromCoroutine(way.ask(Token("t"), "here"))
        self.assertEqual((way.guarded, len(checker.asked)), (False, AT_ONCE + 3))

    def test_offersNothing(self) -> None:
        """A checker that cannot tell whether it still vouches for somebody does; it remembers nobody and warns of
        nothing.
        """
        way, who = AuthenticationMethod("a", Answers({})), Principal("alice")
        self.assertEqual((way.vouch(who), way.remembered(Token("t")), way.warnings), (who, None, ()))


@implementer(ICredentialsChecker, IVouching, IRemembering)
class Remembers(Answers):
    """Vouches for alice, and remembers her."""

    def vouch(self, principal: Principal) -> Principal | None:
        """Return alice."""
        return principal if principal.name == "alice" else None

    def remembered(self, credentials: Any) -> Principal:
        """Return alice."""
        return Principal("alice")


class PrefixTests(SynchronousTestCase):
    """Names of one checker are not those of another."""

    def test_everywhere(self) -> None:
        """The prefix is before each name that leaves the checker, and no other name is its own."""
        way = AuthenticationMethod("a", Remembers({"t": "alice"}), "x:")
        asked = self.successResultOf(Deferred.fromCoroutine(way.ask(Token("t"), "here")))
        assert asked is not None
        self.assertEqual((asked.name, asked.scheme), ("x:alice", "a,prefix=x:"))
        self.assertEqual(way.remembered(Token("t")), asked)
        self.assertEqual(way.vouch(asked), asked)
        self.assertIsNone(way.vouch(Principal("x:bob")))

    def test_nameWithItsPrefixIsStillName(self) -> None:
        """A name with its prefix is still a name."""
        for length, good in ((254, True), (255, False)):
            way = AuthenticationMethod("a", Answers({"t": "a" * length}), "x:")
            found = self.successResultOf(Deferred.fromCoroutine(way.ask(Token("t"), "here")))
            self.assertEqual(found is not None, good)
