"""Topic queues: shared by all, acknowledged by id, gone when nobody wants them."""

from functools import partial
from itertools import count

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import DROPPED_EXPIRED, IDLE_SECONDS, WorkQueues
from fleximq.broker.queues.bounds import DROPPED, FULL
from fleximq.broker.queues.delivery_limit import DEAD_LETTERS
from fleximq.broker.queues.queue import REDELIVERED
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.errors import NoCapacity
from fleximq.interfaces import ISubscriber
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD
from tests.broker.queueing import World, consumeFrom, message, names, only

RETRY = 30.0
EXPIRY = 3600.0


class TopicQueueCase(SynchronousTestCase):
    """Topic queues on a clock that the test moves; t is the queue of the topic t."""

    limits: dict[str, int] = {}
    expiry: float | None = EXPIRY

    def setUp(self) -> None:
        self.world = World()
        self.expired: list[str] = []
        numbers = count(1)
        self.queues = WorkQueues(
            self.world.makeQueue(**self.limits),
            self.world.topics,
            self.world.stateLog,
            expiry=self.expiry,
            maxQueues=3,
            idOf=lambda each: each.message_id or f"new-{next(numbers)}",
            onExpired=self.onExpired,
        )
        self.t = self.queues.ensure("t")

    def onExpired(self, queue: WorkQueue, dropped: int) -> None:
        self.expired.append(queue.name)

    def put(self, letters: str, topic: str = "t", id: str | None = None) -> None:
        """Produce one message for each letter, which is its id too unless another is given."""
        queue = self.queues.ensure(topic)
        queue.deliver([message(letter, id=id or letter) for letter in letters], len(letters))

    def consume(self, number: int, topic: str = "t") -> str:
        return names([only(consumeFrom(self.queues, topic)) for _ in range(number)])

    def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def tearDown(self) -> None:
        self.assertEqual(self.world.errors, [])


class EnsuringTests(TopicQueueCase):
    """One queue per topic, and not too many."""

    def test_subscriber(self) -> None:
        verifyObject(ISubscriber, self.t)

    def test_form(self) -> None:
        self.assertIs(self.t.form, QUEUED)

    def test_created(self) -> None:
        self.assertEqual(self.queues.ensure("u").name, "u")

    def test_thereAlready(self) -> None:
        self.assertIs(self.queues.ensure("t"), self.t)

    def test_get(self) -> None:
        self.assertEqual((self.queues.get("t"), self.queues.get("u")), (self.t, None))

    def test_limit(self) -> None:
        self.queues.ensure("u")
        self.queues.ensure("v")
        self.assertRaises(NoCapacity, self.queues.ensure, "w")
        self.assertEqual([queue.name for queue in self.queues], ["t", "u", "v"])

    def test_limitOfDeadLetters(self) -> None:
        """There are as many queues of dead letters at most, which take nobody else's place."""
        for topic in "abc":
            self.queues.ensure("$dead/" + topic)
        self.assertRaises(NoCapacity, self.queues.ensure, "$dead/d")
        self.queues.ensure("u")

    def test_knownOnesAtTheLimit(self) -> None:
        for topic in "uv":
            self.queues.ensure(topic)
        self.assertIs(self.queues.ensure("t"), self.t)

    def test_deadLettersComeOnTop(self) -> None:
        for topic in ("$dead/t", "u", "v", "$dead/u"):
            self.queues.ensure(topic)
        self.assertEqual(len(self.queues), 5)

    def test_expiredOnesMakeRoom(self) -> None:
        for topic in "uv":
            self.queues.ensure(topic)
        self.advance(EXPIRY)
        self.assertEqual(self.queues.ensure("w").name, "w")


