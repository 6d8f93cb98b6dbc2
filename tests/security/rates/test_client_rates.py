"""What clients and principals may send."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.rate_options import Rate
from fleximq.security.rates.client_rates import MAX_DEPARTED, Allowance, Meter, RateRules, Rates

TEN = Rate(10, 10)
FREE = Allowance()


class MeterTests(SynchronousTestCase):
    """Meters of clients."""

    def setUp(self) -> None:
        """Time stands still."""
        self.clock = Clock()

    def rates(self, client: Allowance = FREE, principal: Allowance = FREE, refuses: bool = False) -> Rates:
        """Return what gives out meters by these rules."""
        return Rates(RateRules(client, principal, refuses), self.clock.seconds)

    def meter(self, rates: Rates, principal: str | None = None) -> Meter:
        """Return the meter of one more client."""
        meter = rates.meter(principal)
        assert meter is not None
        return meter

    def test_whereNothingIsLimitedThereIsNoMeter(self) -> None:
        """Where nothing is limited there is no meter."""
        self.assertIsNone(Rates().meter("anna"))

    def test_ownRates(self) -> None:
        """A principal's own rates replace those of the rules, also where there are none, and follow a change."""
        own: dict[str, Rate | None] = {"max-message-rate": Rate(1, 1), "principal-byte-rate": Rate(100, 100)}
        rates = self.rates()
        first, second = (rates.meter("anna", lambda: own) for _ in range(2))
        assert first is not None and second is not None
        self.assertIsNone(rates.meter("bert"))
        first.spend(2, 150)
        self.assertEqual((first.wait(), second.wait()), (1, 0.5))
        own |= {"max-message-rate": None, "principal-byte-rate": Rate(50, 50)}
        rates.change(RateRules(Allowance(TEN)))
        self.assertEqual((first.wait(), second.wait()), (1, 1))
        second.spend(1000, 0)
        self.assertEqual(second.wait(), 1)

    def test_eachKind(self) -> None:
        """Messages, bytes and subscriptions are counted by themselves; the longest wait counts."""
        meter = self.meter(self.rates(Allowance(TEN, Rate(1000, 1000), Rate(1, 1))))
        meter.spend(10, 1000)
        meter.spendSubscription()
        self.assertEqual(meter.wait(), 0)
        meter.spend(10, 0)
        self.assertEqual(meter.wait(), 1)
        meter.spend(0, 2000)
        self.assertEqual(meter.wait(), 2)
        for _ in range(3):
            meter.spendSubscription()
        self.assertEqual(meter.wait(), 3)

    def test_shared(self) -> None:
        """All clients of a principal use the same allowance, other principals and anonymous clients do not."""
        rates = self.rates(principal=Allowance(TEN))
        first, second = self.meter(rates, "anna"), self.meter(rates, "anna")
        other, nobody = self.meter(rates, "bert"), self.meter(rates)
        first.spend(10, 0)
        second.spend(10, 0)
        nobody.spend(1000, 0)
        self.assertEqual([each.wait() for each in (first, second, other, nobody)], [1, 1, 0, 0])

    def test_clientsOwnAllowanceAndThatOfItsPrincipalBothCount(self) -> None:
        """A client's own allowance and that of its principal both count."""
        rates = self.rates(Allowance(TEN), Allowance(Rate(15, 15)))
        first, second = self.meter(rates, "anna"), self.meter(rates, "anna")
        first.spend(10, 0)
        second.spend(10, 0)
        self.assertAlmostEqual(first.wait(), 5 / 15)

    def test_principalWhoseClientsHaveGoneAndOweNothingIsForgotten(self) -> None:
        """A principal whose clients have gone and owe nothing is forgotten."""
        rates = self.rates(principal=Allowance(TEN))
        first, second = self.meter(rates, "anna"), self.meter(rates, "anna")
        first.close()
        self.assertEqual(rates.principals, 1)
        second.close()
        self.assertEqual(rates.principals, 0)

    def test_debtStays(self) -> None:
        """To go and come again clears no debt."""
        rates = self.rates(principal=Allowance(TEN))
        first = self.meter(rates, "anna")
        first.spend(30, 0)
        first.close()
        second = self.meter(rates, "anna")
        self.assertEqual(second.wait(), 2)
        self.clock.advance(5)
        second.close()
        self.assertEqual(rates.principals, 0)

    def test_goneBounded(self) -> None:
        """No more debtors are remembered than that."""
        rates = self.rates(principal=Allowance(TEN))
        for number in range(MAX_DEPARTED + 100):
            meter = self.meter(rates, f"user{number}")
            meter.spend(30, 0)
            meter.close()
        self.assertLessEqual(rates.principals, MAX_DEPARTED)
        self.clock.advance(100)
        for _ in range(MAX_DEPARTED):
            self.meter(rates, "anna").close()
        self.assertEqual(rates.principals, 0)

    def test_closedTwice(self) -> None:
        """A second close does nothing."""
        rates = self.rates(principal=Allowance(TEN))
        first, _ = self.meter(rates, "anna"), self.meter(rates, "anna")
        first.close()
        first.close()
        self.assertEqual(rates.principals, 1)

    def test_ofRunSoManyAreAdmittedAsAreWithinRateAndOnlyThoseAreCharged(self) -> None:
        """Of a run, so many are admitted as are within the rate, and only those are charged."""
        meter = self.meter(self.rates(Allowance(TEN), refuses=True))
        self.assertEqual([meter.admits(4, 400), meter.admits(100, 10000), meter.admits(1, 100)], [4, 6, 0])
        self.clock.advance(0.1)
        self.assertEqual([meter.admits(2, 200), meter.admits(1, 100)], [1, 0])

    def test_admitsBytes(self) -> None:
        """Bytes are admitted while there is anything left, so that a message longer than the burst has its turn."""
        meter = self.meter(self.rates(Allowance(bytes=Rate(100, 100)), refuses=True))
        self.assertEqual([meter.admits(1, 500), meter.admits(1, 1)], [1, 0])
        self.clock.advance(4.5)
        self.assertEqual([meter.admits(10, 100), meter.admits(1, 0)], [5, 0])

    def test_admitsSubscription(self) -> None:
        """A subscription over the rate is refused and not charged."""
        meter = self.meter(self.rates(Allowance(subscriptions=Rate(1, 2)), refuses=True))
        self.assertEqual([meter.admitsSubscription() for _ in range(3)], [True, True, False])
        self.clock.advance(1)
        self.assertEqual([meter.admitsSubscription() for _ in range(2)], [True, False])

    def test_newRulesCountForWhoIsThereAsFarAsItHadMeter(self) -> None:
        """New rules count for who is there, as far as it had a meter."""
        rates = self.rates(Allowance(TEN), Allowance(TEN))
        meter = self.meter(rates, "anna")
        meter.spend(30, 0)
        rates.change(RateRules(Allowance(Rate(20, 20)), Allowance(None, TEN), True))
        self.assertEqual((meter.wait(), meter.refuses), (1, True))
        meter.spend(0, 40)
        self.assertEqual(meter.wait(), 3)
        rates.change(RateRules())
        self.assertEqual((meter.wait(), meter.admits(1000, 1000)), (0, 1000))
        self.assertIsNone(rates.meter("anna"))
