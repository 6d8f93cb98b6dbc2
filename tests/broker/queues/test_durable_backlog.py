"""The backlog of a kept queue: what is near, what is far, and holes."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.durable_backlog import DurableBacklog
from fleximq.broker.queues.offset_ranges import GAP, OffsetRanges
from fleximq.values.message import Content, Message

#: What a message of one byte costs.
COST = 257


def at(*offsets: int) -> list[Message]:
    """Return messages at these places."""
    return [Message(b"x", Content.BYTES, offset=offset) for offset in offsets]


def places(messages: list[Message | None]) -> list[int]:
    """Return where these are, 0 for holes."""
    return [0 if message is None else message.offset for message in messages]


class BacklogTests(SynchronousTestCase):
    """Room for two messages."""

    def setUp(self) -> None:
        self.backlog = DurableBacklog(2 * COST)

    def restored(self, *places: int) -> None:
        far = OffsetRanges()
        for place in places:
            far.append(place)
        self.backlog.restore(far)

    def test_near(self) -> None:
        self.assertEqual(self.backlog.append(at(1, 2)), 2 * COST)
        self.assertEqual((self.backlog.inMemory, self.backlog.onDisk, self.backlog.size), (2, 0, 2 * COST))

    def test_far(self) -> None:
        """A run that does not fit is far as a whole, and so is all that comes behind it."""
        self.backlog.append(at(1))
        self.assertEqual([self.backlog.append(at(2, 3)), self.backlog.append(at(4))], [0, 0])
        self.assertEqual((self.backlog.inMemory, self.backlog.onDisk, len(self.backlog)), (1, 3, 4))

    def test_isShort(self) -> None:
        self.backlog.append(at(1, 2))
        self.backlog.append(at(3))
        self.assertFalse(self.backlog.isShort)
        self.backlog.popMany(1)
        self.assertTrue(self.backlog.isShort)

    def test_came(self) -> None:
        self.restored(1, 2, 5)
        self.assertEqual(self.backlog.wanted(2), [1, 2])
        self.assertEqual(self.backlog.addLoaded([1, 2], at(1, 2)), (2 * COST, []))
        self.assertEqual((places(self.backlog.popMany(9)), self.backlog.wanted(9), self.backlog.size), ([1, 2], [5], 0))

    def test_cameInPart(self) -> None:
        """Behind the last that came nothing is known."""
        self.restored(1, 2, 3, 4)
        self.assertEqual(self.backlog.addLoaded(self.backlog.wanted(4), at(1, 3)), (2 * COST, [2]))
        self.assertEqual(
            (self.backlog.gaps, places(self.backlog.popMany(1)), places(self.backlog.popMany(1))), (1, [1, 0], [3])
        )
        self.assertEqual((self.backlog.wanted(9), self.backlog.gaps), ([4], 0))

    def test_nothingCame(self) -> None:
        self.restored(1, 2)
        self.assertEqual(self.backlog.addLoaded(self.backlog.wanted(2), []), (0, [1, 2]))
        self.assertEqual(places(self.backlog.popMany(0)), [0, 0])

    def test_droppedMeanwhile(self) -> None:
        """What was dropped is passed over, and holes behind it are not taken for what was read."""
        self.restored(1, 2, GAP, 3)
        wanted = self.backlog.wanted(9)
        self.assertEqual((wanted, self.backlog.dropOldest()), ([1, 2], (1, 0)))
        self.assertEqual(self.backlog.addLoaded(wanted, at(1, 2)), (COST, []))
        self.assertEqual((self.backlog.gaps, self.backlog.wanted(9)), (1, [3]))
        self.assertEqual(places(self.backlog.popMany(1)), [2, GAP])

    def test_holes(self) -> None:
        self.restored(GAP, 1, GAP)
        self.assertEqual((len(self.backlog), self.backlog.gaps), (3, 2))
        self.assertEqual((self.backlog.wanted(9), self.backlog.inMemory, self.backlog.gaps), ([1], 1, 2))
        self.assertEqual(self.backlog.dropOldest(), (GAP, 0))
        self.backlog.addLoaded([1], at(1))
        self.assertEqual(self.backlog.dropOldest(), (1, COST))
        self.assertEqual(self.backlog.dropOldest(), (GAP, 0))
        self.assertEqual((len(self.backlog), self.backlog.gaps, self.backlog.size), (0, 0, 0))

    def test_unkept(self) -> None:
        self.backlog.append(at(1, 2))
        self.backlog.append(at(0, 0))
        self.backlog.append(at(3))
        self.assertEqual((self.backlog.volatile, self.backlog.volatileSize), (2, 2 * COST))
        self.assertEqual(list(self.backlog.offsets()), [1, 2, 3])
        self.backlog.popMany(2)
        self.assertEqual((self.backlog.wanted(9), self.backlog.inMemory, self.backlog.volatileSize), ([3], 2, 0))

    def test_unkeptBetween(self) -> None:
        """Single places share a piece, whatever they stand for."""
        self.restored(1)
        for place in (0, 5, 0, 9, 0):
            self.backlog.append(at(place))
        self.assertEqual(list(self.backlog.offsets()), [1, 5, 9])

    def test_dropUnkept(self) -> None:
        self.backlog.append(at(1, 2))
        self.backlog.append(at(0))
        self.assertEqual([self.backlog.dropOldest() for _ in range(3)], [(1, COST), (2, COST), (0, COST)])
        self.assertEqual((self.backlog.size, self.backlog.volatileSize), (0, 0))

    def test_lowest(self) -> None:
        self.assertEqual(self.backlog.lowest(), 0)
        self.restored(GAP, 7, 9)
        self.assertEqual(self.backlog.lowest(), 7)
        self.backlog.addLoaded(self.backlog.wanted(1), at(7))
        self.assertEqual(self.backlog.lowest(), 7)

    def test_clear(self) -> None:
        self.backlog.append(at(1, 2))
        self.backlog.append(at(0, 0))
        self.backlog.clear()
        self.assertEqual((len(self.backlog), self.backlog.size, self.backlog.volatile, self.backlog.gaps), (0, 0, 0, 0))

    @given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=20), st.lists(st.integers(0, 5), max_size=20))
    def test_inOrder(self, runs: list[tuple[int, bool]], pops: list[int]) -> None:
        """However it is filled and emptied, all come in order, and the sizes are right."""
        self.setUp()
        put, got, next = 0, 0, 1
        for count, kept in runs:
            self.backlog.append(at(*range(next, next + count)) if kept else at(*[0] * count))
            next += count * kept
            put += count
        for number in [*pops, *[put] * (2 * put + 1)]:
            wanted = self.backlog.wanted(3)
            if wanted:
                self.backlog.addLoaded(wanted, at(*wanted))
            popped = self.backlog.popMany(number)
            got += len(popped)
            self.assertLessEqual(len(popped), number)
        self.assertEqual((got, len(self.backlog), self.backlog.size, self.backlog.volatileSize), (put, 0, 0, 0))
