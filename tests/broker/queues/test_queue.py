"""Queues: taking, acknowledging, coming again, dying."""

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource, QueueDelivery
from fleximq.broker.queues.in_flight import SLICE
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.broker.topics.topic_table import Topic
from fleximq.interfaces import IForm, ISubscriber
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD
from tests.broker.queueing import RETRY, QueueCase, message, messages, names, only


class FormTests(SynchronousTestCase):
    """What a queue is handed for a run."""

    def render(self, qos: int, body: list[Message]) -> list[Message]:
        envelope = Envelope(Topic("t"), ConnectedClient(1000, "blipmq", "blipmq-1000"), MessageSource(), qos)
        return list(QUEUED.render(envelope, body, len(body)))

    def test_form(self) -> None:
        verifyObject(IForm, QUEUED)

    def test_messagesOfTheSameQosAreNotMadeAnew(self) -> None:
        body = messages("ab", qos=1)
        self.assertTrue(all(a is b for a, b in zip(self.render(1, body), body, strict=True)))

    def test_qosOfTheEnvelopeRules(self) -> None:
        body = [message("a", qos=1, id="x"), message("b", qos=0, id="y")]
        for qos in (0, 1):
            self.assertEqual(self.render(qos, body), [message("a", qos=qos, id="x"), message("b", qos=qos, id="y")])


class TakingTests(QueueCase):
    """Messages go in and out in order."""

    def test_subscriber(self) -> None:
        verifyObject(ISubscriber, self.queue)

    def test_form(self) -> None:
        self.assertIs(self.queue.form, QUEUED)

    def test_empty(self) -> None:
        self.assertIsNone(only(self.queue.takeMany(None, 1)))

    def test_firstInFirstOut(self) -> None:
        self.put("ab")
        self.put("c")
        self.assertEqual(self.take(4), "abc-")

    def test_tagsCountFromOne(self) -> None:
        self.put("abc")
        self.assertEqual([delivery.tag for delivery in self.queue.takeMany(None, 3)], [1, 2, 3])

    def test_firstAttempt(self) -> None:
        self.put("a")
        self.assertEqual(only(self.queue.takeMany(None, 1)), QueueDelivery(1, message("a"), 1))

    def test_takeManyGivesWhatThereIs(self) -> None:
        self.put("abcde")
        self.assertEqual([names(self.queue.takeMany(None, number)) for number in (0, 2, 9, 1)], ["", "ab", "cde", ""])

    def test_takeManyHasReturnedOnesFirst(self) -> None:
        self.put("abcd")
        self.take(2)
        self.advance(RETRY)
        deliveries = self.queue.takeMany(None, 3)
        self.assertEqual([each[::2] for each in deliveries], [(1, 2), (2, 2), (3, 1)])
        self.assertEqual(names(deliveries), "abc")

    def test_takeManyWithinBytes(self) -> None:
        """No more is taken when it costs as much as is wanted, also of what returned."""
        self.put("abcd")
        self.take(2)
        self.advance(RETRY)
        one = 1 + OVERHEAD
        taken = [names(self.queue.takeMany(None, 9, most)) for most in (0, 1, one + 1, 9 * one)]
        self.assertEqual(taken, ["", "a", "bc", "d"])

    def test_returnsInPortions(self) -> None:
        """Very much that is due at once comes back over several turns, in its order."""
        many = SLICE * 2 + 1
        self.queue = self.make(maxMessages=many, maxBytes=1 << 40)
        self.queue.deliver([message("x")] * many, many)
        self.queue.takeMany(None, many)
        meanwhile: list[int] = []
        self.world.clock.callLater(RETRY, lambda: meanwhile.append(len(self.queue.stored.returned)))
        self.advance(RETRY)
        self.assertEqual(meanwhile, [SLICE])
        self.assertEqual((len(self.queue.stored.returned), len(self.queue.stored.flying)), (many, 0))
        self.assertEqual([each.tag for each in self.queue.takeMany(None, 3)], [1, 2, 3])

    def test_takeManyHides(self) -> None:
        self.put("ab")
        self.queue.takeMany(None, 2)
        self.assertEqual(self.take(1), "-")
        self.advance(RETRY)
        self.assertEqual(self.take(2), "ab")

    def test_depthAndInFlight(self) -> None:
        self.put("abc")
        self.take(1)
        self.assertEqual((self.queue.stored.depth, len(self.queue.stored.flying)), (2, 1))

    def test_untriedAndReturned(self) -> None:
        self.put("abc")
        self.take(1)
        self.advance(RETRY)
        self.assertEqual(
            (len(self.queue.stored.backlog), len(self.queue.stored.returned), self.queue.stored.depth), (2, 1, 3)
        )

    def test_sizeCountsEverythingKept(self) -> None:
        self.put("abcd")
        self.take(2)
        self.queue.acknowledge(1)
        self.assertEqual(self.queue.stored.size, 3 * (1 + OVERHEAD))


class AcknowledgingTests(QueueCase):
    """An acknowledged message is gone, whenever the acknowledgement comes."""

    def setUp(self) -> None:
        super().setUp()
        self.put("abc")

    def test_known(self) -> None:
        self.take(1)
        self.assertTrue(self.queue.acknowledge(1))

    def test_twice(self) -> None:
        self.take(1)
        self.queue.acknowledge(1)
        self.assertFalse(self.queue.acknowledge(1))

    def test_neverHandedOut(self) -> None:
        self.assertEqual([self.queue.acknowledge(tag) for tag in (-1, 0, 1, 4)], [False] * 4)

    def test_doesNotComeAgain(self) -> None:
        self.take(1)
        self.queue.acknowledge(1)
        self.advance(RETRY)
        self.assertEqual(self.take(3), "bc-")

    def test_late(self) -> None:
        self.take(3)
        self.advance(RETRY)
        self.assertTrue(self.queue.acknowledge(2))
        self.assertEqual(self.take(3), "ac-")

    def test_ofARedelivery(self) -> None:
        self.take(1)
        self.advance(RETRY)
        self.take(1)
        self.assertTrue(self.queue.acknowledge(1))
        self.advance(RETRY)
        self.assertEqual((self.take(3), self.queue.stored.size), ("bc-", 2 * (1 + OVERHEAD)))

    def test_anyOrder(self) -> None:
        self.take(3)
        self.assertEqual([self.queue.acknowledge(tag) for tag in (3, 1, 2)], [True] * 3)
        self.assertEqual((self.queue.stored.depth, len(self.queue.stored.flying), self.queue.stored.size), (0, 0, 0))


