"""Admission of those who do not come too often."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.errors import JoinRejected
from fleximq.interfaces import IAdmission
from fleximq.rights import EVERYTHING
from fleximq.security.bans import Ban, Bans
from fleximq.security.peer_address import addressKey, clientKey
from fleximq.security.principal import Admitted, Principal
from fleximq.security.rates.client_rates import Allowance, RateRules, Rates
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.security.rates.rate_limits import (
    BANNED,
    FLAPS,
    JOINING_TOO_OFTEN,
    RateLimitedAdmission,
    RateLimits,
    rulesOf,
)
from fleximq.security.rates.token_bucket import KeyedBuckets
from tests.dialects.admissions import OPEN

LOCAL = IPv4Address("TCP", "127.0.0.1", 1)
FAR = IPv4Address("TCP", "192.0.2.1", 1)
RATES = {
    "max-message-rate": 1,
    "max-byte-rate": 2,
    "max-subscribe-rate": 3,
    "principal-message-rate": 4,
    "principal-byte-rate": 5,
    "principal-subscribe-rate": 6,
    "over-rate": "refuse",
    "max-connect-rate": 7,
    "max-join-rate": 1,
    "max-disconnects": 1,
    "flapping-wait": 9,
}


@implementer(IAdmission)
class _Open:
    """Admits everybody as whom it shows itself."""

    required = True

    def __init__(self) -> None:
        self.asked = 0

    def refusal(self, address: Any) -> str | None:
        return None if address is LOCAL else "no"

    def admit(self, credentials: Any, address: Any) -> "Deferred[Admitted]":
        self.asked += 1
        return succeed(Admitted(None if credentials is None else Principal(credentials), EVERYTHING))

    def renewed(self, admitted: Any) -> Any:
        return admitted


class RateLimitedAdmissionTests(SynchronousTestCase):
    """Two attempts a second from each address; two departures mean a minute."""

    def setUp(self) -> None:
        """Nobody came so far."""
        self.clock = Clock()
        self.inner = _Open()
        self.counted: list[str] = []
        self.bans = Bans(self.clock.seconds)
        self.flapping = FlappingLimit(2, 60.0, self.clock.seconds)
        self.admission: Any = RateLimitedAdmission(
            self.inner,
            RateLimits(self.clock, Rates(), KeyedBuckets(None), KeyedBuckets(Rate(2, 2)), self.flapping, self.bans),
            lambda event, number: self.counted.append(event),
        )

    def flap(self, who: Any) -> None:
        """Come and go too often."""
        for _ in range(2):
            self.flapping.left(who, 1.0)

    def test_limitedAdmissionSaysWhatInnerOneSays(self) -> None:
        """It is an admission, and says of itself what the one behind it does."""
        verifyObject(IAdmission, self.admission)
        self.assertTrue(self.admission.required)
        self.assertEqual([self.admission.refusal(LOCAL), self.admission.refusal(FAR)], [None, "no"])

    def test_attempts(self) -> None:
        """An address over its rate is turned away before anybody looks at what it shows."""
        for _ in range(2):
            self.successResultOf(self.admission.admit("anna", FAR))
        error = self.assertRaises(JoinRejected, self.admission.admit, "anna", FAR)
        self.assertEqual(str(error), "this address tries to join too often")
        self.assertEqual((self.inner.asked, self.counted), (2, [JOINING_TOO_OFTEN]))
        self.clock.advance(0.5)
        self.successResultOf(self.admission.admit("anna", FAR))

    def test_thisMachinesOwnMayTryAsOftenAsTheyLike(self) -> None:
        """This machine's own may try as often as they like."""
        for _ in range(100):
            self.successResultOf(self.admission.admit(None, LOCAL))

    def test_principalFlaps(self) -> None:
        """A principal that came and went too often has to wait, wherever it comes from."""
        self.flap(clientKey("anna", None))
        for place in (LOCAL, FAR):
            error = self.failureResultOf(self.admission.admit("anna", place), JoinRejected).value
            self.assertEqual(str(error), "this client came and went too often and has to wait for 60 s")
            self.assertEqual(error.principal, "anna")
        self.assertEqual(self.counted, [FLAPS] * 2)
        self.successResultOf(self.admission.admit("bert", LOCAL))
        self.clock.advance(60)
        self.successResultOf(self.admission.admit("anna", LOCAL))

    def test_addressFlaps(self) -> None:
        """An address that came and went too often has to wait, whatever it shows."""
        self.flap(addressKey(FAR))
        self.assertRaises(JoinRejected, self.admission.admit, "anna", FAR)
        self.assertEqual(self.inner.asked, 0)

    def test_banned(self) -> None:
        """An address is refused from its ban on, also if its credentials are being checked."""
        check: Deferred[Admitted] = Deferred()
        self.patch(self.inner, "admit", lambda credentials, address: check)
        self.inner.refusal = lambda address: None  # type: ignore[method-assign]
        admitted = self.admission.admit("anna", FAR)
        self.assertIsNone(self.admission.refusal(FAR))
        self.bans.add(Ban("address", "192.0.2.1", 60.0, "", "x"))
        check.callback(Admitted(Principal("anna"), EVERYTHING))
        sentence = "this client is banned for another 60 s"
        self.assertEqual(str(self.failureResultOf(admitted, JoinRejected).value), sentence)
        self.assertEqual([self.admission.refusal(FAR), self.admission.refusal(LOCAL)], [sentence, None])
        self.assertEqual(self.counted, [BANNED] * 2)
        self.clock.advance(60)
        self.assertIsNone(self.admission.refusal(FAR))

    def test_anonymous(self) -> None:
        """A ban of anonymous clients refuses those of this machine too, a reload included, and no others."""
        self.bans.add(Ban("principal", "anonymous", 60.0, "", "x"))
        for place in (LOCAL, FAR):
            self.failureResultOf(self.admission.admit(None, place), JoinRejected)
            self.successResultOf(self.admission.admit("anna", place))
        self.assertRaises(JoinRejected, self.admission.renewed, Admitted(None, EVERYTHING))
        self.clock.advance(60)
        self.successResultOf(self.admission.admit(None, LOCAL))

    def test_clientsAreToldApartByPrincipalElseByAddress(self) -> None:
        """Clients are told apart by principal, else by address; no name can be taken for an address."""
        self.assertEqual(clientKey("anna", FAR), clientKey("anna", LOCAL))
        self.assertEqual(clientKey(None, FAR), addressKey(FAR))
        self.assertNotEqual(clientKey("192.0.2.1", FAR), addressKey(FAR))
        self.assertIsNone(clientKey(None, LOCAL))


