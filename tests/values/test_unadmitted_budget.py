"""The budget of the connections that are not admitted yet."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.unadmitted_budget import FREE_BYTES, BufferCharge, UnadmittedBudget


class BudgetTests(SynchronousTestCase):
    """A budget of 100 bytes for two connections."""

    def setUp(self) -> None:
        """Nothing is charged."""
        self.budget = UnadmittedBudget(100)
        self.one, self.two = BufferCharge(self.budget), BufferCharge(self.budget)

    def test_bound(self) -> None:
        """Both together may buffer the budget and not a byte more; a refused change is not charged."""
        self.assertTrue(self.one.change(FREE_BYTES + 60))
        self.assertFalse(self.two.change(FREE_BYTES + 41))
        self.assertTrue(self.two.change(FREE_BYTES + 40))
        self.assertEqual((self.budget.used, self.two.size), (100, FREE_BYTES + 40))

    def test_whatOneReleasesOtherMayUse(self) -> None:
        """What one releases the other may use."""
        self.one.change(FREE_BYTES + 100)
        self.one.change(0)
        self.assertTrue(self.two.change(FREE_BYTES + 100))

    def test_firstBytesOfEachAreFreeAlsoOverBudget(self) -> None:
        """The first bytes of each are free, also over the budget."""
        self.one.change(FREE_BYTES + 100)
        self.assertTrue(self.two.change(FREE_BYTES))
        self.assertEqual(self.budget.used, 100)

    def test_afterLimitWasLoweredConnectionMayStillBufferLessThanBefore(self) -> None:
        """After the limit was lowered, a connection may still buffer less than before."""
        self.one.change(FREE_BYTES + 100)
        self.budget.limit = 10
        self.assertTrue(self.one.change(FREE_BYTES + 90))
        self.assertFalse(self.one.change(FREE_BYTES + 91))
