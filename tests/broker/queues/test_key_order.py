"""Queues that deliver one message of a key at a time."""

from fleximq.broker.envelope import LastDelivery
from fleximq.broker.queues import key_order, queue
from fleximq.broker.queues.key_order import keyOf
from fleximq.broker.queues.queue import Queue
from fleximq.values.message import Content, Message
from fleximq.values.publication_head import Head
from tests.broker.queueing import QueueCase, names


def keyed(*named: str) -> list[Message]:
    """Return messages with these names; the key is the first letter, none if that is a digit."""
    return [
        Message(name.encode(), Content.BYTES, head=None if name[0].isdigit() else Head("t", key=name[0]))
        for name in named
    ]


class KeyOrderTests(QueueCase):
    """A queue ordered by key, in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.queue.isOrdered = True

    def add(self, names: str) -> None:
        """Put messages in."""
        self.queue.deliver(messages := keyed(*names.split()), len(messages))

    def taken(self, number: int, holder: object = "x") -> str:
        """Return the names of the messages that are delivered."""
        return " ".join(delivery.message.payload.decode() for delivery in self.queue.takeMany(holder, number, lease=0))

    def test_oneOfAKeyAtATime(self) -> None:
        """Later messages of a key wait until the first one is acknowledged; others pass."""
        self.add("a1 a2 b1 0 a3 b2")
        self.assertEqual(self.taken(9), "a1 b1 0")
        self.assertEqual(self.queue.stored.depth, 3)
        self.queue.acknowledge(1)
        self.assertEqual(self.taken(9), "a2")
        self.queue.acknowledgeMany([2, 3])
        self.assertEqual(self.taken(9), "a3 b2")

    def test_firstAttemptAfterParking(self) -> None:
        """A message that was parked has not been delivered yet."""
        self.add("a1 a2")
        self.taken(2)
        self.queue.acknowledge(1)
        self.assertEqual([each.attempts for each in self.queue.takeMany("x", 2)], [1])

    def test_retriesBlockTheirKey(self) -> None:
        """Until a delayed or returned message has been delivered again, no later one of its key is."""
        self.add("a1 a2 b1")
        self.assertEqual(self.taken(1), "a1")
        self.queue.retryMany([1], 5)
        self.assertEqual(self.taken(9), "b1")
        self.advance(5)
        self.assertEqual(self.taken(9), "a1")
        self.queue.release("x")
        self.assertEqual(self.taken(9), "a1 b1")

    def test_rejectedAndDead(self) -> None:
        """The next one of a key follows when one is rejected, or died."""
        self.queue = self.make(maxDeliveries=1)
        self.queue.isOrdered = True
        self.add("a1 a2 a3")
        self.taken(9)
        self.queue.reject(1)
        self.assertEqual(self.taken(9), "a2")
        self.queue.release("x")
        self.assertEqual(self.taken(9), "a3")

    def test_waitingConsumersLearnOfParkedOnes(self) -> None:
        """A consumer that waits is called when a parked message can be delivered."""
        self.add("a1 a2")
        self.taken(9)
        called: list[str] = []
        self.queue.whenReady(lambda: called.append(self.taken(9)))
        self.assertEqual(called, [])
        self.queue.acknowledge(1)
        self.assertEqual(called, ["a2"])

    def test_manyParked(self) -> None:
        """If too many messages are parked, the queue waits; consumers are not called meanwhile."""
        self.patch(key_order, "MAX_PARKED", 3)
        self.add("a1 a2 a3 a4")
        self.add("b1")
        self.assertEqual((self.taken(1), self.taken(3)), ("a1", ""))
        called: list[int] = []
        self.queue.whenReady(lambda: called.append(1))
        self.add("c1")
        self.assertEqual((self.taken(9), called), ("", []))
        self.queue.acknowledge(1)
        self.assertEqual((self.taken(9), called), ("a2 b1 c1", [1]))

    def test_aTurnParksAFew(self) -> None:
        """Consumers are called again in the next turn, until there is a message of another key."""
        self.patch(queue, "PARKED_AT_ONCE", 2)
        self.add("a1 a2 a3 a4 a5 a6 b1")
        found = [self.taken(1)]

        def take() -> None:
            found.append(self.taken(2))
            if not found[-1]:
                self.queue.whenReady(take)

        take()
        for _ in range(9):
            self.advance(0)
        self.assertEqual(found, ["a1", "", "", "b1"])

    def test_parkedOnesCount(self) -> None:
        """Parked messages count against the bounds, and are shown."""
        self.queue = self.make(maxMessages=3)
        self.queue.isOrdered = True
        self.add("a1 a2 a3")
        self.taken(1)
        self.taken(1)
        self.assertIsNotNone(self.queue.bounds.admits(1, 0))
        self.assertEqual([message.payload for message, _ in self.queue.stored.first(9)], [b"a2", b"a3"])
        self.assertEqual(self.queue.close(), 3)

    def test_turnedOff(self) -> None:
        """Without the order parked messages are delivered next."""
        self.add("a1 a2 a3")
        self.assertEqual(self.taken(3), "a1")
        self.queue.isOrdered = False
        self.assertEqual(self.taken(3), "a2 a3")

    def test_turnedOnWhileSomeAreInFlight(self) -> None:
        """Messages that are in flight when the order begins block their keys."""
        self.queue.isOrdered = False
        self.add("a1 a2 b1")
        self.taken(1)
        self.queue.isOrdered = True
        self.assertEqual(self.taken(3), "b1")
        self.queue.acknowledge(1)
        self.assertEqual(self.taken(3), "a2")

    def test_deadLetterThatCallsTheQueue(self) -> None:
        """Who is told of a dead letter may use the queue."""
        taken: list[str] = []

        def onDead(queue: Queue, delivery: LastDelivery) -> None:
            taken.append(names(queue.takeMany("y", 9)))

        self.queue = self.make(onDead=onDead)
        self.queue.isOrdered = True
        self.add("a1 a2 b1")
        self.taken(1)
        self.queue.reject(1)
        self.assertEqual((taken, self.taken(9)), (["b1"], "a2"))

    def test_longKeys(self) -> None:
        """Long keys are told apart by their hashes, texts and bytes too."""
        keys = "k" * 5000, "k" * 5001, b"k" * 5000, "k", b"k"
        found = {keyOf(Message(b"", Content.BYTES, head=Head("t", key=key))) for key in keys}
        self.assertEqual(len(found), 5)
        self.assertLessEqual(max(len(each or "") for each in found), 64)