def rates(*each: int) -> Allowance:
    """Return an allowance of so many a second, and at once."""
    return Allowance(*(Rate(number, number) for number in each))


class PacesTests(SynchronousTestCase):
    """From the settings to what counts."""

    def setUp(self) -> None:
        """Time stands still."""
        self.clock = Clock()
        self.slow, self.free = Settings.of(RATES), Settings()

    def refused(self, rateLimits: RateLimits) -> list[bool]:
        """Try to join twice at once, and tell which attempts are refused."""
        admission = RateLimitedAdmission(OPEN, rateLimits, lambda event, number: None)
        outcomes: list[object] = []
        for _ in range(2):
            maybeDeferred(admission.admit, None, FAR).addBoth(outcomes.append)
        return [isinstance(getattr(each, "value", None), JoinRejected) for each in outcomes]

    def test_everySettingStandsInItsPlace(self) -> None:
        """Every setting stands in its place."""
        self.assertEqual(rulesOf(self.slow), RateRules(rates(1, 2, 3), rates(4, 5, 6), True))
        self.assertFalse(rulesOf(self.free).on)

    def test_addressesHavePacesToo(self) -> None:
        """So do those of addresses."""
        rateLimits = RateLimits.of(self.slow, self.clock)
        self.assertEqual((rateLimits.connects.rate, rateLimits.joins.rate), (Rate(7, 7), Rate(1, 1)))
        self.assertEqual((rateLimits.flapping.most, rateLimits.flapping.wait), (1, 9.0))
        self.assertEqual(self.refused(rateLimits), [False, True])
        self.assertEqual(self.refused(RateLimits.of(self.free, self.clock)), [False, False])

    def test_preparedRatesChangeNothingBeforeTheyAreTaken(self) -> None:
        """What is prepared changes nothing before it is done, and everything then."""
        rateLimits = RateLimits.of(self.free, self.clock)
        change = rateLimits.prepare(self.slow)
        self.assertFalse(rateLimits.rates.rules.on)
        self.assertEqual(self.refused(rateLimits), [False, False])
        change()
        self.assertEqual(rateLimits.rates.rules, rulesOf(self.slow))
        self.assertEqual(self.refused(rateLimits), [False, True])
        rateLimits.flapping.left("who", 1.0)
        self.assertEqual(rateLimits.flapping.waits("who"), 9.0)
        rateLimits.prepare(self.free)()
        self.assertEqual(self.refused(rateLimits), [False, False])
        self.assertEqual(rateLimits.flapping.waits("who"), 0.0)
