"""Consumers of named queues: prefetch, turns, settling, and the end of a consumer."""

from typing import Any

from fleximq.broker.consumers.queue_consumer import UNSETTLED_BYTES
from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.errors import BadRequest, Conflict, NotFound
from fleximq.values.publication_head import Head
from fleximq.values.queue_definition import QueueDefinition, RetryDelays
from fleximq.values.queue_keys import MOST_PREFETCH
from tests.broker.consumers.consuming import ConsumingCase
from tests.broker.queueing import message


class PrefetchTests(ConsumingCase):
    """A consumer has at most so many unsettled deliveries."""

    def test_waitingMessagesAreDeliveredAtOnce(self) -> None:
        self.publish("abc")
        self.assertEqual(self.worker(2).names, "ab")

    def test_laterMessagesAreDeliveredWhenTheyArrive(self) -> None:
        worker = self.worker(2)
        self.publish("a")
        self.publish("bc")
        self.assertEqual(worker.names, "ab")

    def test_anAcknowledgementMakesRoom(self) -> None:
        worker = self.worker(2)
        self.publish("abcd")
        worker.ack("b")
        self.assertEqual(worker.names, "abc")

    def test_aBatchIsOneCall(self) -> None:
        worker = self.worker(10)
        self.publish("abcdefghijkl")
        worker.ack("abcd")
        self.assertEqual(worker.batches, [10, 2])

    def test_oneThatHasLeftIsNotCounted(self) -> None:
        """Unlike a client that has asked for a message in the last minute, who may ask again."""
        worker = self.worker()
        self.publish("a")
        self.assertEqual(self.queue.consumers(self.clock.seconds()), 1)
        self.broker.stopConsuming(worker.client, "t")
        self.assertEqual(self.queue.consumers(self.clock.seconds()), 0)
        self.broker.consume(self.publisher, "t")
        self.assertEqual(self.queue.consumers(self.clock.seconds()), 1)

    def test_askingAgainChangesIt(self) -> None:
        worker = self.worker(1)
        self.publish("abc")
        worker.consume(prefetch=3)
        self.assertEqual(worker.names, "abc")

    def test_itsLimits(self) -> None:
        for number in (-1, MOST_PREFETCH + 1):
            self.assertRaises(BadRequest, self.worker, number)
        self.worker(MOST_PREFETCH)
        self.worker(0)

    def test_noMoreThanSoManyBytesAreUnsettled(self) -> None:
        worker = self.worker(10)
        envelope = Envelope(self.broker.topicFor(self.publisher, "t"), self.publisher, MessageSource())
        for name in "abc":
            self.broker.publish(envelope, [message(name, size=UNSETTLED_BYTES)], 1)
        self.assertEqual(worker.names, "a")
        worker.ack("a")
        self.assertEqual(worker.names, "ab")


class TurnTests(ConsumingCase):
    """Consumers with room get messages in turn."""

    def test_singleMessagesGoRound(self) -> None:
        workers = [self.worker(10) for _ in range(3)]
        for letter in "abcdef":
            self.publish(letter)
        self.assertEqual([each.names for each in workers], ["ad", "be", "cf"])

    def test_manyMessagesAreDividedEvenly(self) -> None:
        workers = [self.worker(10) for _ in range(3)]
        self.publish("abcdef")
        self.assertEqual([each.names for each in workers], ["ab", "cd", "ef"])

    def test_aConsumerWithoutRoomGetsNoneAndHoldsUpNobody(self) -> None:
        slow, quick = self.worker(1), self.worker(10)
        self.publish("abcdef")
        self.assertEqual((slow.names, quick.names), ("a", "bcdef"))

    def test_consumersThatAskTakeTurnsWithThem(self) -> None:
        asked: list[str] = []
        worker = self.worker(10)
        client = self.broker.join("minimq")

        def ready() -> None:
            delivery = self.broker.consume(client, "t")
            assert delivery is not None
            asked.append(delivery.message.payload.decode())

        self.broker.whenAvailable(client, "t", ready)
        self.publish("abc")
        self.assertEqual((asked, worker.names), (["a"], "bc"))


