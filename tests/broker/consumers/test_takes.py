"""Deliveries that belong to principals and are taken one request at a time."""

import tracemalloc
from collections.abc import Sequence
from unittest.mock import patch

import msgpack

from fleximq.broker.consumers import takes
from fleximq.broker.consumers.principal_worker import Job, Settling, Take
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.queues import in_flight, queue
from fleximq.errors import BadRequest, BrokerError, ConsumerEnded, Forbidden, NoCapacity, NotPermitted, TooManyRequests
from fleximq.rights import Action
from fleximq.security.permissions import Rights
from fleximq.values.message import Content, Message
from fleximq.values.publication_head import Head, headOf
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import ConsumingCase
from tests.broker.queueing import message, names
from tests.broker.restarts import Restarts


class TakesCase(ConsumingCase):
    """A client of alice, and what takes brought."""

    def setUp(self) -> None:
        super().setUp()
        self.alice = self.broker.join("http", principal="alice")
        self.results: list[Sequence[Job] | BrokerError] = []

    def take(
        self, number: int = 1, wait: float = 0, lease: float = 0, client: ConnectedClient | None = None, name: str = "t"
    ) -> Take:
        """Take for alice, or for another client."""
        return self.broker.takes.take(client or self.alice, name, number, wait, lease, self.results.append)

    def jobs(self, place: int = -1) -> list[Job]:
        """Return the jobs of a result."""
        found = self.results[place]
        assert not isinstance(found, BrokerError)
        return [*found]

    def names(self, place: int = -1) -> str:
        """Return the names of the jobs of a result."""
        return names([job.delivery for job in self.jobs(place)])

    def settle(self, settling: Settling, client: ConnectedClient | None = None, name: str = "t") -> list[str]:
        """Settle, and return the tags that were unsettled."""
        done: list[tuple[list[str], str | None]] = []
        self.broker.takes.settle(client or self.alice, name, settling, lambda *found: done.append(found))
        [(unsettled, reason)] = done
        self.assertIsNone(reason)
        return unsettled


class TakingTests(TakesCase):
    """What a take brings."""

    def test_waitingMessagesAtOnceButNoMoreThanAskedFor(self) -> None:
        self.publish("abc")
        self.take(2)
        self.assertEqual(self.names(), "ab")

    def test_withoutMessagesNothing(self) -> None:
        self.take()
        self.assertEqual(self.jobs(), [])

    def test_oneThatWaitsGetsTheNextMessage(self) -> None:
        self.take(5, wait=10)
        self.assertEqual(self.results, [])
        self.publish("a")
        self.assertEqual(self.names(), "a")

    def test_oneThatWaitedLongEnoughGetsNothingAndTakesNothing(self) -> None:
        self.take(wait=10)
        self.clock.advance(10)
        self.assertEqual(self.jobs(), [])
        self.publish("a")
        self.take()
        self.assertEqual(self.names(), "a")

    def test_takesOfOnePrincipalTakeTurns(self) -> None:
        self.take(wait=10)
        self.take(2, wait=10)
        self.publish("abc")
        self.assertEqual([self.names(0), self.names(1)], ["a", "bc"])

    def test_aPrincipalAndAnotherConsumerShareTheQueue(self) -> None:
        other = self.worker(1)
        self.take(wait=10)
        self.publish("ab")
        self.assertEqual(sorted(self.names() + other.names), ["a", "b"])

    def test_aSettlementGivesATakeNoMoreThanItAskedFor(self) -> None:
        self.publish("ab")
        self.take(2)
        tags = [job.tag for job in self.jobs()]
        self.take(1, wait=10)
        self.settle(Settling(acks=tags))
        self.publish("cd")
        self.assertEqual(self.names(), "c")

    def test_theNumbersHaveBounds(self) -> None:
        for number, wait, lease in ((0, 0, 0), (257, 0, 0), (1, -1, 0), (1, 301, 0), (1, float("nan"), 0), (1, 0, 1e9)):
            with self.assertRaises(BadRequest):
                self.take(number, wait, lease)

    def test_consumingMustBePermitted(self) -> None:
        client = self.broker.join("http", principal="bob", rights=Rights({Action.CONSUME: ["other"]}))
        with self.assertRaises(NotPermitted):
            self.take(client=client)


