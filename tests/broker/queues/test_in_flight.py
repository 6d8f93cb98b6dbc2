"""Deliveries in flight: by tag, by holder, by deadline."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues import in_flight
from fleximq.broker.queues.in_flight import InFlight
from tests.broker.queueing import message
from tests.nightly import repetitions


def _delivery(tag: int) -> QueueDelivery:
    return QueueDelivery(tag, message(str(tag)), 1)


class InFlightTests(SynchronousTestCase):
    """Three deliveries, two holders, one of nobody."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.back: list[QueueDelivery] = []
        self.inFlight = self.make()
        self.add([7], 10.0, "x")
        self.add([3], 11.0, "y")
        self.add([5], 12.0, "x")
        self.add([9], 12.0, None)

    def make(self) -> InFlight:
        """Return an empty one, which gives deliveries to ``back``."""
        return InFlight(Deadlines(self.clock), self.back.extend)

    def add(self, tags: list[int], due: float, holder: object) -> None:
        """Deliver these together."""
        self.inFlight.add(tags, [message(str(tag)) for tag in tags], due, holder)

    def left(self, holder: object) -> list[int]:
        """Let a holder leave, and return the tags of its deliveries."""
        self.back.clear()
        self.inFlight.release(holder)
        return [delivery.tag for delivery in self.back]

    def test_manyTogether(self) -> None:
        """Those that are handed out together are due together and held by one holder, behind those before."""
        self.add([10, 11, 13], 13.0, "x")
        self.assertEqual(list(self.inFlight.dues()), [7, 3, 5, 9, 10, 11, 13])
        self.assertEqual(self.left("x"), [5, 7, 10, 11, 13])

    def test_contains(self) -> None:
        self.assertEqual([tag in self.inFlight for tag in (3, 4, 5, 7, 9)], [True, False, True, True, True])

    def test_remove(self) -> None:
        self.assertEqual(self.inFlight.remove(3), _delivery(3))
        self.assertNotIn(3, self.inFlight)

    def test_removeTheUnknown(self) -> None:
        self.assertIsNone(self.inFlight.remove(4))

    def test_removeMany(self) -> None:
        """One by one, as if each was removed alone: also twice, and in any order."""
        self.add([10, 11, 12], 13.0, "x")
        self.assertEqual(
            self.inFlight.removeMany([7, 12, 12, 4, 10]),
            [message("7"), message("12"), None, None, message("10")],
        )
        self.assertEqual(self.left("x"), [5, 11])

    def test_leaveTwice(self) -> None:
        self.assertEqual((self.left("x"), self.left("x")), ([5, 7], []))

    def test_leaveWithoutWhatWasRemoved(self) -> None:
        self.inFlight.remove(7)
        self.assertEqual(self.left("x"), [5])

    def test_nobodyCannotLeave(self) -> None:
        self.assertEqual(self.left(None), [])

    def test_takenAgain(self) -> None:
        """A later delivery of a message belongs to its new holder, also while the tags around it stay with the old."""
        self.add([10, 11, 12], 13.0, "x")
        before = self.inFlight.remove(11)
        assert before is not None
        self.inFlight.addAgain([before._replace(attempts=2)], 14.0, "y")
        self.assertEqual(list(self.inFlight.dues().items())[-3:], [(10, 13.0), (12, 13.0), (11, 14.0)])
        self.assertEqual((self.left("x"), self.left("y")), ([5, 7, 10, 12], [3, 11]))

    def test_due(self) -> None:
        taken = [self.inFlight.takeDue(now, 99) for now in (9.9, 10, 11.9, 12)]
        self.assertEqual([[each.tag for each in some] for some in taken], [[], [7], [3], [5, 9]])

    def test_together(self) -> None:
        """Neighbours delivered to one holder within a millisecond are due with the first of them."""
        for tag, due, holder in ((10, 13.0, "x"), (11, 13.0009, "x"), (12, 13.0011, "x"), (13, 13.0011, "y")):
            self.add([tag], due, holder)
        self.assertEqual(list(self.inFlight.dues().values())[4:], [13.0, 13.0, 13.0011, 13.0011])
        self.assertEqual((self.left("x"), self.left("y")), ([5, 7, 10, 11, 12], [3, 13]))

    def test_dueInPortions(self) -> None:
        """What is not taken stays, with its time and its holder."""
        self.add([10, 11, 12, 13], 13.0, "x")
        self.inFlight.remove(11)
        self.assertEqual([each.tag for each in self.inFlight.takeDue(13, 5)], [7, 3, 5, 9, 10])
        self.assertEqual((self.inFlight.firstDue(), self.inFlight.dues()), (13, {12: 13, 13: 13}))
        self.assertEqual(self.left("x"), [12, 13])

    def test_firstDue(self) -> None:
        moments = []
        for tag in (7, 3, 5, 9):
            moments.append(self.inFlight.firstDue())
            self.inFlight.remove(tag)
        self.assertEqual([*moments, self.inFlight.firstDue()], [10, 11, 12, 12, None])

    def test_clear(self) -> None:
        self.inFlight.clear()
        self.assertEqual((len(self.inFlight), self.left("x"), self.inFlight.deliveries()), (0, [], []))

    def test_oneDeadlineReturnsEachAtItsTime(self) -> None:
        returned = []
        for _ in range(4):
            self.clock.advance(1 if self.clock.seconds() else 9)
            returned.append([each.tag for each in self.back])
            self.back.clear()
        self.assertEqual(returned, [[], [7], [3], [5, 9]])

    def test_findingTheFirstDoesNotSlowDown(self) -> None:
        """Emptying from the front, one look at a time, takes as long for each: in all, not the square of it."""
        inFlight = self.make()
        for tag in range(200_000):
            inFlight.add([tag], [message("m")], tag, None)
        looked = 0
        while inFlight.firstDue() is not None:
            looked += len(inFlight.takeDue(looked, 10**6))
        self.assertEqual(looked, 200_000)

    @settings(max_examples=repetitions(80, 1000), deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from("xyz"), st.lists(st.integers(0, 60))), max_size=12))
    def test_likeADict(self, steps: list[tuple[int, str, list[int]]]) -> None:
        """However removing cuts the spans, they know all that is in flight, and little more."""
        self.patch(in_flight, "UNUSED", 0)
        inFlight, model, last = self.make(), dict[int, tuple[str, int]](), 0
        for step, (number, holder, removed) in enumerate(steps):
            due = step // 2
            tags = range(last + 1, last + 1 + number)
            last += number
            inFlight.add(tags, [message(str(tag)) for tag in tags], due, holder)
            model.update(dict.fromkeys(tags, (holder, due)))
            found = inFlight.removeMany(removed)
            self.assertEqual([each is not None for each in found], [bool(model.pop(tag, None)) for tag in removed])
            self.assertEqual(inFlight.dues(), {tag: due for tag, (_, due) in model.items()})
            spans = inFlight._timed
            self.assertLessEqual(spans.covered, 4 * len(model))
            self.assertEqual(spans.covered, sum(span.end - span.first for span in spans))
        for holder in "xyz":
            mine = [tag for tag, (name, _) in model.items() if name == holder]
            self.back.clear()
            inFlight.release(holder)
            self.assertEqual([each.tag for each in self.back], mine)
