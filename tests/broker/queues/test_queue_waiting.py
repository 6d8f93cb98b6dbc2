"""Queues: who waits, how they close, and that many messages are no trouble."""

from functools import partial

from fleximq.broker.queues.in_flight import SLICE
from tests.broker.queueing import RETRY, QueueCase, messages, only


class WaitingTests(QueueCase):
    """Consumers that wait are told, one for each message."""

    def setUp(self) -> None:
        super().setUp()
        self.got: list[str] = []

    def consume(self, name: str) -> None:
        self.got.append(name + self.take(1, name))

    def test_delivered(self) -> None:
        for name in "xyz":
            self.queue.whenReady(partial(self.consume, name))
        self.put("ab")
        self.assertEqual((self.got, self.queue.waiting), (["xa", "yb"], 1))

    def test_notForWhatIsThere(self) -> None:
        self.put("a")
        self.queue.whenReady(partial(self.consume, "x"))
        self.assertEqual(self.got, [])

    def test_returned(self) -> None:
        self.put("a")
        self.take(1)
        self.queue.whenReady(partial(self.consume, "x"))
        self.advance(RETRY)
        self.assertEqual(self.got, ["xa"])

    def test_released(self) -> None:
        self.put("a")
        self.take(1, "y")
        self.queue.whenReady(partial(self.consume, "x"))
        self.queue.release("y")
        self.assertEqual(self.got, ["xa"])

    def test_cancelled(self) -> None:
        self.queue.whenReady(partial(self.consume, "x"))()
        self.put("a")
        self.assertEqual((self.got, self.queue.stored.depth), ([], 1))

    def test_nothingForTheDead(self) -> None:
        self.queue = self.make(maxDeliveries=1)
        self.put("a")
        self.take(1)
        self.queue.whenReady(partial(self.consume, "x"))
        self.advance(RETRY)
        self.assertEqual(self.got, [])

    def test_takenAgainInTheCallbackKeepsItsOwnTime(self) -> None:
        """A delivery from within the return of others does not put off those that are due before it."""
        self.put("ab")
        self.take(1)
        self.advance(10)
        self.take(1)
        self.queue.whenReady(partial(self.consume, "x"))
        self.advance(RETRY - 10)
        self.assertEqual((self.got, len(self.queue.stored.flying)), (["xa"], 2))
        self.advance(10)
        self.assertEqual(self.take(1), "b")


class ClosingTests(QueueCase):
    """A closed queue is empty and stays so."""

    def setUp(self) -> None:
        super().setUp()
        self.put("abcd")
        self.take(2, "x")
        self.queue.release("x")
        self.take(1)

    def test_dropsEverything(self) -> None:
        self.assertEqual(self.queue.close(), 4)
        self.assertEqual(
            (self.queue.stored.depth, len(self.queue.stored.flying), self.queue.stored.size, self.take(1)),
            (0, 0, 0, "-"),
        )

    def test_twice(self) -> None:
        self.queue.close()
        self.assertEqual(self.queue.close(), 0)

    def test_noDeadlineStays(self) -> None:
        self.queue.close()
        self.assertEqual(len(self.world.deadlines), 0)

    def test_takesNothingIn(self) -> None:
        self.queue.close()
        self.put("e")
        self.assertEqual((self.queue.stored.depth, self.queue.stored.size), (0, 0))

    def test_wakesNobody(self) -> None:
        woken: list[int] = []
        self.queue.whenReady(partial(woken.append, 1))
        self.queue.close()
        self.put("e")
        self.assertEqual((woken, self.queue.waiting), ([], 0))

    def test_acknowledgesNothing(self) -> None:
        self.queue.close()
        self.assertEqual([self.queue.acknowledge(tag) for tag in (1, 2)], [False, False])


class ManyTests(QueueCase):
    """A hundred thousand messages take a second or so; were anything quadratic, it would be an hour."""

    NUMBER = 100_000

    def setUp(self) -> None:
        super().setUp()
        self.queue = self.make(maxMessages=self.NUMBER, maxBytes=1 << 40, maxDeliveries=4)
        self.queue.deliver(messages("m") * self.NUMBER, self.NUMBER)

    def test_returningOneByOne(self) -> None:
        """Each with a deadline of its own, behind a front that was acknowledged."""
        for _ in range(self.NUMBER // 2):
            self.queue.acknowledge(self.queue.stored.lastTag if only(self.queue.takeMany(None, 1)) else 0)
        for _ in range(self.NUMBER // 2):
            only(self.queue.takeMany(None, 1))
            self.world.clock.rightNow += 0.001
        self.world.clock.pump([0.01] * 2501)
        self.world.clock.pump([0.01] * 5000)
        self.assertEqual((len(self.queue.stored.returned), len(self.queue.stored.flying)), (self.NUMBER // 2, 0))

    def test_returningAndDroppingOneByOne(self) -> None:
        self.queue.takeMany("x", self.NUMBER)
        self.queue.release("x")
        self.world.clock.pump([0.0] * 10)
        for _ in range(self.NUMBER):
            self.put("n")
        self.assertEqual((len(self.queue.stored.returned), len(self.queue.stored.backlog)), (0, self.NUMBER))

    def test_returnedInPortions(self) -> None:
        """What a holder leaves behind is taken back in several turns, but nobody overtakes it."""
        self.queue.takeMany("x", self.NUMBER // 2)
        self.queue.release("x")
        self.assertEqual(
            (len(self.queue.stored.returned), len(self.queue.stored.flying)), (SLICE, self.NUMBER // 2 - SLICE)
        )
        taken = self.queue.takeMany("y", SLICE + 5)
        self.assertEqual([each.tag for each in taken], list(range(1, SLICE + 6)))
        self.world.clock.pump([0.0] * 5)
        self.assertEqual(
            (len(self.queue.stored.returned), len(self.queue.stored.flying)), (self.NUMBER // 2 - SLICE - 5, SLICE + 5)
        )

    def test_whatOthersHoldByThenIsTheirs(self) -> None:
        """What came back by itself before its turn, and was given to somebody else, stays with him."""
        self.queue.takeMany("x", SLICE + 1)
        self.world.clock.rightNow += RETRY
        self.queue.release("x")
        self.queue.stored.flying._onDue()
        self.assertEqual(len(self.queue.takeMany("y", SLICE + 1)), SLICE + 1)
        self.world.clock.pump([0.0] * 3)
        self.assertEqual((len(self.queue.stored.returned), len(self.queue.stored.flying)), (0, SLICE + 1))

    def test_dyingAllAtOnce(self) -> None:
        for _ in range(4):
            self.assertEqual(len(self.queue.takeMany(None, self.NUMBER)), self.NUMBER)
            self.advance(RETRY)
        self.assertEqual(len(self.world.dead), self.NUMBER)
