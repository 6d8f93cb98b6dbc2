"""Ids that need not differ: which message is meant."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers.delivered_ids import DeliveredIds
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.delivery_limit import DeliveryLimit
from fleximq.broker.queues.queue import Queue
from tests.broker.queueing import World, message, messages


class DeliveredIdsTests(SynchronousTestCase):
    """Three messages in flight in one queue, all by the same name."""

    def setUp(self) -> None:
        self.world = World()
        self.queue = Queue(
            name="t",
            deadlines=self.world.deadlines,
            redelivery=30,
            limit=DeliveryLimit(),
            maxMessages=10,
            maxBytes=10_000,
            counted=self.world.counted,
        )
        self.queue.deliver(messages("abc"), 3)
        self.a, self.b, self.c = ((self.queue, each.tag) for each in self.queue.takeMany(None, 3))
        self.ids = DeliveredIds()

    def test_manyTogether(self) -> None:
        """Each is found by the id that its message has."""
        self.ids.deliveredMany(
            self.queue, [QueueDelivery(1, message("a", id="i"), 1), QueueDelivery(2, message("b", id="j"), 1)]
        )
        self.assertEqual([self.ids.meant(id) for id in "ij"], [self.a, self.b])

    def test_namesakesTogether(self) -> None:
        """Of several that are handed out together the first was handed out first."""
        self.ids.deliveredMany(self.queue, [QueueDelivery(tag, message("x", id="i"), 1) for tag in (2, 1)])
        self.assertEqual(self.ids.meant("i"), self.b)
        self.ids.forget("i", self.b)
        self.assertEqual(self.ids.meant("i"), self.a)

    def test_unknown(self) -> None:
        self.assertIsNone(self.ids.meant("i"))

    def test_one(self) -> None:
        self.ids.delivered("i", self.a)
        self.assertEqual(self.ids.meant("i"), self.a)

    def test_forgotten(self) -> None:
        self.ids.delivered("i", self.a)
        self.ids.forget("i", self.a)
        self.assertEqual((self.ids.meant("i"), len(self.ids)), (None, 0))

    def test_oneThatReturned(self) -> None:
        self.ids.delivered("i", self.a)
        self.ids.returned("i", self.a)
        self.assertEqual(self.ids.meant("i"), self.a)

    def test_longestInFlight(self) -> None:
        for place in (self.b, self.a, self.c):
            self.ids.delivered("i", place)
        self.assertEqual(self.ids.meant("i"), self.b)

    def test_redeliveredCountsAsNew(self) -> None:
        for place in (self.a, self.b):
            self.ids.delivered("i", place)
        self.ids.returned("i", self.a)
        self.ids.delivered("i", self.a)
        self.assertEqual(self.ids.meant("i"), self.b)

    def test_inFlightBeforeReturned(self) -> None:
        for place in (self.a, self.b):
            self.ids.delivered("i", place)
        self.ids.returned("i", self.a)
        self.assertEqual(self.ids.meant("i"), self.b)

    def test_returnedBeforeALaterDelivery(self) -> None:
        """What returned stands back even behind what was handed out after its return."""
        for place in (self.a, self.b):
            self.ids.delivered("i", place)
        for place in (self.a, self.b):
            self.ids.returned("i", place)
        self.ids.delivered("i", self.c)
        self.assertEqual(self.ids.meant("i"), self.c)

    def test_returnedIfNoneIsInFlight(self) -> None:
        for place in (self.a, self.b):
            self.ids.delivered("i", place)
        for place in (self.b, self.a):
            self.ids.returned("i", place)
        self.assertEqual(self.ids.meant("i"), self.b)

    def test_firstHadReturnedWhenItsNamesakeCame(self) -> None:
        """Whether a lone one is in flight is asked of its queue, when a namesake makes it matter."""
        self.ids.delivered("i", self.a)
        self.world.clock.advance(30)
        self.queue.takeMany(None, 3)
        self.world.clock.advance(10)
        self.ids.delivered("i", self.b)
        self.assertEqual(self.ids.meant("i"), self.a)
        self.ids.forget("i", self.a)
        self.ids.forget("i", self.b)
        self.ids.delivered("i", self.a)
        self.world.clock.advance(20)
        self.ids.delivered("i", self.b)
        self.assertEqual(self.ids.meant("i"), self.b)

    def test_forgettingOneLeavesTheOthers(self) -> None:
        for place in (self.a, self.b, self.c):
            self.ids.delivered("i", place)
        self.ids.forget("i", self.b)
        self.ids.forget("i", self.a)
        self.assertEqual(self.ids.meant("i"), self.c)
        self.ids.forget("i", self.c)
        self.assertEqual(len(self.ids), 0)

    def test_otherIdsAreOthers(self) -> None:
        self.ids.delivered("i", self.a)
        self.ids.delivered("j", self.b)
        self.assertEqual((self.ids.meant("i"), self.ids.meant("j")), (self.a, self.b))

    def test_manyNamesakes(self) -> None:
        """A hundred thousand of one name are told apart in well under a second; squared it would be hours."""
        places = [(self.queue, tag) for tag in range(100_000)]
        for place in places:
            self.ids.delivered("i", place)
        for place in places[:50_000]:
            self.ids.returned("i", place)
        order = []
        while (meant := self.ids.meant("i")) is not None:
            order.append(meant[1])
            self.ids.forget("i", meant)
        self.assertEqual(order, [*range(50_000, 100_000), *range(50_000)])