class ConsumingTests(TopicQueueCase):
    """A topic's consumers share its queue."""

    def test_inOrder(self) -> None:
        self.put("abc")
        self.assertEqual(self.consume(4), "abc-")

    def test_manyAtOnce(self) -> None:
        self.put("abc")
        self.assertEqual([names(consumeFrom(self.queues, "t", 2)) for _ in range(3)], ["ab", "c", ""])

    def test_manyOfNoQueue(self) -> None:
        self.assertEqual(consumeFrom(self.queues, "u", 2), [])

    def test_askingForManyIsUse(self) -> None:
        self.advance(EXPIRY - 1)
        consumeFrom(self.queues, "t", 2)
        self.advance(EXPIRY - 1)
        self.assertEqual(self.expired, [])

    def test_unknownTopic(self) -> None:
        self.assertIsNone(only(consumeFrom(self.queues, "u")))
        self.assertIsNone(self.queues.get("u"))

    def test_hidden(self) -> None:
        self.put("a")
        self.consume(1)
        self.assertEqual((self.t.depth, self.t.inFlight, self.t.size), (0, 1, 2 + OVERHEAD))
        self.advance(RETRY - 0.125)
        self.assertEqual(self.consume(1), "-")
        self.advance(0.125)
        self.assertEqual(self.consume(1), "a")

    def test_whoConsumesDoesNotMatter(self) -> None:
        self.put("ab")
        self.assertEqual(names([only(consumeFrom(self.queues, "t")), only(consumeFrom(self.queues, "t"))]), "ab")

    def test_deadLetters(self) -> None:
        self.put("a")
        for _ in range(3):
            self.consume(1)
            self.advance(RETRY)
        self.assertEqual(
            (self.world.dead, self.world.counts),
            ([("t", message("a", id="a"))], {DEAD_LETTERS[DeathReason.ATTEMPTS]: 1, REDELIVERED: 2}),
        )

    def test_theDeadDoNotDieTwice(self) -> None:
        self.put("a", "$dead/t")
        for _ in range(5):
            self.assertEqual(self.consume(1, "$dead/t"), "a")
            self.advance(RETRY)
        self.assertEqual(self.world.dead, [])

    def test_waiting(self) -> None:
        got: list[str] = []
        self.t.whenReady(lambda: got.append(self.consume(1)))
        self.put("a")
        self.assertEqual(got, ["a"])


class IdTests(TopicQueueCase):
    """Every message in a queue has an id."""

    def consumed(self) -> Message:
        delivery = only(consumeFrom(self.queues, "t"))
        if delivery is None:
            self.fail("nothing to consume")
        return delivery.message

    def test_ownOneStays(self) -> None:
        original = message("a", id="i")
        self.t.deliver([original], 1)
        self.assertIs(self.consumed(), original)

    def test_foreignOnesGetOne(self) -> None:
        self.t.deliver([message("a"), message("b", id="i"), message("c")], 3)
        self.assertEqual([self.consumed().message_id for _ in range(3)], ["new-1", "i", "new-2"])

    def test_nothingElseChanges(self) -> None:
        self.t.deliver([message("a")], 1)
        self.assertEqual(self.consumed(), message("a", id="new-1"))

    def test_stableOverRedelivery(self) -> None:
        self.t.deliver([message("a")], 1)
        self.consumed()
        self.advance(RETRY)
        self.assertEqual(self.consumed().message_id, "new-1")

    def test_acknowledgedByIt(self) -> None:
        self.t.deliver([message("a")], 1)
        self.consumed()
        self.assertTrue(self.queues.acknowledge(["new-1"]))
        self.assertEqual(self.t.inFlight, 0)


