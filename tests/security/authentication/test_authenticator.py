"""Finding out who somebody is."""

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import AuthenticationFailed, JoinRejected, NoCapacity, Unauthorized
from fleximq.security.authentication import authenticator
from fleximq.security.authentication.attempt_delays import FIRST_DELAY, MAX_CONCURRENT, AttemptDelays
from fleximq.security.authentication.authenticator import WRONG, AuthenticationMethod, Authenticator
from fleximq.security.credentials import ApiKey, Token
from fleximq.security.principal import Principal
from tests.security.sample_checkers import Answers, pending

HERE = IPv4Address("TCP", "192.0.2.1", 1)
THERE = IPv4Address("TCP", "192.0.2.2", 1)


class AuthenticatorTests(SynchronousTestCase):
    """Ways that answer from a table."""

    def setUp(self) -> None:
        """Know nobody yet."""
        self.clock = Clock()
        self.attempts = AttemptDelays(self.clock)
        self.counted: list[tuple[str, int]] = []
        self.asks()

    def asks(self, *checkers: Answers) -> None:
        """Ask these from now on, by the schemes a, b, c."""
        ways = [AuthenticationMethod(scheme, checker) for scheme, checker in zip("abc", checkers, strict=False)]
        self.authenticator = Authenticator(ways, self.attempts, self.clock, lambda *each: self.counted.append(each))

    def identify(self, token: str = "t", address: Any = HERE) -> Deferred[Any]:
        """Show a token."""
        return Deferred.fromCoroutine(self.authenticator.identify(Token(token), address))

    def test_firstThatKnowsSomebodyDecidesWhoItIs(self) -> None:
        """The first that knows somebody decides who it is; the others are not asked."""
        ways = Answers({}), Answers({"t": b"alice"}), Answers({"t": b"bob"})
        self.asks(*ways)
        self.assertEqual(self.successResultOf(self.identify()), Principal("alice", scheme="b"))
        self.assertEqual([way.asked for way in ways], [["t"], ["t"], []])

    def test_noKind(self) -> None:
        """Credentials that nothing checks are another mistake than wrong ones, and are told at once."""
        self.asks(Answers({}))
        asked = Deferred.fromCoroutine(self.authenticator.identify(ApiKey("k"), HERE))
        self.failureResultOf(asked, AuthenticationFailed)

    def test_wrongAnswerComesAfterWhileLongerWithEachOneInAlwaysSameWords(self) -> None:
        """A wrong answer comes after a while, longer with each one, in always the same words."""
        self.asks(Answers({}, unguessable=True))
        for delay in (0.1, 0.2, 0.4):
            asked = self.identify()
            self.clock.advance(delay - 0.01)
            self.assertNoResult(asked)
            self.clock.advance(0.01)
            error = self.failureResultOf(asked, Unauthorized).value
            self.assertEqual(str(error), "these credentials are not valid here")
        self.assertEqual(self.counted, [(WRONG, 1)] * 3)

    def test_rightAtOnce(self) -> None:
        """Right credentials never wait, whatever came before from there."""
        self.asks(Answers({"good": b"alice"}))
        for _ in range(3):
            self.identify("bad").addErrback(lambda _: None)
        self.assertEqual(self.successResultOf(self.identify("good")).name, "alice")

    def test_placesAreAddressesOfIPv6NetworksAndThisMachine(self) -> None:
        """Places are addresses, of IPv6 networks, and this machine; each has its own delay."""
        self.asks(Answers({}))
        places = [
            (HERE, IPv4Address("TCP", "192.0.2.1", 9), IPv6Address("TCP", "::ffff:192.0.2.1", 1)),
            (THERE,),
            (IPv6Address("TCP", "2001:db8::1", 1), IPv6Address("TCP", "2001:db8::ffff:2", 1)),
            (IPv6Address("TCP", "2001:db8:0:1::1", 1),),
            (IPv4Address("TCP", "127.0.0.1", 1), UNIXAddress(b"/x"), IPv6Address("TCP", "::1", 1), None),
        ]
        for place in places:
            for number, address in enumerate(place):
                asked = self.identify(address=address)
                self.clock.advance(FIRST_DELAY * 2**number - 0.01)
                self.assertNoResult(asked)
                self.clock.advance(0.02)
                self.failureResultOf(asked, Unauthorized)

    def test_moreThanFewWrongAttemptsAtTimeFromOnePlaceAreNotEvenLookedAt(self) -> None:
        """More than a few wrong attempts at a time from one place are not even looked at; others are."""
        checker = Answers({"good": b"alice"})
        self.asks(checker)
        for _ in range(MAX_CONCURRENT):
            self.identify("bad").addErrback(lambda _: None)
        del checker.asked[:]
        self.failureResultOf(self.identify("bad"), NoCapacity)
        self.failureResultOf(self.identify("good"), NoCapacity)
        self.assertEqual(checker.asked, [])
        self.assertEqual(self.successResultOf(self.identify("good", THERE)).name, "alice")

    def test_crowdOfUnguessable(self) -> None:
        """Where nothing can be guessed, right credentials come in through any crowd."""
        self.asks(Answers({"good": b"alice"}, unguessable=True))
        for _ in range(MAX_CONCURRENT):
            self.identify("bad").addErrback(lambda _: None)
        self.failureResultOf(self.identify("bad"), NoCapacity)
        self.assertEqual(self.successResultOf(self.identify("good")).name, "alice")

    def test_goneBefore(self) -> None:
        """Who goes before the check or the answer is counted all the same, and its part stays taken."""
        self.asks(Answers({"slow": pending()}))
        for token in ("slow", "bad"):
            asked = self.identify(token)
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
        asked = self.identify("bad")
        self.clock.advance(0.3)
        self.assertNoResult(asked)
        self.clock.advance(0.1)
        self.failureResultOf(asked, Unauthorized)
        for _ in range(MAX_CONCURRENT):
            self.identify("bad").addBoth(lambda _: None).cancel()
        self.failureResultOf(self.identify("bad"), NoCapacity)

    def test_cannotTell(self) -> None:
        """A way that cannot tell keeps the door shut, unless another knows who it is."""
        self.asks(Answers({"t": NoCapacity("down"), "u": NoCapacity("down")}), Answers({"u": b"bob"}))
        self.assertEqual(str(self.failureResultOf(self.identify("t"), NoCapacity).value), "down")
        self.assertEqual(self.successResultOf(self.identify("u")).name, "bob")
        self.assertEqual(self.counted, [])

    def test_keptOut(self) -> None:
        """Whom a way keeps out by policy, no other lets in."""
        self.asks(Answers({"t": JoinRejected("banned")}), Answers({"t": b"bob"}))
        self.failureResultOf(self.identify(), JoinRejected)

    def test_fewLines(self) -> None:
        """A flood of wrong attempts is two lines of the log in two seconds."""
        lines: list[Any] = []
        self.patch(authenticator, "_log", type("L", (), {"info": lambda _, text, **each: lines.append(each)})())
        self.asks(Answers({}))
        for _ in range(MAX_CONCURRENT):
            self.identify().addErrback(lambda _: None)
        self.clock.advance(6)
        self.identify().addErrback(lambda _: None)
        self.assertEqual(
            lines, [{"peer": "192.0.2.1:1", "more": 0}, {"peer": "192.0.2.1:1", "more": MAX_CONCURRENT - 1}]
        )

    def test_flood(self) -> None:
        """A hundred thousand wrong passwords leave nothing behind, and others come in meanwhile."""
        held = pending()
        self.asks(Answers({"slow": held, "good": b"alice"}))
        outcomes: dict[str, int] = {}

        def count(failure: Any) -> None:
            outcomes[failure.type.__name__] = outcomes.get(failure.type.__name__, 0) + 1

        for number in range(100_000):
            self.identify("bad").addErrback(count)
            if number % 20_000 == 0:
                self.assertEqual(self.successResultOf(self.identify("good", THERE)).name, "alice")
        self.assertEqual(outcomes, {"NoCapacity": 100_000 - MAX_CONCURRENT})
        self.assertEqual((len(self.attempts), len(self.clock.getDelayedCalls())), (2, MAX_CONCURRENT))
        self.clock.advance(10)
        self.assertEqual(outcomes["Unauthorized"], MAX_CONCURRENT)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_floodFromEverywhere(self) -> None:
        """Wrong attempts from ever more addresses are not remembered without end."""
        self.attempts = AttemptDelays(self.clock, most=100)
        self.asks(Answers({}, unguessable=True))
        for number in range(2000):
            self.identify(address=IPv4Address("TCP", f"10.0.{number >> 8}.{number & 255}", 1)).addErrback(
                lambda _: None
            )
            self.clock.advance(1)
        self.assertEqual(len(self.attempts), 100)