class RedeliveryTests(QueueCase):
    """Unacknowledged messages come again, in their order, with their tags."""

    def test_notBefore(self) -> None:
        self.put("a")
        self.take(1)
        self.advance(RETRY - 0.125)
        self.assertEqual(self.take(1), "-")

    def test_atTheDeadline(self) -> None:
        self.put("a")
        self.take(1)
        self.advance(RETRY)
        self.assertEqual(only(self.queue.takeMany(None, 1)), QueueDelivery(1, message("a"), 2))

    def test_eachAtItsOwn(self) -> None:
        self.put("ab")
        self.take(1)
        self.advance(10)
        self.take(1)
        self.advance(RETRY - 10)
        self.assertEqual((self.queue.stored.depth, len(self.queue.stored.flying)), (1, 1))
        self.advance(9.875)
        self.assertEqual(self.queue.stored.depth, 1)
        self.advance(0.125)
        self.assertEqual(self.queue.stored.depth, 2)

    def test_hiddenAnewEachTime(self) -> None:
        self.put("a")
        self.take(1)
        self.advance(RETRY + 5)
        self.take(1)
        self.advance(RETRY - 0.125)
        self.assertEqual(len(self.queue.stored.flying), 1)
        self.advance(0.125)
        self.assertEqual(len(self.queue.stored.returned), 1)

    def test_beforeWhatIsNew(self) -> None:
        self.put("abc")
        self.take(2)
        self.advance(RETRY)
        self.assertEqual(self.take(3), "abc")

    def test_originalOrderAfterMixedReturns(self) -> None:
        """The first one comes back last, and still stands first."""
        self.put("abcd")
        self.take(1, "x")
        self.take(2, "y")
        self.queue.release("y")
        self.advance(RETRY)
        self.assertEqual(self.take(4), "abcd")

    def test_deadlineAfterTheQueueWasIdle(self) -> None:
        """The deadline that stands from an acknowledged delivery serves the next one, at its own time."""
        self.put("ab")
        self.take(1)
        self.queue.acknowledge(1)
        self.advance(20)
        self.take(1)
        self.advance(RETRY - 0.125)
        self.assertEqual(len(self.queue.stored.flying), 1)
        self.advance(0.125)
        self.assertEqual(self.take(1), "b")

    def test_noDeadlineWithoutDeliveries(self) -> None:
        self.put("a")
        self.assertEqual(len(self.world.deadlines), 0)
        self.take(1)
        self.queue.acknowledge(1)
        self.advance(RETRY)
        self.assertEqual(len(self.world.deadlines), 0)

    def test_oneDeadlineForAll(self) -> None:
        self.put("abcdefgh")
        for _ in range(8):
            self.take(1)
            self.advance(0.1)
        self.assertEqual(len(self.world.deadlines), 1)


class ReleaseTests(QueueCase):
    """A holder that is gone leaves nothing hidden."""

    def setUp(self) -> None:
        super().setUp()
        self.put("abcd")

    def test_backAtOnceInOrder(self) -> None:
        self.take(3, "x")
        self.queue.release("x")
        self.assertEqual(self.take(5), "abcd-")

    def test_onlyTheHolders(self) -> None:
        self.take(1, "x")
        self.take(1, "y")
        self.take(1, "x")
        self.queue.release("x")
        self.assertEqual((self.take(4), len(self.queue.stored.flying)), ("acd-", 4))

    def test_nobodysStay(self) -> None:
        self.take(2)
        self.queue.release(None)
        self.assertEqual(len(self.queue.stored.flying), 2)

    def test_attemptsCount(self) -> None:
        self.take(1, "x")
        self.queue.release("x")
        self.assertEqual(only(self.queue.takeMany("x", 1)), QueueDelivery(1, message("a"), 2))

    def test_acknowledgedOnesDoNotComeBack(self) -> None:
        self.take(2, "x")
        self.queue.acknowledge(1)
        self.queue.release("x")
        self.assertEqual(self.take(1), "b")

    def test_takenOverByAnother(self) -> None:
        """What came again to somebody else is not the first holder's any more."""
        self.take(1, "x")
        self.advance(RETRY)
        self.take(1, "y")
        self.queue.release("x")
        self.assertEqual(len(self.queue.stored.flying), 1)

    def test_unknownHolder(self) -> None:
        self.queue.release("nobody")
        self.assertEqual(self.queue.stored.depth, 4)

    def test_takenManyAtOnce(self) -> None:
        self.queue.takeMany("x", 3)
        self.queue.release("x")
        self.assertEqual(self.queue.stored.depth, 4)

    def test_deadlineOfWhatStays(self) -> None:
        self.take(1, "x")
        self.advance(10)
        self.take(1, "y")
        self.queue.release("x")
        self.advance(RETRY - 0.125)
        self.assertEqual(len(self.queue.stored.flying), 1)
        self.advance(0.125)
        self.assertEqual(len(self.queue.stored.flying), 0)
