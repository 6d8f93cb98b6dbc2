"""Queues: what does not fit, and what was handed out too often."""

from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.bounds import DROPPED, FULL
from fleximq.broker.queues.delivery_limit import DEAD_LETTERS
from fleximq.broker.queues.queue import REDELIVERED, Queue
from fleximq.values.death_reason import DeathReason
from fleximq.values.message_cost import OVERHEAD
from tests.broker.queueing import RETRY, QueueCase, message, messages, names, only


class DeadLetterTests(QueueCase):
    """After three deliveries it is enough."""

    def deliverAndWait(self, times: int) -> list[QueueDelivery | None]:
        taken = []
        for _ in range(times):
            taken.append(only(self.queue.takeMany("x", 1)))
            self.advance(RETRY)
        return taken

    def test_belowTheLimit(self) -> None:
        self.put("a")
        self.deliverAndWait(2)
        self.assertEqual((self.world.dead, self.queue.stored.depth), ([], 1))

    def test_atTheLimit(self) -> None:
        self.put("a")
        attempts = [delivery.attempts for delivery in self.deliverAndWait(3) if delivery is not None]
        self.assertEqual((attempts, self.world.dead), ([1, 2, 3], [("t", message("a"))]))

    def test_gone(self) -> None:
        self.put("a")
        self.deliverAndWait(3)
        self.assertEqual((self.queue.stored.depth, len(self.queue.stored.flying), self.queue.stored.size), (0, 0, 0))
        self.assertFalse(self.queue.acknowledge(1))

    def test_counted(self) -> None:
        self.put("ab")
        for _ in range(3):
            self.queue.takeMany(None, 2)
            self.advance(RETRY)
        self.assertEqual(self.world.counts, {DEAD_LETTERS[DeathReason.ATTEMPTS]: 2, REDELIVERED: 4})

    def test_buried(self) -> None:
        """At once, however often it was handed out; what is not in flight is left alone."""
        self.put("ab")
        only(self.queue.takeMany(None, 1))
        self.assertTrue(self.queue.reject(1, "no", "m-1"))
        self.assertFalse(self.queue.reject(2))
        expected = [("t", message("a"))], {DEAD_LETTERS[DeathReason.REJECTED]: 1}
        self.assertEqual((self.world.dead, self.world.counts), expected)
        self.assertEqual((self.queue.stored.depth, len(self.queue.stored.flying)), (1, 0))
        self.assertFalse(self.queue.acknowledge(1))

    def test_byRelease(self) -> None:
        self.put("a")
        for _ in range(3):
            self.take(1, "x")
            self.queue.release("x")
        self.assertEqual(names([each for _, each in self.world.dead]), "a")

    def test_acknowledgedAtTheLastDelivery(self) -> None:
        self.put("a")
        self.deliverAndWait(2)
        self.take(1)
        self.queue.acknowledge(1)
        self.advance(RETRY)
        self.assertEqual(self.world.dead, [])

    def test_inOrder(self) -> None:
        self.put("abc")
        for _ in range(3):
            self.queue.takeMany(None, 3)
            self.advance(RETRY)
        self.assertEqual(names([each for _, each in self.world.dead]), "abc")

    def test_theYoungStay(self) -> None:
        self.put("ab")
        self.take(1)
        self.advance(RETRY)
        self.queue.takeMany(None, 2)
        self.advance(RETRY)
        self.queue.takeMany(None, 2)
        self.advance(RETRY)
        self.assertEqual((names([each for _, each in self.world.dead]), self.take(2)), ("a", "b-"))

    def test_withoutEnd(self) -> None:
        for settings in ({"maxDeliveries": 0}, {"onDead": None}, {"name": "$dead/t"}):
            self.queue = self.make(**settings)
            self.put("a")
            self.deliverAndWait(9)
            self.assertEqual(only(self.queue.takeMany(None, 1)), QueueDelivery(1, message("a"), 10), settings)
        self.assertEqual((self.world.dead, self.world.counts), ([], {REDELIVERED: 27}))

    def test_consistentWhenTold(self) -> None:
        """Who is told may use the queue."""
        states = []

        def onDead(queue: Queue, dead: LastDelivery) -> None:
            states.append((self.queue.stored.depth, len(self.queue.stored.flying), self.queue.stored.size))
            self.queue.deliver([dead.message], 1)

        self.queue = self.make(onDead=onDead, maxDeliveries=1)
        self.put("ab")
        self.take(2)
        self.advance(RETRY)
        self.assertEqual((states, self.take(3)), ([(0, 0, 0), (1, 0, 1 + OVERHEAD)], "ab-"))

    def test_brokenOnDeadIsReported(self) -> None:
        self.queue = self.make(onDead=lambda queue, dead: int(queue.name), maxDeliveries=1)
        self.put("ab")
        self.take(2)
        self.advance(RETRY)
        self.assertEqual(len(self.world.errors), 2)
        self.world.errors.clear()

    def test_moved(self) -> None:
        """Each delivery that ends without an acknowledgement is told of, and whether the message is gone."""
        moved: list[tuple[int, int, bool]] = []
        self.queue = self.make(moved=lambda each, gone: moved.append((each.tag, each.attempts, gone)), maxDeliveries=2)
        self.put("ab")
        self.take(2, "x")
        self.queue.acknowledge(2)
        self.queue.release("x")
        self.take(1)
        self.advance(RETRY)
        self.assertEqual(moved, [(1, 1, False), (1, 2, True)])


