"""Deliveries in flight: by tag, by holder, by deadline. Returned ones: oldest first."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.in_flight import InFlight, Returned
from fleximq.broker.queues.waiting_messages import OVERHEAD
from tests.broker.queueing import message


def _delivery(tag: int) -> QueueDelivery:
    return QueueDelivery(tag, message(str(tag)), 1)


class InFlightTests(SynchronousTestCase):
    """Three deliveries, two holders, one of nobody."""

    def setUp(self) -> None:
        self.inFlight = InFlight()
        self.inFlight.add([_delivery(7)], 10.0, "x")
        self.inFlight.add([_delivery(3)], 11.0, "y")
        self.inFlight.add([_delivery(5)], 12.0, "x")
        self.inFlight.add([_delivery(9)], 12.0, None)

    def test_manyTogether(self) -> None:
        """Those that are handed out together are due together and held by one holder, behind those before."""
        self.inFlight.add([_delivery(11), _delivery(10)], 13.0, "x")
        self.assertEqual(self.inFlight.due(13, 99), [7, 3, 5, 9, 11, 10])
        self.assertEqual(self.inFlight.leave("x")[1], [5, 7, 10, 11])

    def test_contains(self) -> None:
        self.assertEqual([tag in self.inFlight for tag in (3, 4, 5, 7, 9)], [True, False, True, True, True])

    def test_remove(self) -> None:
        self.assertEqual(self.inFlight.remove(3), _delivery(3))
        self.assertNotIn(3, self.inFlight)

    def test_removeTheUnknown(self) -> None:
        self.assertIsNone(self.inFlight.remove(4))

    def test_leaveGivesTagsAscending(self) -> None:
        self.assertEqual(self.inFlight.leave("x")[1], [5, 7])

    def test_leaveTwice(self) -> None:
        self.inFlight.leave("x")[1]
        self.assertEqual(self.inFlight.leave("x")[1], [])

    def test_leaveWithoutWhatWasRemoved(self) -> None:
        self.inFlight.remove(7)
        self.assertEqual(self.inFlight.leave("x")[1], [5])

    def test_nobodyCannotLeave(self) -> None:
        self.assertEqual(self.inFlight.leave(None)[1], [])

    def test_due(self) -> None:
        self.assertEqual([self.inFlight.due(now, 99) for now in (9.9, 10, 11.9, 12)], [[], [7], [7, 3], [7, 3, 5, 9]])

    def test_firstDue(self) -> None:
        moments = []
        for tag in (7, 3, 5, 9):
            moments.append(self.inFlight.firstDue())
            self.inFlight.remove(tag)
        self.assertEqual([*moments, self.inFlight.firstDue()], [10, 11, 12, 12, None])

    def test_clear(self) -> None:
        self.inFlight.clear()
        self.assertEqual((len(self.inFlight), self.inFlight.leave("x")[1], self.inFlight.deliveries()), (0, [], []))

    def test_findingTheFirstDoesNotSlowDown(self) -> None:
        """Emptying from the front, one look at a time, takes as long for each: in all, not the square of it."""
        inFlight = InFlight()
        for tag in range(200_000):
            inFlight.add([_delivery(0)._replace(tag=tag)], tag, None)
        looked = 0
        while inFlight.firstDue() is not None:
            looked += len([inFlight.remove(tag) for tag in inFlight.due(looked, 10**6)])
        self.assertEqual(looked, 200_000)


def _deliveries(tags: list[int]) -> list[QueueDelivery]:
    return [QueueDelivery(tag, message("m"), 1) for tag in tags]


class ReturnedTests(SynchronousTestCase):
    """A pile that is always in order."""

    def setUp(self) -> None:
        self.returned = Returned()

    def tags(self) -> list[int]:
        taken = []
        while (delivery := self.returned.popleft()) is not None:
            taken.append(delivery.tag)
        return taken

    def test_lowestFirst(self) -> None:
        self.returned.add(_deliveries([5, 3, 9]))
        self.returned.add(_deliveries([4]))
        self.assertEqual(self.tags(), [3, 4, 5, 9])

    def test_removed(self) -> None:
        self.returned.add(_deliveries([5, 3, 9]))
        self.assertEqual(self.returned.remove(5), _deliveries([5])[0])
        self.assertEqual(self.tags(), [3, 9])

    def test_removeTheUnknown(self) -> None:
        self.assertIsNone(self.returned.remove(5))

    def test_size(self) -> None:
        self.returned.add(_deliveries([5, 3, 9]))
        self.returned.remove(9)
        self.returned.popleft()
        self.assertEqual((self.returned.size, len(self.returned)), (1 + OVERHEAD, 1))

    def test_clear(self) -> None:
        self.returned.add(_deliveries([5, 3, 9]))
        self.returned.clear()
        self.assertEqual((self.returned.size, len(self.returned), self.tags()), (0, 0, []))

    def test_leftoversAreBounded(self) -> None:
        """What was acknowledged late does not pile up behind something that stays."""
        self.returned.add(_deliveries([0]))
        for tag in range(1, 1000):
            self.returned.add(_deliveries([tag]))
            self.returned.remove(tag)
        self.assertLess(len(self.returned._heap), 20)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.lists(st.integers(0, 40), max_size=10), max_size=10), st.sets(st.integers(0, 40)))
    def test_likeASortedSet(self, batches: list[list[int]], removed: set[int]) -> None:
        returned = Returned()
        kept: set[int] = set()
        for batch in batches:
            returned.add(_deliveries(new := sorted(set(batch) - kept, reverse=True)))
            kept.update(new)
        for tag in removed:
            self.assertEqual(returned.remove(tag) is not None, tag in kept)
        self.returned = returned
        self.assertEqual(self.tags(), sorted(kept - removed))
