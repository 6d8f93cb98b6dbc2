"""How fast peers may be, as the settings say and as a reload changes it."""

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.errors import JoinRejected
from fleximq.security.rates.client_rates import Allowance, RateRules
from fleximq.services.network.rate_limits import RateLimits, rulesOf
from tests.dialects.admissions import OPEN

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
        admission = rateLimits.limited(OPEN, lambda event, number: None)
        outcomes: list[object] = []
        for _ in range(2):
            admission.admit(None, FAR).addBoth(outcomes.append)
        return [isinstance(getattr(each, "value", None), JoinRejected) for each in outcomes]

    def test_rules(self) -> None:
        """Every setting stands in its place."""
        self.assertEqual(rulesOf(self.slow), RateRules(rates(1, 2, 3), rates(4, 5, 6), True))
        self.assertFalse(rulesOf(self.free).on)

    def test_of(self) -> None:
        """So do those of addresses."""
        rateLimits = RateLimits.of(self.slow, self.clock)
        self.assertEqual((rateLimits.connects.rate, rateLimits.joins.rate), (Rate(7, 7), Rate(1, 1)))
        self.assertEqual((rateLimits.flapping.most, rateLimits.flapping.wait), (1, 9.0))
        self.assertEqual(self.refused(rateLimits), [False, True])
        self.assertEqual(self.refused(RateLimits.of(self.free, self.clock)), [False, False])

    def test_reload(self) -> None:
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