class OverflowTests(QueueCase):
    """The bounds hold; what had to go for it is counted."""

    def setUp(self) -> None:
        super().setUp()
        self.queue = self.make(maxMessages=4)

    def test_below(self) -> None:
        self.put("abc")
        self.assertEqual((self.queue.stored.depth, self.world.counts), (3, {}))

    def test_at(self) -> None:
        self.put("abcd")
        self.assertEqual((self.queue.stored.depth, self.world.counts), (4, {}))

    def test_above(self) -> None:
        self.put("abcd")
        self.put("e")
        self.assertEqual((self.take(5), self.world.counts), ("bcde-", {DROPPED: 1}))

    def test_aRunLongerThanTheQueue(self) -> None:
        self.put("abcdefgh")
        self.assertEqual((self.take(5), self.world.counts), ("efgh-", {DROPPED: 4}))

    def test_inFlightIsNeverDropped(self) -> None:
        self.put("abcd")
        self.take(2)
        self.put("ef")
        self.assertEqual((self.take(3), self.world.counts), ("ef-", {DROPPED: 2}))
        self.assertEqual([self.queue.acknowledge(tag) for tag in (1, 2)], [True, True])

    def test_allInFlight(self) -> None:
        """Then the new one is the oldest that may go."""
        self.put("abcd")
        self.take(4)
        self.put("e")
        self.assertEqual(
            (self.queue.stored.depth, len(self.queue.stored.flying), self.world.counts), (0, 4, {DROPPED: 1})
        )

    def test_returnedOnesAreTheOldest(self) -> None:
        moved: list[tuple[int, bool]] = []
        self.queue = self.make(maxMessages=4, moved=lambda each, gone: moved.append((each.tag, gone)))
        self.put("abcd")
        self.take(1)
        self.advance(RETRY)
        self.put("e")
        self.assertEqual((self.take(5), moved), ("bcde-", [(1, False), (1, True)]))
        self.assertFalse(self.queue.acknowledge(1))

    def test_bytes(self) -> None:
        """Four messages of 100 bytes fit, a fifth does not, nor does one byte more in the fourth."""
        for last, kept in ((100, "abcd"), (101, "bcd")):
            self.queue = self.make(maxBytes=4 * (100 + OVERHEAD))
            for name, size in zip("abcd", (100, 100, 100, last), strict=True):
                self.queue.deliver([message(name, size=size)], 1)
            self.assertEqual(self.take(len(kept) + 1), kept + "-")

    def test_hugeMessageHurtsNoOther(self) -> None:
        self.queue = self.make(maxBytes=1000)
        self.put("ab")
        self.queue.deliver([message("x", size=1001 - OVERHEAD), *messages("c")], 2)
        self.assertEqual((self.take(4), self.world.counts), ("abc-", {DROPPED: 1}))

    def test_asBigAsTheQueue(self) -> None:
        self.queue = self.make(maxBytes=1000)
        self.put("ab")
        self.queue.deliver([message("x", size=1000 - OVERHEAD)], 1)
        self.assertEqual((self.take(2), self.world.counts), ("x-", {DROPPED: 2}))

    def test_noRoomBesideWhatIsInFlight(self) -> None:
        self.queue = self.make(maxBytes=1000)
        self.put("ab")
        self.take(1)
        self.queue.deliver([message("x", size=1000 - OVERHEAD)], 1)
        self.assertEqual((self.take(2), self.world.counts), ("b-", {DROPPED: 1}))

    def test_withoutDropping(self) -> None:
        self.queue = self.make(maxMessages=4, dropsOldest=False)
        self.put("abcdef")
        self.assertEqual((self.take(7), self.world.counts), ("abcdef-", {}))


class AdmissionTests(QueueCase):
    """Who must not lose a message asks first."""

    def test_count(self) -> None:
        self.queue = self.make(maxMessages=4)
        self.put("ab")
        self.assertEqual([self.queue.bounds.admits(count, 0) for count in (1, 2, 3)], [None, None, FULL])

    def test_bytes(self) -> None:
        self.queue = self.make(maxBytes=1000)
        self.put("a")
        left = 1000 - 1 - 3 * OVERHEAD
        self.assertEqual([self.queue.bounds.admits(2, left + more) for more in (-1, 0, 1)], [None, None, FULL])

    def test_inFlightTakesRoom(self) -> None:
        self.queue = self.make(maxMessages=4)
        self.put("abcd")
        self.take(4)
        self.assertEqual(self.queue.bounds.admits(1, 0), FULL)
        self.queue.acknowledge(1)
        self.assertIsNone(self.queue.bounds.admits(1, 0))

    def test_returnedTakesRoom(self) -> None:
        self.queue = self.make(maxMessages=4)
        self.put("abcd")
        self.take(4)
        self.advance(RETRY)
        self.assertEqual(self.queue.bounds.admits(1, 0), FULL)
