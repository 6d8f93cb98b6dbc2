"""Token buckets."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.rate_options import Rate
from fleximq.security.rates.token_bucket import TINY, Bucket, KeyedBuckets


class BucketTests(SynchronousTestCase):
    """One bucket: 10 a second, 20 at once."""

    def setUp(self) -> None:
        """It is full at first."""
        self.bucket = Bucket(Rate(10, 20), 100.0)

    def test_whatMayComeAtOnceMayComeAtOnceAndNotOneMore(self) -> None:
        """What may come at once may come at once, and not one more."""
        self.assertEqual([self.bucket.take(1, 100.0) for _ in range(21)], [True] * 20 + [False])

    def test_bucketFillsAtItsRate(self) -> None:
        """It fills at its rate, up to the burst."""
        self.bucket.spend(20, 100.0)
        self.assertEqual([self.bucket.left(100.0 + each) for each in (0, 0.5, 2, 100)], [0, 5, 20, 20])

    def test_whatCameIsChargedAndItSaysHowLongUntilThatIsMadeGood(self) -> None:
        """What came is charged, and it says how long until that is made good."""
        self.bucket.spend(120, 100.0)
        self.assertEqual((self.bucket.left(100.0), self.bucket.wait(100.0)), (-100, 10.0))
        self.assertFalse(self.bucket.take(1, 109.0))
        self.assertEqual(self.bucket.wait(110.0), 0.0)
        self.assertTrue(self.bucket.take(1, 110.1))

    def test_refusedIsFree(self) -> None:
        """What is not taken is not charged."""
        self.bucket.spend(20, 100.0)
        self.assertFalse(self.bucket.take(1, 100.0))
        self.assertTrue(self.bucket.take(1, 100.1))

    def test_clockSetBack(self) -> None:
        """A clock that goes back fills nothing, and from there on time counts again."""
        self.bucket.spend(20, 100.0)
        self.assertEqual([self.bucket.left(each) for each in (40.0, 40.0, 41.0)], [0, 0, 10])

    def test_bucketIsFullAgainAfterDebt(self) -> None:
        """It is as good as new when all was made good."""
        self.assertTrue(self.bucket.isFull(100.0))
        self.bucket.spend(1, 100.0)
        self.assertFalse(self.bucket.isFull(100.0))
        self.assertTrue(self.bucket.isFull(100.1))

    def test_anotherRateCountsFromThenOn(self) -> None:
        """Another rate counts from then on; a debt stays, what is over the new burst does not."""
        self.bucket.change(Rate(1, 2))
        self.assertEqual(self.bucket.left(100.0), 2)
        self.bucket.spend(4, 100.0)
        self.bucket.change(Rate(2, 5))
        self.assertEqual((self.bucket.wait(100.0), self.bucket.left(101.0)), (1.0, 0))

    @given(
        st.floats(1e-6, 1e6), st.floats(1, 1e6), st.lists(st.tuples(st.floats(0, 10), st.integers(1, 100)), max_size=40)
    )
    def test_neverMore(self, perSecond: float, burst: float, events: list[tuple[float, int]]) -> None:
        """Whatever comes when, what is taken in all is at most the burst and the rate's share of the time."""
        start = now = 1.7e9
        bucket = Bucket(Rate(perSecond, burst), now)
        taken = 0
        for pause, amount in events:
            now += pause
            taken += amount * bucket.take(amount, now)
        self.assertLessEqual(taken, (burst + perSecond * (now - start)) * (1 + 1e-6) + TINY * len(events))

    @given(st.floats(1e-3, 1e6), st.floats(1, 1e6), st.floats(0, 1e7))
    def test_waitIsEnough(self, perSecond: float, burst: float, amount: float) -> None:
        """After the wait that it names it is out of debt, as far as floating point goes."""
        now = 1.7e9
        bucket = Bucket(Rate(perSecond, burst), now)
        bucket.spend(amount, now)
        wait = bucket.wait(now)
        self.assertLess(bucket.wait(now + wait), 1e-3 + wait * 1e-6)


class KeyedBucketsTests(SynchronousTestCase):
    """Buckets by address: 1 a second, 2 at once."""

    def setUp(self) -> None:
        """At most 10 are remembered."""
        self.buckets = KeyedBuckets(Rate(1, 2), 10)

    def test_everybodyHasBucketOfItsOwn(self) -> None:
        """Everybody has a bucket of its own."""
        self.assertEqual([self.buckets.passes("a", 0.0) for _ in range(3)], [True, True, False])
        self.assertTrue(self.buckets.passes("b", 0.0))
        self.assertTrue(self.buckets.passes("a", 1.0))

    def test_withoutRateEverybodyPassesAndNothingIsRemembered(self) -> None:
        """Without a rate everybody passes, and nothing is remembered."""
        free = KeyedBuckets(None)
        self.assertTrue(all(free.passes("a", 0.0) for _ in range(1000)))
        self.assertEqual(len(free), 0)

    def test_howeverManyComeNoMoreAreRememberedThanThat(self) -> None:
        """However many come, no more are remembered than that."""
        for number in range(1000):
            self.buckets.passes(number, 0.0)
            self.assertLessEqual(len(self.buckets), 10)

    def test_forgetsTheGood(self) -> None:
        """Who is as good as new is forgotten before who is not."""
        for number in range(9):
            self.buckets.passes(number, 0.0)
        for _ in range(2):
            self.buckets.passes("bad", 9.0)
        self.assertFalse(self.buckets.passes("bad", 9.5))
        self.buckets.passes("new", 9.5)
        self.assertEqual(len(self.buckets), 2)
        self.assertFalse(self.buckets.passes("bad", 9.5))

    def test_anotherRateCountsForThoseWhoAreKnownToo(self) -> None:
        """Another rate counts for those who are known too; none forgets them."""
        self.buckets.passes("a", 0.0)
        self.buckets.change(Rate(10, 1))
        self.assertEqual([self.buckets.passes("a", 0.0), self.buckets.passes("a", 0.1)], [True, True])
        self.buckets.change(None)
        self.assertEqual(len(self.buckets), 0)
        self.assertTrue(self.buckets.passes("a", 0.1))