class SettlingTests(ConsumingCase):
    """Acknowledge, retry, reject."""

    def test_anAcknowledgedMessageIsGone(self) -> None:
        worker = self.worker(1)
        self.publish("a")
        self.assertEqual(worker.ack("a"), [])
        self.assertEqual(self.queue.queue.stored.all, 0)

    def test_tagsThatAreNotItsOwnAreReturned(self) -> None:
        one, other = self.worker(1), self.worker(1)
        self.publish("ab")
        tags = one.tags("a") + other.tags("b") + [990]
        self.assertEqual(self.broker.settle(one.client, "t", tags), tags[1:])
        self.assertEqual(self.broker.settle(one.client, "t", tags), tags)

    def test_withoutConsumingNoTagIsItsOwn(self) -> None:
        self.assertEqual(self.broker.settle(self.publisher, "t", [1], [(2, 0.0)], [(3, "")], [(4, 1.0)]), [1, 2, 3, 4])

    def test_aRetriedMessageIsDeliveredAgain(self) -> None:
        worker = self.worker(1)
        self.publish("a")
        self.broker.settle(worker.client, "t", retries=[(worker.got[0].tag, 0.0)])
        self.assertEqual([each.attempts for each in worker.got], [1, 2])

    def test_aRejectedMessageIsADeadLetter(self) -> None:
        worker = self.worker(1)
        self.publish("a")
        self.broker.settle(worker.client, "t", rejects=[(worker.got[0].tag, "broken")])
        self.assertEqual(self.worker(1, "$dead/t").names, "a")

    def test_anIdOfAnEarlierDeliveryIsForgotten(self) -> None:
        client = self.broker.join("minimq")
        self.publish("a")
        delivery = self.broker.consume(client, "t")
        assert delivery is not None
        self.clock.advance(30)
        worker = self.worker(1)
        worker.ack("a")
        self.assertEqual(self.queue.queue.stored.all, 0)
        self.broker.acknowledgeMessages([delivery.message.message_id or ""])


class EndTests(ConsumingCase):
    """The end of a consumer."""

    def test_deliveriesOfAClientThatLeftGoToOthersAtOnce(self) -> None:
        one = self.worker(2)
        self.publish("abc")
        other = self.worker(3)
        self.broker.leave(one.client, "gone")
        self.assertEqual(other.names, "cab")

    def test_itMayStopByItself(self) -> None:
        worker = self.worker(2)
        self.publish("a")
        self.broker.stopConsuming(worker.client, "t")
        self.broker.stopConsuming(worker.client, "t")
        self.publish("b")
        self.assertEqual((worker.names, self.queue.depth), ("a", 2))


class DefinitionTests(ConsumingCase):
    """Defining queues."""

    def test_anEqualDefinitionIsNothing(self) -> None:
        for _ in range(2):
            self.broker.defineQueue(self.publisher, QueueDefinition("t", max_in_flight=2))

    def test_aDifferentOneIsAConflictThatNamesBoth(self) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", max_in_flight=2))
        error = self.assertRaises(
            Conflict, self.broker.defineQueue, self.publisher, QueueDefinition("t", max_in_flight=3)
        )
        words = "the queue 't' is {'max_in_flight': 2}, not {'max_in_flight': 3}; 'replace' changes that"
        self.assertEqual(str(error), words)

    def test_itMayBeReplaced(self) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", max_in_flight=2))
        self.broker.defineQueue(self.publisher, QueueDefinition("t"), replace=True)
        self.assertEqual(self.queue.definition, QueueDefinition("t"))

    def test_noMoreAreInFlightThanItPermits(self) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", max_in_flight=2))
        one, other = self.worker(2), self.worker(2)
        self.publish("abcd")
        self.assertEqual(one.names + other.names, "ab")
        one.ack(one.names[0])
        self.assertEqual(len(one.names + other.names), 3)

    def test_aPausedQueueDeliversNothing(self) -> None:
        self.broker.pauseQueue(self.publisher, "t", True)
        worker = self.worker(2)
        self.publish("a")
        self.assertEqual((worker.names, self.broker.consume(self.publisher, "t")), ("", None))
        self.broker.pauseQueue(self.publisher, "t", False)
        self.assertEqual(worker.names, "a")

    def test_aQueueThatDoesNotExistCannotBePaused(self) -> None:
        self.assertRaises(NotFound, self.broker.pauseQueue, self.publisher, "u", True)


