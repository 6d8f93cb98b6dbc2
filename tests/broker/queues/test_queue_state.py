"""The state of one queue, out of records and notes."""

from array import array
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.queue_state import QueueState
from fleximq.values.state_records import QueueDelivered, QueueMoved, QueueOpened


def handed(count: int, *again: int, time: int = 0) -> QueueDelivered:
    """Return a note."""
    return QueueDelivered("q:t", count, array("Q", again), time)


class StateCase(SynchronousTestCase):
    """The queue of ``t``, opened at offset 10."""

    key = "q:t"

    def setUp(self) -> None:
        self.state = QueueState.opened(QueueOpened(self.key, "t", 1, 7, "me", 10))

    def left(self) -> tuple[dict[int, int], list[int]]:
        """Return what was handed out, by offset, and what was not."""
        self.state.markGaps()
        return self.state.handed, list(self.state.onDisk)


class ArrivalTests(StateCase):
    """Records come in once."""

    def test_fromTheOffsetOn(self) -> None:
        for offsets in (range(1, 5), range(8, 13), [13, 15], range(10, 14)):
            self.state.arrive(offsets)
        self.assertEqual(self.left(), ({}, [10, 11, 12, 13, 15]))

    def test_nothing(self) -> None:
        self.state.arrive([])
        self.assertEqual(self.left(), ({}, []))

    def test_ages(self) -> None:
        self.state.arrive(range(10, 13), 500)
        self.state.arrive(range(13, 14), 600)
        self.assertEqual(list(self.state.ages), [(3, 500), (4, 600)])


class NoteTests(StateCase):
    """Notes of deliveries and acknowledgements, in any order and twice."""

    def setUp(self) -> None:
        super().setUp()
        self.state.arrive(range(10, 20))

    def test_handedOut(self) -> None:
        self.state.handedOut(handed(2))
        self.assertEqual(self.left(), ({10: 1, 11: 2}, list(range(12, 20))))

    def test_twice(self) -> None:
        for _ in range(2):
            self.state.handedOut(handed(2))
        self.state.handedOut(handed(3))
        self.assertEqual(self.left()[0], {10: 1, 11: 2, 12: 3})

    def test_again(self) -> None:
        self.state.handedOut(handed(3, 11, 99))
        self.assertEqual(self.state.attempts, {2: 2})

    def test_acknowledged(self) -> None:
        self.state.handedOut(handed(3, 11, time=5))
        self.state.acknowledged([11, 12])
        self.assertEqual((self.left()[0], self.state.attempts, self.state.due), ({10: 1}, {}, {1: 5}))

    def test_acknowledgedFirst(self) -> None:
        """Then the tags are those of a queue that knew."""
        self.state.acknowledged([11])
        self.state.handedOut(handed(3))
        self.assertEqual(self.left(), ({10: 1, 12: 3}, list(range(13, 20))))

    def test_acknowledgedOnly(self) -> None:
        """A hole keeps the place of the arrival number."""
        self.state.acknowledged([11])
        self.assertEqual(self.left(), ({}, [10, 0, *range(12, 20)]))
        self.state.handedOut(handed(3))
        self.assertEqual(self.left()[0], {10: 1, 12: 3})

    def test_acknowledgedTwice(self) -> None:
        self.state.handedOut(handed(3))
        for _ in range(2):
            self.state.acknowledged([10, 11, 5, 50])
        self.assertEqual(self.left(), ({12: 3}, list(range(13, 20))))

    def test_due(self) -> None:
        self.state.handedOut(handed(2, time=100))
        self.state.handedOut(handed(3, 10, time=200))
        self.assertEqual(self.state.due, {1: 200, 2: 100, 3: 200})

    def test_moved(self) -> None:
        """A record of moved messages sets their attempts and times, which a later delivery replaces."""
        self.state.handedOut(handed(3, time=100))
        self.state.moved(QueueMoved("q:t", [10, 12, 50], 2, 900))
        self.state.moved(QueueMoved("q:t", [11], 0, 0))
        self.assertEqual((self.state.due, self.state.attempts), ({1: 900, 3: 900}, {1: 2, 2: 0, 3: 2}))
        self.state.handedOut(handed(3, 10, 11, time=200))
        self.assertEqual((self.state.delayed, self.state.attempts), ({3}, {1: 3, 2: 1, 3: 2}))
        self.state.acknowledged([12])
        self.assertEqual((self.state.delayed, QueueState.load(self.state.dump()).delayed), (set(), set()))

    def test_delayedOnesInASnapshot(self) -> None:
        """A snapshot has the delayed ones; those of older versions have none."""
        self.state.handedOut(handed(1))
        self.state.moved(QueueMoved("q:t", [10], 1, 900))
        dumped = self.state.dump()
        self.assertEqual(QueueState.load(dumped).delayed, {1})
        del dumped["delayed"]
        self.assertEqual(QueueState.load(dumped).delayed, set())

    def test_used(self) -> None:
        self.state.used = 5
        self.state.handedOut(handed(0))
        self.assertEqual((self.state.used, self.state.consumed), (5, False))  # something was dropped
        self.state.handedOut(handed(0, time=100))
        self.assertEqual((self.state.used, self.state.consumed), (0, True))

    def test_presumed(self) -> None:
        """What may have been handed out counts as delivered 0 times, and holes are passed over."""
        self.state.handedOut(handed(1))
        self.state.acknowledged([12])
        self.state.markGaps()
        self.assertEqual(self.state.assumeDelivered(3), 3)
        self.assertEqual(self.left(), ({10: 1, 11: 2, 13: 4}, list(range(14, 20))))
        self.assertEqual((self.state.attempts, self.state.lastTag), ({2: 0, 4: 0}, 4))
        self.state.handedOut(handed(4, 11))
        self.assertEqual(self.state.attempts, {2: 1, 4: 0})
        self.assertEqual(self.state.assumeDelivered(99), 6)
        self.assertEqual(self.state.assumeDelivered(99), 0)

    def test_thereAndBack(self) -> None:
        self.state.handedOut(handed(4, 11, 11, time=100))
        self.state.acknowledged([10])
        self.state.arrive(range(20, 22), 9)
        self.state.used = 3
        packed: Any = msgpack.unpackb(msgpack.packb(self.state.dump()), strict_map_key=False)
        back = QueueState.load(packed)
        self.assertEqual(back.dump(), self.state.dump())
        self.assertEqual(
            (back.handed, back.due, back.attempts), ({11: 2, 12: 3, 13: 4}, dict.fromkeys((2, 3, 4), 100), {2: 3})
        )
        self.assertEqual((list(back.onDisk), back.owner, back.id, back.seen), (list(self.state.onDisk), "me", 7, 22))


class SubscriptionTests(StateCase):
    """A subscription's messages are not hidden after a restart."""

    key = "s:7"

    def test_notDue(self) -> None:
        self.state.arrive(range(10, 20))
        self.state.handedOut(handed(3, 10, time=100))
        self.assertEqual((self.state.isSubscription, self.state.due), (True, {}))