class ReadyTests(TakesCase):
    """Jobs that a take without a time to wait gets, although none can be delivered at that moment."""

    def test_oneWhoseLeaseEndsInThisTurn(self) -> None:
        self.publish("a")
        self.take(lease=5)
        self.clock.rightNow += 5  # the deadlines of this turn have passed already
        self.take()
        self.clock.advance(0)
        self.assertEqual([job.delivery.attempts for job in self.jobs()], [2])

    def test_thoseOfAConsumerThatLeaves(self) -> None:
        """Others take its first ones in the same turn."""
        self.patch(in_flight, "SLICE", 2)
        self.publish("abc")
        one, other = self.worker(3), self.worker(2)
        self.broker.leave(one.client, "client closed")
        self.assertEqual(other.names, "ab")
        self.take()
        self.clock.advance(0)
        self.clock.advance(0)
        self.assertEqual(self.names(), "c")

    def test_oneAfterManyThatWaitForOthersOfTheirKey(self) -> None:
        self.patch(queue, "PARKED_AT_ONCE", 2)
        self.patch(queue, "_FEW", 2)
        self.broker.defineQueue(self.publisher, QueueDefinition("t", ordered_by="key"))
        envelope = Envelope(self.broker.topicFor(self.publisher, "t"), self.publisher, MessageSource())
        self.worker(1)
        for name in "aaaaab":
            self.broker.publish(envelope, [message(name)._replace(head=Head("t", key=name))], 1)
        self.take()
        for _ in range(3):
            self.clock.advance(0)
        self.assertEqual(self.names(), "b")

    def test_oneOnDiskOfAPriorityBelowThoseThatWaitForOthersOfTheirKey(self) -> None:
        world = Restarts({"queueMemory": 1})
        world.journal.patient = True
        world.broker.defineQueue(world.me, QueueDefinition("t"))
        me = world.broker.join("fleximq")
        envelope = Envelope(world.broker.topicFor(me, "t"), me, MessageSource(), durable=True)
        for name, fields in (("z", {"priority": 0}), ("a", {"key": "k"}), ("b", {"key": "k"})):
            head = headOf("t", msgpack.packb(fields), me.id)
            world.broker.publish(envelope, [Message(name.encode(), Content.MESSAGEPACK, 1, head=head)], 1)
            world.commit()
        world.broker.defineQueue(world.me, QueueDefinition("t", ordered_by="key"), replace=True)
        self.assertEqual(names(world.consume("t", 1)), "a")
        world.broker.takes.take(world.me, "t", 1, 0, 0, self.results.append)
        while world.journal.asked:
            world.journal.answer()
            world.clock.advance(0)
        self.assertEqual(self.names(), "z")


class LeaseTests(TakesCase):
    """How long a job is its principal's."""

    def test_thirtySecondsByDefault(self) -> None:
        self.publish("a")
        self.take()
        self.clock.advance(29)
        self.take()
        self.assertEqual(self.jobs(), [])
        self.clock.advance(1)
        self.take()
        self.assertEqual([job.delivery.attempts for job in self.jobs()], [2])

    def test_asTheQueueSays(self) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", ("t",), lease=5.0))
        self.publish("a")
        self.take()
        self.clock.advance(5)
        self.take()
        self.assertEqual(self.names(), "a")

    def test_asTheTakeSays(self) -> None:
        self.publish("a")
        self.take(lease=2)
        self.clock.advance(2)
        self.take()
        self.assertEqual(self.names(), "a")

    def test_itMayBeExtended(self) -> None:
        self.publish("a")
        self.take(lease=2)
        self.assertEqual(self.settle(Settling(extends=[(self.jobs()[0].tag, 60)])), [])
        self.clock.advance(59)
        self.take()
        self.assertEqual(self.jobs(), [])

    def test_anExtensionHasABound(self) -> None:
        with self.assertRaises(BadRequest):
            self.settle(Settling(extends=[("x", 1e6)]))

    def test_settlingAJobWhoseLeaseHasEndedIsReported(self) -> None:
        self.publish("a")
        self.take()
        tag = self.jobs()[0].tag
        self.clock.advance(30)
        self.assertEqual(self.settle(Settling(acks=[tag])), [tag])
        self.take()
        self.assertEqual(self.names(), "a")


class SettlingTests(TakesCase):
    """Settling by any client of the principal."""

    def test_anAcknowledgedJobIsGone(self) -> None:
        self.publish("a")
        self.take()
        self.assertEqual(self.settle(Settling(acks=[self.jobs()[0].tag])), [])
        self.clock.advance(60)
        self.assertEqual(self.queue.depth + self.queue.inFlight, 0)

    def test_anotherConnectionOfThePrincipalMaySettle(self) -> None:
        self.publish("a")
        self.take()
        self.broker.leave(self.alice, "client closed")
        again = self.broker.join("http", principal="alice")
        self.assertEqual(self.settle(Settling(acks=[self.jobs()[0].tag]), again), [])
        self.assertEqual(self.queue.inFlight, 0)

    def test_thatOfAnotherPrincipalIsUnsettled(self) -> None:
        self.publish("a")
        self.take()
        tag = self.jobs()[0].tag
        mallory = self.broker.join("http", principal="mallory")
        self.take(client=mallory)
        self.assertEqual(self.settle(Settling(acks=[tag]), mallory), [tag])
        self.assertEqual(self.settle(Settling(acks=[tag]), self.broker.join("http")), [tag])
        self.assertEqual(self.queue.inFlight, 1)

    def test_wordsThatAreNoTagsAreUnsettled(self) -> None:
        self.publish("a")
        self.take()
        word = self.jobs()[0].tag.partition("-")[0]
        wrong = ["", "-", "1", f"{word}-", f"{word}--1", f"{word}-x", f"{word}-\u0663", word + "-" + "9" * 30, "0-44"]
        self.assertEqual(self.settle(Settling(acks=wrong)), wrong)

    def test_aTagOfAQueueThatWasDeletedSettlesNothingOfTheNext(self) -> None:
        self.publish("a")
        self.take()
        old = self.jobs()[0].tag
        self.broker.deleteQueue(self.publisher, "t")
        self.take()
        self.publish("b")
        self.take()
        self.assertEqual(self.names(), "b")
        self.assertEqual(self.settle(Settling(acks=[old])), [old])

    def test_retryAndReject(self) -> None:
        self.publish("ab")
        self.take(2)
        first, second = (job.tag for job in self.jobs())
        self.assertEqual(self.settle(Settling(retries=[(first, 5)], rejects=[(second, "broken")])), [])
        self.clock.advance(5)
        self.take(2)
        self.assertEqual(self.names(), "a")
        self.assertEqual([*self.broker.queues][-1].name, "$dead/t")


