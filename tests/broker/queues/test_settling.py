"""Leases of deliveries, and how consumers settle them other than by acknowledgement."""

from fleximq.broker.envelope import LastDelivery
from fleximq.broker.queues.delivery_limit import DEAD_LETTERS
from fleximq.values.death_reason import DeathReason
from tests.broker.queueing import RETRY, QueueCase, names


class LeaseTests(QueueCase):
    """How long a delivery belongs to its consumer."""

    def test_withoutTimeItLastsUntilItsHolderLeaves(self) -> None:
        """A lease of 0 seconds lasts as long as the holder, whose deliveries return in order when it leaves."""
        self.put("abc")
        self.queue.take("x", 2, lease=0)
        self.advance(1_000_000)
        self.assertEqual(self.take(2), "c-")
        self.queue.release("x")
        self.assertEqual(self.take(2), "ab")

    def test_anyTime(self) -> None:
        """Leases of different lengths end each at its time, and messages return to their places."""
        self.put("abcd")
        for lease in (20, 5, None, 10):
            self.queue.take("x", 1, lease=lease)
        for seconds, returned in ((5, "b"), (5, "d"), (10, "a"), (10, "c")):
            self.advance(seconds)
            self.assertEqual(self.take(2), returned + "-")
            self.queue.acknowledgeMany([each.tag for each in self.queue.stored.delivered() if each.attempts == 2])

    def test_leaseThatIsShorterNow(self) -> None:
        """Deliveries may be hidden for a shorter time than those before."""
        self.put("ab")
        self.take(1)
        self.queue.redelivery = 1.0
        self.take(1)
        self.advance(1)
        self.assertEqual(self.take(2), "b-")

    def test_extended(self) -> None:
        """An extended delivery returns that many seconds after the extension, or when its holder leaves."""
        self.put("abc")
        self.queue.take("x", 3, lease=10)
        self.advance(9)
        self.assertTrue(self.queue.extend(2, 10, "x"))
        self.advance(1)
        self.assertEqual(self.take(3, "y"), "ac-")
        self.advance(9)
        self.assertEqual(self.take(2, "y"), "b-")
        self.assertTrue(self.queue.extend(2, 100, "y"))
        self.queue.release("y")
        self.assertEqual(self.take(3), "abc")

    def test_shorterLeasesAfterAnExtension(self) -> None:
        """A delivery after an extension returns at its own time, although the extended one stays longer."""
        self.put("ab")
        self.queue.take("x", 1)
        self.queue.extend(1, 100, "x")
        self.advance(RETRY)
        self.queue.take("x", 1)
        self.advance(RETRY)
        self.assertEqual(self.take(2, "y"), "b-")

    def test_onlyOneInFlightCanBeExtended(self) -> None:
        """A message that waits, or that left, cannot be extended, nor one that waits for a retry."""
        self.put("ab")
        self.queue.take("x", 1, lease=0)
        self.queue.retryMany([1], 5)
        self.assertEqual([self.queue.extend(tag, 9, "x") for tag in (1, 2, 3)], [False, False, False])

    def test_extendedAndAcknowledged(self) -> None:
        """Extended deliveries that are acknowledged leave nothing."""
        self.put("a" * 100)
        tags = [*self.queue.take("x", 100, lease=0)[0]]
        for tag in tags:
            self.queue.extend(tag, 50, "x")
            self.queue.extend(tag, 60, "x")
        self.assertEqual(self.queue.acknowledgeMany(tags), [])
        self.queue.release("x")
        self.assertEqual((self.queue.stored.all, self.queue.stored.size, self.queue.stored.flying.dues()), (0, 0, {}))


class RetryTests(QueueCase):
    """Messages given back."""

    def test_atOnce(self) -> None:
        """A message given back is delivered next, with its tag; the attempt counts."""
        self.put("ab")
        self.queue.take("x", 1, lease=0)
        self.assertEqual(self.queue.retryMany([1]), [])
        [first, second] = self.queue.takeMany("y", 2)
        self.assertEqual((names([first, second]), first.tag, first.attempts), ("ab", 1, 2))

    def test_afterADelay(self) -> None:
        """With a delay others are delivered meanwhile; then it is delivered before all that arrived later."""
        self.put("abc")
        self.queue.take("x", 1, lease=0)
        self.queue.retryMany([1], 5.0)
        self.assertEqual(self.queue.stored.flying.delayed, 1)
        self.assertEqual(self.take(1), "b")
        self.advance(4.5)
        self.put("d")
        self.advance(0.5)
        self.assertEqual((self.take(3), self.queue.stored.flying.delayed), ("acd", 0))

    def test_delayedOnesDoNotReturnWithTheirFormerHolder(self) -> None:
        """A message that waits for a retry has no holder: it stays hidden when that leaves."""
        self.put("ab")
        self.queue.take("x", 2, lease=0)
        self.queue.retryMany([1], 5.0)
        self.queue.release("x")
        self.assertEqual(self.take(2), "b-")
        self.advance(5)
        self.assertEqual(self.take(2), "a-")

    def test_earlierDelays(self) -> None:
        """Each waits for its own time, whatever the order of the requests."""
        self.put("abc")
        self.queue.take("x", 3, lease=0)
        for tag, delay in ((1, 300), (2, 10), (3, 100)):
            self.queue.retryMany([tag], delay)
        for seconds, name in ((10, "b"), (90, "c"), (200, "a")):
            self.advance(seconds)
            self.assertEqual(self.take(2, "y"), name + "-")
            self.queue.acknowledgeMany([1, 2, 3][" abc".index(name) - 1 :][:1])

    def test_lastAttempt(self) -> None:
        """After the last delivery it becomes a dead letter at once, without the delay."""
        self.queue = self.make(maxDeliveries=2)
        self.put("a")
        for _ in range(2):
            self.queue.take("x", 1, lease=0)
            self.queue.retryMany([1], 7)
            self.advance(7)
        self.assertEqual((self.world.counts[DEAD_LETTERS[DeathReason.ATTEMPTS]], self.queue.stored.all), (1, 0))

    def test_acknowledgedMeanwhile(self) -> None:
        """A message that waits for its retry can be acknowledged."""
        self.put("a")
        self.queue.take("x", 1, lease=0)
        self.queue.retryMany([1], 5)
        self.assertTrue(self.queue.acknowledge(1))
        self.advance(5)
        self.assertEqual((self.take(1), self.queue.stored.size), ("-", 0))

    def test_unknown(self) -> None:
        """Messages that are not in flight cannot be given back."""
        self.put("a")
        self.assertEqual(self.queue.retryMany([0, 1, 2]), [0, 1, 2])


class RejectTests(QueueCase):
    """Messages that a consumer rejects."""

    def test_deadLetterWithWords(self) -> None:
        """It becomes a dead letter with the words of the consumer, however few its deliveries."""
        died: list[LastDelivery] = []
        self.queue = self.make(onDead=lambda queue, last: died.append(last))
        self.put("ab")
        self.queue.take("x", 1, lease=0)
        self.assertEqual([self.queue.reject(1, "no such user", "x"), self.queue.reject(2)], [True, False])
        self.assertEqual([(last.tag, *last[3:6]) for last in died], [(1, DeathReason.REJECTED, "x", "no such user")])
        self.assertEqual(self.queue.stored.all, 1)

    def test_holderLeaves(self) -> None:
        """Nothing returns when the holder leaves."""
        self.put("a")
        self.queue.take("x", 1)
        self.queue.reject(1)
        self.queue.release("x")
        self.advance(RETRY)
        self.assertEqual(self.take(1), "-")