class TimeToLiveTests(ConsumingCase):
    """How long messages wait at most."""

    def define(self, seconds: float | None, **values: Any) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", message_ttl=seconds, **values), replace=True)

    def test_messagesThatWaitForLongerExpire(self) -> None:
        self.define(10.0)
        self.publish("a")
        self.clock.advance(6)
        self.publish("b")
        self.clock.advance(6)
        self.assertEqual((self.worker(9).names, self.queue.depth), ("b", 0))

    def test_thoseOfAllPriorities(self) -> None:
        self.define(10.0)
        envelope = Envelope(self.broker.topicFor(self.publisher, "t"), self.publisher, MessageSource())
        self.broker.publish(envelope, [message("a")._replace(head=Head("t", priority=9))], 1)
        self.clock.advance(12)
        self.assertEqual(self.worker(9).names, "")

    def test_theyMayBecomeDeadLetters(self) -> None:
        self.define(10.0, expired="dead")
        self.publish("a")
        self.clock.advance(12)
        self.assertEqual((self.queue.depth, self.broker.queues.existing("$dead/t").depth), (0, 1))

    def test_changesCountForWaitingMessages(self) -> None:
        """A longer or shorter time from their arrival, the first one from now on."""
        self.publish("a")
        self.clock.advance(100)
        self.define(50.0)
        self.clock.advance(20)
        self.define(30.0)
        self.clock.advance(5)
        self.assertEqual(self.queue.depth, 1)
        self.clock.advance(10)
        self.assertEqual(self.queue.depth, 0)
        self.publish("b")
        self.define(None)
        self.clock.advance(1000)
        self.assertEqual(self.worker(9).names, "b")


class LeaseTests(ConsumingCase):
    """How long a delivery is its consumer's."""

    def define(self, **values: Any) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", **values))

    def test_withoutALeaseItLastsAsLongAsTheConsumer(self) -> None:
        one, other = self.worker(1), self.worker(1)
        self.publish("a")
        self.clock.advance(1_000_000)
        self.assertEqual((one.names, other.names), ("a", ""))

    def test_aLeaseThatEndsGivesItToAnother(self) -> None:
        self.define(lease=10.0)
        one, other = self.worker(1), self.worker(1)
        self.publish("a")
        self.clock.advance(10)
        self.clock.advance(0)
        self.assertEqual((one.names, other.names), ("a", "a"))
        self.assertEqual(one.ack("a"), one.tags("a"))
        self.publish("b")
        self.assertEqual(one.names, "ab")

    def test_aLeaseMayBeExtended(self) -> None:
        self.define(lease=10.0)
        one, other = self.worker(1), self.worker(1)
        self.publish("a")
        self.clock.advance(9)
        self.assertEqual(self.broker.settle(one.client, "t", extends=[(one.got[0].tag, 10.0)]), [])
        self.clock.advance(9)
        self.assertEqual(other.names, "")
        self.clock.advance(1)
        self.assertEqual(other.names, "a")

    def test_aRetryWaitsAsTheDefinitionSays(self) -> None:
        self.define(retry=RetryDelays(5.0, factor=2.0))
        worker = self.worker(1)
        self.publish("a")
        for delay, names in ((5, "aa"), (10, "aaa")):
            self.broker.settle(worker.client, "t", retries=[(worker.got[-1].tag, None)])
            self.clock.advance(delay - 1)
            self.assertEqual(worker.names, names[1:])
            self.clock.advance(1)
            self.assertEqual(worker.names, names)

    def test_oneMessageOfAKeyIsOutAtATime(self) -> None:
        self.define(ordered_by="key")
        envelope = Envelope(self.broker.topicFor(self.publisher, "t"), self.publisher, MessageSource())
        for name, key, priority in (("a", "k", 4), ("b", "k", 9), ("c", "l", 4)):
            head = Head("t", priority=priority, key=key)
            self.broker.publish(envelope, [message(name)._replace(head=head)], 1)
        worker = self.worker(10)
        self.assertEqual(worker.names, "ac")
        worker.ack("a")
        self.assertEqual(worker.names, "acb")