class EndTests(TakesCase):
    """Requesters that are gone, and principals that may not go on."""

    def test_aTakeWhoseRequesterIsGoneTakesNothing(self) -> None:
        self.take(wait=10).cancel()
        self.publish("a")
        self.assertEqual(self.results, [])
        self.take()
        self.assertEqual(self.names(), "a")

    def test_aDisconnectedPrincipalGivesAllBackAndItsTakesEnd(self) -> None:
        self.publish("a")
        self.take()
        self.take(wait=10)
        [worker] = [each for each in self.broker.clients if each.principal == "alice" and each is not self.alice]
        assert worker.conversation is not None
        worker.conversation.expel(Forbidden("disconnected"))
        self.assertIsInstance(self.results[-1], Forbidden)
        self.take(client=self.publisher)
        self.assertEqual(self.names(), "a")

    def test_lostRightsEndTakes(self) -> None:
        self.take(wait=10)
        [worker] = [each for each in self.broker.clients if each.principal == "alice" and each is not self.alice]
        self.broker.changeRights(worker, Rights({}))
        self.assertIsInstance(self.results[-1], ConsumerEnded)

    def test_whatNothingUsesLeaves(self) -> None:
        self.publish("a")
        before, deadlines = len(self.broker.clients), len(self.broker.deadlines)
        self.take(lease=200)
        self.clock.pump([60] * 3)
        self.assertEqual((len(self.broker.clients), len(self.queue.distribution.consumers)), (before + 1, 1))
        self.settle(Settling(acks=[self.jobs()[0].tag]))
        self.clock.pump([60] * 2)
        self.assertEqual((len(self.broker.clients), len(self.queue.distribution.consumers)), (before, 0))
        self.assertEqual(len(self.broker.deadlines), deadlines)


class BoundTests(TakesCase):
    """Takes and deliveries have bounds."""

    def test_waitingTakesOfAPrincipal(self) -> None:
        with patch.object(takes, "MOST_WAITING_EACH", 2):
            held = [self.take(wait=10), self.take(wait=10)]
            with self.assertRaises(TooManyRequests):
                self.take(wait=10)
            held[0].giveUp()
            self.take(wait=10)

    def test_waitingTakesOfAll(self) -> None:
        with patch.object(takes, "MOST_WAITING", 1):
            self.take(wait=10)
            with self.assertRaises(NoCapacity):
                self.take(wait=10, client=self.publisher)
            self.clock.advance(10)
            self.take(wait=10, client=self.publisher)

    def test_tenThousandThatWaitTakeLittleMemoryAndNoTime(self) -> None:
        clients = [self.broker.join("http", principal=f"p{number}") for number in range(10)]
        self.take(wait=100, client=clients[0]).cancel()
        timers = len(self.clock.calls)
        tracemalloc.start()
        try:
            held = [self.take(wait=100, client=client) for client in clients for _ in range(1000)]
            size = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        self.assertLess(size / len(held), 1000)
        self.assertLessEqual(len(self.clock.calls), timers + 1)
        with self.assertRaises(NoCapacity):
            self.take(wait=100)
        self.clock.advance(99)
        self.assertEqual(self.results, [])
        for each in held:
            each.cancel()
        self.assertEqual((self.broker.takes.waiting, self.queue.distribution.waiting), (0, 0))
        self.publish("a")
        self.take()
        self.assertEqual(self.names(), "a")

    def test_unsettledDeliveries(self) -> None:
        self.publish("abcd")
        with patch.object(takes, "MOST_UNSETTLED", 3):
            self.take(2)
            with self.assertRaises(TooManyRequests):
                self.take(2)
            self.take(1)
            self.settle(Settling(acks=[job.tag for job in self.jobs(0)]))
            self.take(2)
            self.assertEqual(self.names(), "d")
