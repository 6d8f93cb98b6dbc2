"""The backlog of a kept queue: what is near, what is far, and holes."""

from collections.abc import Sequence

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


def places(taken: tuple[Sequence[int], Sequence[Message]]) -> list[int]:
    """Return the offsets of messages that were taken."""
    return [message.offset for message in taken[1]]


class BacklogTests(SynchronousTestCase):
    """Room for two messages."""

    def setUp(self) -> None:
        self.backlog = DurableBacklog(2 * COST)

    def restored(self, *places: int) -> None:
        far = OffsetRanges()
        for place in places:
            far.append(place)
        self.backlog.restore(far, 0)

    def test_near(self) -> None:
        self.assertEqual(self.backlog.append(at(1, 2)), 2 * COST)
        self.assertEqual((self.backlog.available, self.backlog.onDisk, self.backlog.size), (2, 0, 2 * COST))

    def test_far(self) -> None:
        """A run that does not fit is far as a whole, and so is all that comes behind it."""
        self.backlog.append(at(1))
        self.assertEqual([self.backlog.append(at(2, 3)), self.backlog.append(at(4))], [0, 0])
        self.assertEqual((self.backlog.available, self.backlog.onDisk, len(self.backlog)), (1, 3, 4))

    def test_isShort(self) -> None:
        self.backlog.append(at(1, 2))
        self.backlog.append(at(3))
        self.assertFalse(self.backlog.isShort)
        self.backlog.take(1)
        self.assertTrue(self.backlog.isShort)

    def test_came(self) -> None:
        self.restored(1, 2, 5)
        self.assertEqual(self.backlog.wanted(2), [1, 2])
        self.assertEqual(self.backlog.addRead([1, 2], at(1, 2)), (2 * COST, []))
        self.assertEqual((places(self.backlog.take(9)), self.backlog.wanted(9), self.backlog.size), ([1, 2], [5], 0))

    def test_cameInPart(self) -> None:
        """Behind the last that came nothing is known."""
        self.restored(1, 2, 3, 4)
        self.assertEqual(self.backlog.addRead(self.backlog.wanted(4), at(1, 3)), (2 * COST, [2]))
        self.assertEqual((self.backlog.gaps, places(self.backlog.take(1)), places(self.backlog.take(1))), (1, [1], [3]))
        self.assertEqual((self.backlog.wanted(9), self.backlog.gaps), ([4], 0))

    def test_nothingCame(self) -> None:
        self.restored(1, 2)
        self.assertEqual(self.backlog.addRead(self.backlog.wanted(2), []), (0, [1, 2]))
        self.assertEqual((places(self.backlog.take(0)), len(self.backlog), self.backlog.lastTag), ([], 0, 2))

    def test_droppedMeanwhile(self) -> None:
        """What was dropped is passed over, and holes behind it are not taken for what was read."""
        self.restored(1, 2, GAP, 3)
        wanted = self.backlog.wanted(9)
        self.assertEqual((wanted, self.backlog.drop(1)), ([1, 2], (1, 0, [1])))
        self.assertEqual(self.backlog.addRead(wanted, at(1, 2)), (COST, []))
        self.assertEqual((self.backlog.gaps, self.backlog.wanted(9)), (1, [3]))
        self.assertEqual((places(self.backlog.take(1)), len(self.backlog)), ([2], 1))

    def test_holes(self) -> None:
        self.restored(GAP, 1, GAP)
        self.assertEqual((len(self.backlog), self.backlog.gaps), (3, 2))
        self.assertEqual((self.backlog.wanted(9), self.backlog.available, self.backlog.gaps), ([1], 1, 2))
        self.backlog.addRead([1], at(1))
        self.assertEqual(self.backlog.drop(1), (1, COST, [1]))
        self.assertEqual((self.backlog.lastTag, self.backlog.expire(9, 9)), (2, (0, 0, [])))
        self.assertEqual((len(self.backlog), self.backlog.gaps, self.backlog.size), (0, 0, 0))

    def test_unkept(self) -> None:
        self.backlog.append(at(1, 2))
        self.backlog.append(at(0, 0))
        self.backlog.append(at(3))
        self.assertEqual((self.backlog.volatile, self.backlog.volatileSize), (2, 2 * COST))
        self.assertEqual(list(self.backlog.offsets()), [1, 2, 3])
        self.backlog.take(2)
        self.assertEqual((self.backlog.wanted(9), self.backlog.available, self.backlog.volatileSize), ([3], 2, 0))

    def test_unkeptBetween(self) -> None:
        """Single places share a piece, whatever they stand for."""
        self.restored(1)
        for place in (0, 5, 0, 9, 0):
            self.backlog.append(at(place))
        self.assertEqual(list(self.backlog.offsets()), [1, 5, 9])

    def test_dropUnkept(self) -> None:
        self.backlog.append(at(1, 2))
        self.backlog.append(at(0))
        self.assertEqual(self.backlog.drop(0, COST), (3, 3 * COST, [1, 2]))
        self.assertEqual((self.backlog.size, self.backlog.volatileSize, self.backlog.journalTag), (0, 0, 2))

    def test_lowest(self) -> None:
        self.assertEqual(self.backlog.lowest(), 0)
        self.restored(GAP, 7, 9)
        self.assertEqual(self.backlog.lowest(), 7)
        self.backlog.addRead(self.backlog.wanted(1), at(7))
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
                self.backlog.addRead(wanted, at(*wanted))
            tags, taken = self.backlog.take(number)
            self.assertEqual(list(tags), list(range(got + 1, got + 1 + len(taken))))
            got += len(taken)
            self.assertLessEqual(len(taken), number)
        self.assertEqual((got, len(self.backlog), self.backlog.size, self.backlog.volatileSize), (put, 0, 0, 0))
