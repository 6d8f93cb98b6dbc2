"""Priorities: lanes of a work queue, live and after a restart."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers.lanes import laneKey, priorityIn
from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.errors import NotKept
from fleximq.values.publication_head import Head
from fleximq.values.queue_definition import QueueDefinition, RetryDelays
from tests.broker.consumers.consuming import ConsumingCase
from tests.broker.queueing import messages


class KeyTests(SynchronousTestCase):
    """The keys of lanes in the journal."""

    def test_theyContainThePriority(self) -> None:
        self.assertEqual([priorityIn(key) for key in (laneKey("t", 9), laneKey("t", 0), "q:t", "r:t")], [9, 0, 4, 4])


class PriorityTests(ConsumingCase):
    """Higher priorities first, equal ones in order."""

    def put(self, letters: str, priority: int) -> None:
        envelope = Envelope(self.broker.topicFor(self.publisher, "t"), self.publisher, MessageSource())
        head = Head("t", priority=priority)
        body = [each._replace(head=head) for each in messages(letters)]
        self.broker.publish(envelope, body, len(body))

    def define(self, **values: Any) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", **values))

    def test_higherOnesAreDeliveredFirst(self) -> None:
        for letters, priority in (("ab", 0), ("cd", 4), ("ef", 9), ("gh", 4)):
            self.put(letters, priority)
        self.assertEqual(self.worker(10).names, "efcdghab")

    def test_aWaitingConsumerGetsThemToo(self) -> None:
        worker = self.worker(10)
        self.put("a", 9)
        self.put("b", 4)
        self.put("c", 9)
        self.assertEqual(worker.names, "abc")

    def test_eachIsSettledByItsTag(self) -> None:
        self.put("ab", 9)
        self.put("cd", 4)
        worker = self.worker(10)
        self.assertEqual(worker.ack("acd"), [])
        self.assertEqual((self.queue.depth, self.queue.inFlight), (0, 1))
        self.assertEqual(worker.ack("b"), [])
        self.assertEqual(self.queue.inFlight, 0)

    def test_manyOfSeveralPrioritiesAreSettledTogether(self) -> None:
        """Each with its own words or delay; a tag counts once."""
        self.define(retry=RetryDelays(5.0))
        self.put("abc", 9)
        self.put("cde", 4)
        worker = self.worker(10)
        tags = [each.tag for each in worker.got]
        stories: list[tuple[str, str]] = []
        self.broker.deadLetters.onDeadLetter = lambda death, messageId: stories.append((death.words, death.topic))
        rejects = [(tags[0], "first"), (tags[3], "second"), (tags[0], "again"), (7, "unknown")]
        unknown = self.broker.settle(worker.client, "t", retries=[(tags[1], None), (tags[4], 2.0)], rejects=rejects)
        self.assertEqual((unknown, stories), ([tags[0], 7], [("first", "t"), ("second", "t")]))
        self.assertEqual((self.queue.inFlight, self.queue.depth), (4, 0))
        for seconds, names in ((2, "d"), (3, "b")):
            self.clock.advance(seconds)
            self.assertEqual(worker.names[-1], names)

    def test_consumersThatAskGetThemInTheSameOrder(self) -> None:
        self.put("a", 4)
        self.put("b", 9)
        found = self.broker.consumeMany(self.publisher, "t", 10)
        self.assertEqual([each.message.payload for each in found], [b"b", b"a"])
        self.broker.acknowledgeMessages([each.message.message_id or "" for each in found])
        self.assertEqual(self.queue.inFlight, 0)

    def test_theBoundIsThatOfAllTogether(self) -> None:
        self.define(max_messages=3, when_full="refuse")
        self.put("ab", 9)
        self.put("c", 1)
        self.assertRaises(NotKept, self.put, "d", 4)

    def test_aFullQueueDropsTheLowestFirst(self) -> None:
        self.define(max_messages=3, when_full="drop-oldest")
        self.put("ab", 1)
        self.put("c", 4)
        self.put("de", 9)
        self.assertEqual(self.worker(10).names, "dec")

    def test_deliveriesOfAClientThatLeftReturnToTheirLane(self) -> None:
        self.put("a", 4)
        self.put("b", 9)
        one = self.worker(2)
        self.broker.leave(one.client, "gone")
        self.assertEqual(self.worker(2).names, "ba")


class OperatorTests(ConsumingCase):
    """Purges and moves of a queue that is ordered by keys."""

    def setUp(self) -> None:
        super().setUp()
        self.broker.defineQueue(self.publisher, QueueDefinition("t", ordered_by="key"))
        self.done: list[tuple[int, str | None]] = []

    def put(self, letters: str) -> None:
        body = [each._replace(head=Head("t", key="k")) for each in messages(letters)]
        envelope = Envelope(self.broker.topicFor(self.publisher, "t"), self.publisher, MessageSource())
        self.broker.publish(envelope, body, len(body))

    def tell(self, number: int, reason: str | None) -> None:
        self.done.append((number, reason))

    def test_aPurgeOfThoseThatWaitForOthersOfTheirKey(self) -> None:
        """Those that a consumer has stay, and no others: the queue is empty when it has acknowledged them."""
        self.put("abc")
        worker = self.worker(9)
        self.broker.admin.purge(self.queue, self.tell)
        self.clock.advance(0)
        worker.ack("a")
        self.assertEqual((self.done, worker.names, self.queue.depth), ([(2, None)], "a", 0))

    def test_aMoveOfThem(self) -> None:
        """In order, the given number; the others are delivered in order."""
        self.put("abc")
        worker = self.worker(9)
        self.put("def")
        self.broker.admin.move(self.queue, "u", 3, self.tell)
        self.clock.advance(0)
        self.assertEqual((self.done, self.worker(9, name="u").names), ([(3, None)], "bcd"))
        worker.ack("a")
        worker.ack("e")
        self.assertEqual((worker.names, self.queue.depth), ("aef", 0))

    def test_whenNoConsumerHasOne(self) -> None:
        """A move does not go on one by one."""
        self.put("abc")
        self.broker.admin.move(self.queue, "u", 3, self.tell)
        self.assertEqual((self.done, self.worker(9, name="u").names), ([(3, None)], "abc"))