class AcknowledgingTests(TopicQueueCase):
    """An id is enough, wherever its message is."""

    def test_known(self) -> None:
        self.put("a")
        self.consume(1)
        self.assertTrue(self.queues.acknowledge(["a"]))
        self.advance(RETRY)
        self.assertEqual((self.consume(1), self.t.size), ("-", 0))

    def test_twice(self) -> None:
        self.put("a")
        self.consume(1)
        self.queues.acknowledge(["a"])
        self.assertFalse(self.queues.acknowledge(["a"]))

    def test_unknown(self) -> None:
        self.put("a")
        self.assertFalse(self.queues.acknowledge(["b"]))

    def test_neverConsumed(self) -> None:
        self.put("a")
        self.assertFalse(self.queues.acknowledge(["a"]))
        self.assertEqual(self.consume(1), "a")

    def test_late(self) -> None:
        self.put("a")
        self.consume(1)
        self.advance(RETRY)
        self.assertTrue(self.queues.acknowledge(["a"]))
        self.assertEqual(self.consume(1), "-")

    def test_duplicatesAreBothKept(self) -> None:
        self.put("ab", id="i")
        self.assertEqual(self.consume(3), "ab-")

    def test_duplicatesOneByOne(self) -> None:
        self.put("ab", id="i")
        self.consume(2)
        self.queues.acknowledge(["i"])
        self.advance(RETRY)
        self.assertEqual(self.consume(2), "b-")
        self.queues.acknowledge(["i"])
        self.assertEqual((self.queues.acknowledge(["i"]), self.t.inFlight), (False, 0))

    def test_longestInFlightOverAllQueues(self) -> None:
        self.put("a", "t", "i")
        self.put("b", "u", "i")
        self.consume(1, "u")
        self.advance(1)
        self.consume(1, "t")
        self.queues.acknowledge(["i"])
        self.advance(RETRY)
        self.assertEqual((self.consume(1, "t"), self.consume(1, "u")), ("a", "-"))

    def test_inFlightBeforeReturned(self) -> None:
        self.put("ab", id="i")
        self.consume(1)
        self.advance(RETRY)
        self.consume(2)
        self.advance(RETRY)
        self.consume(1)
        self.queues.acknowledge(["i"])
        self.assertEqual(self.consume(2), "b-")

    def test_firstReturnedBeforeItsNamesakeWasConsumed(self) -> None:
        """Then the namesake is the one in flight, and the one that is meant."""
        self.put("a", "t", "i")
        self.put("b", "u", "i")
        self.consume(1, "t")
        self.advance(RETRY)
        self.consume(1, "u")
        self.queues.acknowledge(["i"])
        self.assertEqual((self.t.depth, self.queues.ensure("u").inFlight), (1, 0))

    def test_theDeadAreForgotten(self) -> None:
        self.put("a")
        for _ in range(3):
            self.consume(1)
            self.advance(RETRY)
        self.assertFalse(self.queues.acknowledge(["a"]))

    def test_theDeadDoNotHideTheirNamesakes(self) -> None:
        self.put("a", id="i")
        for _ in range(3):
            self.consume(1)
            self.advance(RETRY)
        self.put("b", id="i")
        self.consume(1)
        self.assertTrue(self.queues.acknowledge(["i"]))
        self.assertEqual(self.t.inFlight, 0)

    def test_theExpiredAreForgotten(self) -> None:
        self.put("ab")
        self.consume(1)
        self.advance(RETRY)
        self.queues.get("t")
        self.advance(EXPIRY)
        self.assertEqual(self.expired, ["t"])
        self.assertEqual((self.queues.acknowledge(["a"]), len(self.queues._ids)), (False, 0))


class OverflowTests(TopicQueueCase):
    """A full queue refuses only if somebody consumes it; else the oldest goes."""

    limits = {"maxMessages": 3, "maxBytes": 1000}

    def test_neverConsumed(self) -> None:
        self.put("abc")
        self.assertIsNone(self.t.admits(1, 1))
        self.put("d")
        self.assertEqual((self.consume(4), self.world.counts), ("bcd-", {DROPPED: 1}))

    def test_everConsumed(self) -> None:
        self.consume(1)
        self.put("ab")
        self.assertEqual([self.t.admits(number, 1) for number in (1, 2)], [None, FULL])

    def test_consumedByBytes(self) -> None:
        self.consume(1)
        self.assertEqual([self.t.admits(1, 1000 - OVERHEAD + more) for more in (0, 1)], [None, FULL])

    def test_everConsumedStaysSo(self) -> None:
        self.consume(1)
        self.put("abc")
        self.advance(EXPIRY - 1)
        self.assertEqual((self.t.everConsumed, self.t.admits(1, 1)), (True, FULL))

    def test_whatNeverFitsIsRefused(self) -> None:
        """Or its producer would be told that it is kept."""
        sizes = (1000 - OVERHEAD, 1001 - OVERHEAD)
        self.assertEqual([self.t.admits(1, size) for size in sizes], [None, FULL])
        self.assertEqual([self.t.admits(number, 1) for number in (3, 4)], [None, FULL])

    def test_foreignPublicationsDropTheOldest(self) -> None:
        self.consume(1)
        self.put("abcd")
        self.assertEqual((self.consume(4), self.world.counts), ("bcd-", {DROPPED: 1}))

    def test_droppedAfterReturningIsForgotten(self) -> None:
        self.put("abc")
        self.consume(1)
        self.advance(RETRY)
        self.put("d")
        self.assertEqual((self.queues.acknowledge(["a"]), self.consume(4)), (False, "bcd-"))


