"""Deliveries that returned: oldest first."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.returned import Returned
from fleximq.values.message_cost import OVERHEAD
from tests.broker.queueing import message
from tests.nightly import repetitions


def _deliveries(tags: list[int]) -> list[QueueDelivery]:
    return [QueueDelivery(tag, message("m"), 1) for tag in tags]


class ReturnedTests(SynchronousTestCase):
    """A pile that is always in order."""

    def setUp(self) -> None:
        self.returned = Returned()

    def tags(self) -> list[int]:
        taken = []
        while (delivery := self.returned.first()) is not None:
            taken.append(delivery.tag)
            self.returned.remove(delivery.tag)
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
        self.returned.remove(3)
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

    @settings(max_examples=repetitions(80, 1000), deadline=None)
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