class ExpiryTests(TopicQueueCase):
    """A queue lives as long as somebody consumes it."""

    def test_before(self) -> None:
        self.advance(EXPIRY - 0.125)
        self.assertEqual((self.expired, self.queues.get("t")), ([], self.t))

    def test_after(self) -> None:
        self.advance(EXPIRY)
        self.assertEqual((self.expired, self.queues.get("t")), (["t"], None))

    def test_consumingPutsItOff(self) -> None:
        self.advance(EXPIRY - 1)
        self.consume(1)
        self.advance(EXPIRY - 0.125)
        self.assertEqual(self.expired, [])
        self.advance(0.125)
        self.assertEqual(self.expired, ["t"])

    def test_producingDoesNot(self) -> None:
        self.advance(EXPIRY - 1)
        self.put("a")
        self.advance(1)
        self.assertEqual((self.expired, self.world.counts), (["t"], {DROPPED_EXPIRED: 1}))

    def test_nothingToCount(self) -> None:
        self.advance(EXPIRY)
        self.assertEqual(self.world.counts, {})

    def test_oneDeadlineHoweverMuchIsConsumed(self) -> None:
        for _ in range(100):
            self.consume(1)
        self.assertEqual(len(self.world.deadlines), 1)

    def test_whoWaitsConsumes(self) -> None:
        woken: list[int] = []
        cancel = self.t.whenReady(partial(woken.append, 1))
        self.advance(EXPIRY)
        self.assertEqual(self.expired, [])
        cancel()
        self.advance(EXPIRY)
        self.assertEqual((self.expired, woken), (["t"], []))

    def test_deadLettersStay(self) -> None:
        self.put("a", "$dead/t")
        self.advance(EXPIRY * 100)
        self.assertEqual((self.expired, self.consume(1, "$dead/t")), (["t"], "a"))

    def test_aNewOneIsNew(self) -> None:
        self.put("a")
        self.consume(1)
        self.advance(EXPIRY)
        queue = self.queues.ensure("t")
        self.assertEqual((queue is self.t, queue.everConsumed, self.consume(1)), (False, False, "-"))

    def test_deafAfterwards(self) -> None:
        self.advance(EXPIRY)
        self.t.deliver([message("a")], 1)
        self.assertEqual(self.t.depth, 0)


class DefaultExpiryTests(TopicQueueCase):
    """Unless an operator sets a time, a queue that stores messages for consumers never expires."""

    expiry = None

    def test_messagesStay(self) -> None:
        self.put("abc")
        self.advance(100 * IDLE_SECONDS)
        self.assertEqual((self.expired, self.consume(3), self.world.counts), ([], "abc", {}))

    def test_messagesInFlightStay(self) -> None:
        self.put("a")
        self.advance(IDLE_SECONDS - 1)
        self.consume(1)
        self.t.lastUsed = 0.0
        self.advance(1)
        self.assertEqual((self.expired, self.t.inFlight), ([], 1))

    def test_emptyOnesEnd(self) -> None:
        self.advance(IDLE_SECONDS - 0.125)
        self.assertEqual(self.expired, [])
        self.advance(0.125)
        self.assertEqual((self.expired, self.queues.get("t")), (["t"], None))

    def test_emptiedOnesEnd(self) -> None:
        self.put("a")
        self.advance(IDLE_SECONDS)
        self.consume(1)
        self.queues.acknowledge(["a"])
        self.advance(IDLE_SECONDS)
        self.assertEqual(self.expired, ["t"])

    def test_repliesEnd(self) -> None:
        """A requester that left never reads them; they are counted."""
        self.queues.markForReplies("r")
        self.put("ab", "r")
        self.advance(IDLE_SECONDS)
        self.assertEqual((self.expired[-1], self.world.counts), ("r", {DROPPED_EXPIRED: 2}))

    def test_repliesAreConsumed(self) -> None:
        self.queues.markForReplies("r")
        self.put("ab", "r")
        self.advance(IDLE_SECONDS - 1)
        self.consume(1, "r")
        self.advance(IDLE_SECONDS - 1)
        self.assertEqual(self.consume(2, "r"), "ab")

    def test_aQueueNamedLaterStays(self) -> None:
        """A ReplyTo makes no reply queue of a queue that exists."""
        self.put("a")
        self.queues.markForReplies("t")
        self.advance(IDLE_SECONDS)
        self.assertEqual(self.expired, [])

    def test_itsSuccessorStays(self) -> None:
        """A queue made after a reply queue's end is for replies only if its topic was named again."""
        self.queues.markForReplies("r")
        self.queues.ensure("r")
        self.advance(IDLE_SECONDS)
        self.assertEqual([self.queues.ensure("r").forReplies for _ in range(2)], [False, False])

    def test_namesAreBounded(self) -> None:
        for name in ("p", "q", "r", "s", "x" * 2000, "$dead/t", "$sys/a"):
            self.queues.markForReplies(name)
        self.assertEqual(list(self.queues._replyTopics), ["q", "r", "s"])

    def test_theBrokersOwnMessagesEnd(self) -> None:
        """Nobody waits for a confirmation of these."""
        self.put("a", "$sys/clients")
        self.advance(IDLE_SECONDS)
        self.assertIsNone(self.queues.get("$sys/clients"))
