"""Queues of FlexiMQ clients (docs/reference/dialects.rst, "Queues")."""

from typing import Any

import msgpack

from fleximq.broker.envelope import BROKER_ID, Envelope
from fleximq.broker.paths.settlement import SETTLE
from fleximq.dialects.minimq.messages import SOURCE
from fleximq.limits import Limits
from fleximq.security.permissions import Rights
from fleximq.values.message import Content, Message
from tests.dialects.conversations import inPieces
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.dialects.test_fleximq_ws import FlexiWebSocketCase, FlexiWebSocketPeer
from tests.journal.at_once import JournalAtOnce
from tests.journal.recorder import Recorder
from tests.slow_journal import SlowJournal
from tests.wire.flexi_frames import Heard, frame
from tests.wire.flexi_variants import VARIANTS

#: The routing of a notification that settles.
TO_BROKER = {"routing": [{"client_id": BROKER_ID, "path": SETTLE}]}


class QueueCase(FlexiCase):
    """A producer and consumers of one queue."""

    def setUp(self) -> None:
        """Begin with a producer."""
        super().setUp()
        self.producer = self.server.join()

    def enqueue(self, *values: Any, queue: str = "jobs", **keys: Any) -> None:
        """Publish values for workers."""
        for value in values:
            self.producer.publish(queue, value, queue=True, **keys)

    def consumer(self, prefetch: int = 1, queue: Any = True, topic: str = "jobs") -> FlexiPeer:
        """Return a peer that consumes."""
        return self.consume(self.server.join(), prefetch, queue, topic)

    def consume(self, peer: FlexiPeer, prefetch: int = 1, queue: Any = True, topic: str = "jobs") -> FlexiPeer:
        """Let a peer consume."""
        peer.tell("SUB", {"topic": topic, "queue": queue, "prefetch": prefetch})
        self.clock.advance(0)
        return peer

    def settle(self, peer: FlexiPeer, queue: str = "jobs", **lists: Any) -> None:
        """Settle deliveries without an answer."""
        peer.tell("NOTIF", TO_BROKER, {"queue": queue, **lists})
        self.clock.advance(0)

    def ask(self, peer: FlexiPeer, path: str, **arguments: Any) -> Heard:
        """Request a path of the broker, and return its answer."""
        peer.request(BROKER_ID, path, "r", arguments)
        self.clock.advance(0)
        [heard] = [each for each in peer.messages() if each.kind == "REP"]
        return heard

    def deliveries(self, peer: FlexiPeer) -> list[tuple[Any, int]]:
        """Return the values and attempts of new deliveries."""
        return [(each.value, each.header["delivery"]["attempt"]) for each in self.heard(peer)]

    def heard(self, peer: FlexiPeer) -> list[Heard]:
        """Return what a peer heard, which must be deliveries."""
        self.clock.advance(0)
        heard = peer.messages()
        self.assertEqual([each for each in heard if "delivery" not in each.header], [])
        return heard

    def tags(self, peer: FlexiPeer) -> list[int]:
        """Return the tags of new deliveries."""
        return [each.header["delivery"]["tag"] for each in self.heard(peer)]


class EnqueueTests(QueueCase):
    """PUB with ``queue: true``."""

    def test_messagesWaitForTheFirstConsumer(self) -> None:
        """The queue is made by the first of them."""
        self.enqueue("a", "b")
        self.assertEqual(self.producer.barrier(), [])
        self.assertEqual(self.deliveries(self.consumer(10)), [("a", 1), ("b", 1)])

    def test_withoutTheKeyNothingWaits(self) -> None:
        """An ordinary publication without subscribers is gone, and one to an existing queue waits there."""
        self.producer.publish("jobs", "lost")
        consumer = self.consumer(10)
        self.producer.publish("jobs", "kept")
        self.assertEqual(self.deliveries(consumer), [("kept", 1)])

    def test_subscribersOfTheTopicReceiveItToo(self) -> None:
        """As any publication, unchanged."""
        subscriber = self.server.join()
        subscriber.subscribe("jobs")
        self.enqueue("a", priority=9)
        self.clock.advance(0)
        [heard] = subscriber.messages()
        self.assertEqual(heard.header, {"topic": "jobs", "queue": True, "priority": 9})

    def test_aRepeatedHeaderIsReadOnce(self) -> None:
        """Later runs with the same envelope need no header check, and arrive as whole runs."""
        self.enqueue("a")
        parsed: list[object] = []
        produce = self.server.broker.produce

        def produced(envelope: Any, body: Any, count: int, onDecided: Any = None) -> None:
            parsed.append((envelope.topic.name, count))
            produce(envelope, body, count, onDecided)

        self.patch(self.server.broker, "produce", produced)
        unknown = self.patch(type(self.producer.protocol.session.reads), "_unknown", None)
        frame = self.producer.variant.frame
        header = {"topic": "jobs", "queue": True}
        data = b"".join(frame("PUB", self.producer.id, header, msgpack.packb(number)) for number in range(50))
        self.producer.say(data)
        self.assertEqual(parsed, [("jobs", 50)] if not self.piece else [("jobs", 1)] * 50)
        unknown.restore()
        self.assertEqual([value for value, _ in self.deliveries(self.consumer(100))], ["a", *range(50)])

    def test_aRepeatedHeaderMakesTheQueueAgain(self) -> None:
        """Though the queue has expired meanwhile, and subscribers of FlexiMQ alone are left."""
        self.server = self.makeServer(queueExpiry=60.0)
        self.producer, subscriber = self.server.join(), self.server.join()
        subscriber.subscribe("jobs")
        self.enqueue("a")
        self.clock.advance(61)
        self.assertIsNone(self.server.broker.queues.get("jobs"))
        self.enqueue("b", "c")
        self.assertEqual(self.deliveries(self.consumer(10)), [("b", 1), ("c", 1)])

    def test_aFullQueueRefuses(self) -> None:
        """500 for each message, with the topic as path; the producer may send it again."""
        self.server = self.makeServer(limits=Limits(queueMessages=2))
        self.producer = self.server.join()
        consumer = self.consumer(1)
        self.enqueue("a", "b", "c")
        self.enqueue("d")
        errors = self.producer.barrier()
        self.assertEqual([each.status for each in errors], [500, 500])
        self.assertEqual(errors[0].header["routing"], [{"client_id": self.producer.id, "path": "jobs"}])
        self.assertEqual(self.deliveries(consumer), [("a", 1)])

    def test_tooManyQueuesRefuseAnother(self) -> None:
        """503, also for messages whose header was seen before."""
        self.server = self.makeServer(limits=Limits(queues=1))
        self.producer = self.server.join()
        self.enqueue("a")
        self.enqueue("b", queue="other")
        self.enqueue("c", queue="other")
        self.assertEqual([each.status for each in self.producer.barrier()], [503, 503])


class ConsumerTests(QueueCase):
    """SUB and UNSUB with ``queue``."""

    def test_aDeliveryIsThePublicationWithItsDelivery(self) -> None:
        """Publisher, header and payload as sent, and ``delivery`` last."""
        self.enqueue({"to": "anna"}, priority=5, key=b"k", colour="red")
        [heard] = self.heard(self.consumer())
        delivery = {"queue": "jobs", "tag": heard.header["delivery"]["tag"], "attempt": 1}
        expected = {"topic": "jobs", "queue": True, "priority": 5, "key": b"k", "colour": "red", "delivery": delivery}
        self.assertEqual((heard.kind, heard.sender, heard.header), ("PUB", self.producer.id, expected))
        self.assertEqual(list(heard.header)[-1], "delivery")
        self.assertEqual(heard.value, {"to": "anna"})

    def test_messagesOfOtherDialectsHaveTheirIds(self) -> None:
        """A text of MiniMQ is a string; ids are keys, and ClientID is that of the broker."""
        consumer = self.consumer()
        broker = self.server.broker
        client = self.server.foreign()
        message = Message(b"hello", Content.TEXT, 1, "m1", "c1", None, False, True)
        broker.produce(Envelope(broker.topicFor(client, "jobs"), client, SOURCE, 1, True), [message], 1)
        [heard] = self.heard(consumer)
        self.assertEqual(heard.value, "hello")
        self.assertEqual(heard.sender, BROKER_ID)
        ids = {"topic": "jobs", "message_id": "m1", "correlation_id": "c1"}
        self.assertEqual({key: heard.header.get(key) for key in ids}, ids)

    def test_consumersOfMiniMQGetAnId(self) -> None:
        """Also of a message that a FlexiMQ client had before; it is acknowledged by that id."""
        self.enqueue("a")
        first = self.consumer()
        self.assertEqual(self.deliveries(first), [("a", 1)])
        first.leave()
        self.clock.advance(0)
        broker, client = self.server.broker, self.server.foreign()
        delivery = broker.consume(client, "jobs")
        assert delivery is not None and delivery.message.message_id is not None
        self.assertEqual((delivery.message.message_id[:3], delivery.attempts), ("id-", 2))
        broker.acknowledgeMessages([delivery.message.message_id])
        self.assertEqual(broker.queues.ensure("jobs").queue.stored.all, 0)
        self.assertEqual(broker.queues.ensure("jobs").queue.stored.size, 0)

    def test_atMostPrefetchAreUnsettled(self) -> None:
        """One without the key; the next delivery follows a settlement."""
        self.enqueue("a", "b", "c")
        consumer = self.server.join()
        consumer.tell("SUB", {"topic": "jobs", "queue": True})
        [tag] = self.tags(consumer)
        self.settle(consumer, ack=[tag])
        self.assertEqual(self.deliveries(consumer), [("b", 1)])

    def test_anotherSubscriptionChangesPrefetch(self) -> None:
        """The client stays one consumer."""
        self.enqueue(*range(5))
        consumer = self.consumer(1)
        self.assertEqual(self.deliveries(consumer), [(0, 1)])
        self.consume(consumer, 3)
        self.assertEqual(self.deliveries(consumer), [(1, 1), (2, 1)])

    def test_consumersTakeTurns(self) -> None:
        """Those with free prefetch."""
        first, second = self.consumer(1), self.consumer(1)
        self.enqueue("a", "b")
        self.assertEqual([self.deliveries(first), self.deliveries(second)], [[("a", 1)], [("b", 1)]])

    def test_aQueueMayHaveAnotherNameThanItsTopic(self) -> None:
        """The topic is its source if it is new."""
        consumer = self.consumer(10, "mails", "orders.paid")
        self.producer.publish("orders.paid", 1)
        self.producer.publish("orders", 2)
        [heard] = self.heard(consumer)
        self.assertEqual((heard.value, heard.header["topic"]), (1, "orders.paid"))
        self.assertEqual(heard.header["delivery"]["queue"], "mails")

    def test_unsubscribingReturnsDeliveriesAtOnce(self) -> None:
        """To the head, with their attempts counted."""
        self.enqueue("a", "b", "c")
        first = self.consumer(2)
        self.assertEqual(self.deliveries(first), [("a", 1), ("b", 1)])
        first.tell("UNSUB", {"topic": "jobs", "queue": True})
        self.assertEqual(first.barrier(), [])
        self.assertEqual(self.deliveries(self.consumer(3)), [("a", 2), ("b", 2), ("c", 1)])

    def test_unsubscribingWithoutASubscriptionIsIgnored(self) -> None:
        """Also of a queue that does not exist."""
        for queue in (True, "none"):
            self.producer.tell("UNSUB", {"topic": "jobs", "queue": queue})
        self.assertEqual(self.producer.barrier(), [])

    def test_theEndOfAConnectionReturnsDeliveriesAtOnce(self) -> None:
        """As UNSUB does."""
        self.enqueue("a")
        first = self.consumer()
        self.assertEqual(self.deliveries(first), [("a", 1)])
        first.leave()
        self.assertEqual(self.deliveries(self.consumer()), [("a", 2)])

    def test_aConsumerThatEndsItsInputReturnsDeliveriesAtOnce(self) -> None:
        """It cannot settle them any more, though it still reads."""
        self.enqueue("a")
        first = self.consumer()
        self.assertEqual(self.deliveries(first), [("a", 1)])
        first.endInput()
        self.assertEqual(self.deliveries(self.consumer()), [("a", 2)])

    def test_aPlainSubscriptionIsAnother(self) -> None:
        """A client may have both, and gets each message by both."""
        consumer = self.consumer(10)
        consumer.subscribe("jobs")
        self.enqueue("a")
        self.clock.advance(0)
        self.assertEqual(["delivery" in each.header for each in consumer.messages()].count(True), 1)
        consumer.tell("UNSUB", {"topic": "jobs"})
        self.enqueue("b")
        self.assertEqual(self.deliveries(consumer), [("b", 1)])

    def test_aDeliveryLastsAsLongAsItsConnection(self) -> None:
        """However long the work takes, as long as the client answers PINGs."""
        self.enqueue("a")
        first = self.consumer()
        [tag] = self.tags(first)
        other = self.consumer()
        for _ in range(100):
            self.clock.advance(20)
            first.barrier()
            other.barrier()
        self.settle(first, ack=[tag])
        first.leave()
        self.assertEqual([each for each in other.messages() if each.kind == "PUB"], [])

    def test_aSilentConsumerLosesItsDeliveries(self) -> None:
        """After three intervals without an answer its connection ends."""
        self.enqueue("a")
        first = self.consumer()
        self.assertEqual(self.deliveries(first), [("a", 1)])
        second = self.server.join()
        for _ in range(8):
            second.barrier()
            self.clock.advance(15)
        self.assertTrue(first.closed)
        first.leave()
        self.assertEqual(self.deliveries(self.consume(second)), [("a", 2)])


class SettleTests(QueueCase):
    """NOTIF and REQ to ``/queue/settle``."""

    def setUp(self) -> None:
        """Begin with a consumer of three deliveries."""
        super().setUp()
        self.enqueue("a", "b", "c")
        self.worker = self.consumer(3)
        self.first, self.second, self.third = self.tags(self.worker)

    def test_settlingIsSilent(self) -> None:
        """And acknowledged messages are gone."""
        self.settle(self.worker, ack=[self.first, self.second, self.third])
        self.assertEqual(self.worker.barrier(), [])
        self.worker.leave()
        self.assertEqual(self.deliveries(self.consumer(3)), [])

    def test_aRetryReturnsTheMessage(self) -> None:
        """At once or after milliseconds; nil: as the definition says."""
        self.settle(self.worker, retry=[[self.second, 0]], ack=[self.third])
        self.assertEqual(self.deliveries(self.worker), [("b", 2)])

    def test_aRejectedMessageIsADeadLetter(self) -> None:
        """In ``$dead/`` and the queue's name."""
        self.settle(self.worker, reject=[[self.first, "no such customer"]])
        self.assertEqual(self.worker.barrier(), [])
        letters = self.consumer(1, True, "$dead/jobs")
        self.assertEqual([each.value for each in self.heard(letters)], ["a"])

    def test_tagsOfOthersAreReported(self) -> None:
        """404 with the tags; the others are settled."""
        other = self.consumer(1)
        self.settle(other, ack=[self.first])
        [heard] = other.barrier()
        self.assertEqual((heard.status, heard.header["routing"][0]["path"]), (404, SETTLE))
        self.assertEqual((heard.value["queue"], heard.value["tags"]), ("jobs", [self.first]))
        self.settle(self.worker, ack=[self.first])
        self.assertEqual(self.worker.barrier(), [])

    def test_aRequestIsAnsweredWithTheTagsOfOthers(self) -> None:
        """``unknown``; settling twice is no error."""
        for expected in ([], [self.first]):
            heard = self.ask(self.worker, SETTLE, queue="jobs", ack=[self.first])
            self.assertEqual((heard.status, heard.value), (200, {"unknown": expected}))

    def test_aRepeatedHeaderIsReadOnce(self) -> None:
        """Later notifications are not checked again, and their errors are answered one by one."""
        self.settle(self.worker, ack=[self.first])
        self.patch(type(self.worker.protocol.session.reads), "_unknown", None)
        frames = b"".join(
            self.worker.variant.frame(
                "NOTIF", self.worker.id, TO_BROKER, msgpack.packb({"queue": "jobs", "ack": [tag]})
            )
            for tag in (self.second, self.first, self.third)
        )
        self.worker.say(frames)
        self.clock.advance(0)
        [heard] = self.worker.messages()
        self.assertEqual((heard.status, heard.value["tags"]), (404, [self.first]))

    def test_neighbouringSettlementsAreInOrder(self) -> None:
        """A tag is of one delivery: the message that is retried is not acknowledged with it. Unknown keys in a map are
        ignored.
        """
        self.enqueue("d")
        self.settle(self.worker, ack=[self.first])
        [fourth] = self.tags(self.worker)
        frame = self.worker.variant.frame
        lists: list[Any] = [{"retry": [[self.second, 0]]}, {"ack": [self.second]}, {"ack": [self.third], "x": 1}]
        lists += [{"ack": [fourth]}, {"ack": []}]
        payloads = [msgpack.packb({"queue": "jobs", **each}) for each in lists]
        self.worker.say(b"".join(frame("NOTIF", self.worker.id, TO_BROKER, payload) for payload in payloads))
        self.clock.advance(0)
        heard = self.worker.messages()
        [unknown] = [each.value["tags"] for each in heard if each.status == 404]
        [again] = [each.header["delivery"] for each in heard if "delivery" in each.header]
        self.assertEqual((unknown, again["attempt"]), ([self.second], 2))
        queue = self.server.broker.queues.get("jobs")
        assert queue is not None
        self.assertEqual((queue.depth, queue.inFlight), (0, 1))
        self.settle(self.worker, ack=[again["tag"]])
        self.assertEqual((self.worker.barrier(), queue.inFlight), ([], 0))

    def test_malformedSettlementsAreRefused(self) -> None:
        """400, and nothing is settled."""
        for key, wrong in (
            ("queue", {}),
            ("queue", ["jobs"]),
            ("queue", {"queue": 1}),
            ("queue", {"ack": [1]}),
            ("ack", {"queue": "jobs", "ack": [-1]}),
            ("ack", {"queue": "jobs", "ack": ["1"]}),
            ("retry", {"queue": "jobs", "retry": [[1]]}),
            ("extend", {"queue": "jobs", "extend": [[1, -1]]}),
            ("reject", {"queue": "jobs", "reject": [[1, "é" * 2049]]}),
            ("ack", {"queue": "jobs", "ack": [1] * 65_536}),
        ):
            self.worker.tell("NOTIF", TO_BROKER, wrong)
            [heard] = self.worker.barrier()
            self.assertEqual((heard.status, heard.header["routing"][0]["path"]), (400, SETTLE), wrong)
            self.assertTrue(heard.value.startswith(f"'{key}' of a settlement must be a"), heard.value)
        self.worker.send("NOTIF", TO_BROKER)
        self.assertEqual([each.status for each in self.worker.barrier()], [400])
        self.worker.tell("NOTIF", TO_BROKER, [])
        self.assertEqual([each.status for each in self.worker.barrier()], [400])

    def test_otherNotificationsToTheBrokerAreDropped(self) -> None:
        """As before; one may name the broker beside clients."""
        self.worker.tell("NOTIF", {"routing": [{"client_id": BROKER_ID, "path": "/x"}]}, 1)
        self.assertEqual(self.worker.barrier(), [])
        routing = [*TO_BROKER["routing"], {"client_id": self.producer.id, "path": "/x"}]
        self.worker.tell("NOTIF", {"routing": routing}, {"queue": "jobs", "ack": [self.first]})
        self.assertEqual(self.worker.barrier(), [])
        self.assertEqual([each.kind for each in self.producer.messages()], ["NOTIF"])


class ScheduledTests(QueueCase):
    """PUB with ``deliver_in`` or ``deliver_at``."""

    def setUp(self) -> None:
        """Begin at a late second, with a subscriber."""
        super().setUp()
        self.clock.advance(1000)
        self.producer, self.subscriber = self.server.join(), self.server.join()
        self.subscriber.subscribe("news")

    def test_aMessageIsPublishedAtItsTime(self) -> None:
        """To everybody, as if it arrived then: with ``schedule`` in place of the keys that asked for it."""
        self.producer.publish("news", "later", deliver_in=2500, colour="red")
        self.producer.publish("news", "latest", deliver_at=1_005_000)
        self.assertEqual(self.producer.barrier(), [])
        self.clock.advance(2.4)
        self.assertEqual(self.subscriber.barrier(), [])
        self.clock.advance(0.1)
        [heard] = self.subscriber.messages()
        schedule = {"id": heard.header["schedule"]["id"], "due": 1_002_500}
        self.assertEqual(heard.value, "later")
        self.assertEqual(heard.header, {"topic": "news", "colour": "red", "schedule": schedule})
        self.assertEqual(heard.sender, self.producer.id)
        self.clock.advance(2.5)
        self.assertEqual(self.subscriber.values(), ["latest"])

    def test_aMessageForWorkersWaitsForItsTime(self) -> None:
        """Then its topic gets a queue."""
        self.enqueue("a", deliver_in=1000)
        self.assertIsNone(self.server.broker.queues.get("jobs"))
        self.clock.advance(1)
        self.assertEqual(self.deliveries(self.consumer()), [("a", 1)])

    def test_thoseOfOneTimeHaveTheirOwnPriorities(self) -> None:
        """Though they are published together, each is in the lane of its own."""
        for value, priority in (("low", 3), ("usual", 4), ("high", 9)):
            self.enqueue(value, priority=priority, deliver_at=1_001_000)
        self.clock.advance(1)
        consumer = self.consumer(3)
        tags = {each.value: each.header["delivery"]["tag"] % 10 for each in self.heard(consumer)}
        self.assertEqual(tags, {"low": 3, "usual": 4, "high": 9})

    def test_aLimitRefusesThoseForWhichThereIsNoRoom(self) -> None:
        """429 for each of them, however many arrive together."""
        self.server = self.makeServer(limits=Limits(schedulesPerPrincipal=3))
        producer = self.server.join()
        one = frame("PUB", producer.id, {"topic": "news", "deliver_in": 1000}, b"\x01")
        producer.say(one + one * 4)
        self.assertEqual([each.status for each in producer.barrier()], [429, 429])
        self.assertEqual(len(self.server.broker.schedules), 3)

    def test_aRepeatedHeaderCountsFromItsArrival(self) -> None:
        """Though it was read before."""
        for number in range(4):
            if number < 2:
                self.producer.publish("news", 1, deliver_in=1000)
            self.assertEqual(self.subscriber.values(), [1] if number > 1 else [])
            self.clock.advance(0.5)

    def test_aTimeTooFarAheadIsRefused(self) -> None:
        """400 with the topic as path."""
        for _ in range(2):
            self.producer.publish("news", 1, deliver_at=(1 << 53) - 1)
            [heard] = self.producer.barrier()
            self.assertEqual((heard.status, heard.header["routing"][0]["path"]), (400, "news"))


class SlowConsumerTests(QueueCase):
    """A consumer that does not read."""

    def setUp(self) -> None:
        """Begin with messages of 100 KiB, and a consumer that may have all of them but reads none."""
        super().setUp()
        self.enqueue(*[bytes(100_000)] * 100)
        self.slow = self.server.join()
        self.slow.producer.pauseProducing()
        self.consume(self.slow, 1000)

    def outstanding(self) -> int:
        """Return how many deliveries are unsettled."""
        queue = self.server.broker.queues.get("jobs")
        assert queue is not None
        return queue.inFlight

    def test_itGetsNoMoreThanItsOutputMayHave(self) -> None:
        """About 1 MiB is unread, in whole batches; it is not disconnected."""
        for _ in range(20):
            self.clock.advance(0)
        first = self.outstanding()
        self.enqueue(*[bytes(100_000)] * 10)
        self.clock.advance(0)
        self.assertEqual(self.outstanding(), first)
        self.assertFalse(self.slow.closed)

    def test_othersGetTheRest(self) -> None:
        """Nobody waits for it."""
        before = self.outstanding()
        other = self.consumer(200)
        for _ in range(20):
            self.clock.advance(0)
        self.assertEqual(len(self.deliveries(other)), 100 - before)

    def test_itGetsMoreWhenItHasRead(self) -> None:
        """All of them at last."""
        read = []
        for _ in range(20):
            self.slow.producer.resumeProducing()
            self.clock.advance(0)
            read += self.slow.messages()
        self.assertEqual(len(read), 100)


class SlowConsumerOfManyQueuesTests(QueueCase):
    """A client that consumes five queues and does not read: each has 20 messages of 100 KiB."""

    names = tuple("abcde")

    def setUp(self) -> None:
        """Consume all queues, two of them when there are no messages yet."""
        super().setUp()
        self.slow = self.server.join()
        for name in self.names[:2]:
            self.consume(self.slow, 11, name, name)
        self.slow.producer.pauseProducing()
        for name in self.names:
            for _ in range(20):
                self.producer.publish(name, bytes(100_000), queue=True)
        for name in self.names[2:]:
            self.consume(self.slow, 11, name, name)

    def outstanding(self) -> list[int]:
        """Return how many deliveries of each queue are unsettled."""
        found = [self.server.broker.queues.get(name) for name in self.names]
        return [each.inFlight for each in found if each is not None]

    def test_itsQueuesShareTheBoundOfItsOutput(self) -> None:
        """About 1 MiB is unread, and not 1 MiB of each queue."""
        for _ in range(20):
            self.clock.advance(0)
        self.assertLess(sum(self.outstanding()), 25)
        self.assertFalse(self.slow.closed)

    def test_allQueuesHaveTheirTurn(self) -> None:
        """While it reads slowly, no queue waits until another one is empty."""
        seen: list[str] = []
        for _ in range(30):
            self.slow.producer.resumeProducing()
            heard = self.slow.messages()
            self.slow.producer.pauseProducing()
            for each in heard:
                delivery = each.header["delivery"]
                seen.append(delivery["queue"])
                self.settle(self.slow, delivery["queue"], ack=[delivery["tag"]])
        self.assertEqual({name: seen.count(name) for name in self.names}, dict.fromkeys(self.names, 20))
        self.assertEqual(set(seen[:60]), set(self.names))


class RightsTests(QueueCase):
    """What clients with few permissions may do."""

    def allow(self, peer: FlexiPeer, **grants: tuple[str, ...]) -> None:
        """Let a client do this, and nothing else any more."""
        self.server.broker.changeRights(self.server.client(peer), Rights(grants))

    def test_enqueueingNeedsPublish(self) -> None:
        """403, and after a change of rights too for a header that was known."""
        self.enqueue("a")
        self.allow(self.producer)
        self.enqueue("b")
        self.assertEqual([each.status for each in self.producer.barrier()], [403])
        self.assertEqual(self.deliveries(self.consumer(10)), [("a", 1)])

    def test_consumingNeedsConsumeForQueueAndTopic(self) -> None:
        """603, as for a SUB that may not subscribe."""
        for grants in ({}, {"subscribe": ("#",)}, {"consume": ("jobs",)}, {"consume": ("mails",)}):
            worker = self.server.join()
            self.allow(worker, **grants)
            self.consume(worker, 1, "mails", "jobs")
            self.assertEqual([each.status for each in worker.barrier()], [603], grants)
        worker = self.server.join()
        self.allow(worker, consume=("mails", "jobs"))
        self.consume(worker, 1, "mails", "jobs")
        self.assertEqual(worker.barrier(), [])

    def test_aLostRightEndsTheConsumption(self) -> None:
        """603 that names the queue; the deliveries return, and settling them is an error."""
        self.enqueue("a")
        worker = self.consumer()
        [tag] = self.tags(worker)
        self.allow(worker, consume=("other",))
        [heard] = worker.barrier()
        self.assertEqual((heard.status, heard.header["routing"][0]["path"]), (603, "jobs"))
        self.assertEqual((heard.value["queue"], heard.value.keys()), ("jobs", {"error", "queue"}))
        self.settle(worker, ack=[tag])
        self.assertEqual([each.status for each in worker.barrier()], [404])
        self.assertEqual(self.deliveries(self.consumer()), [("a", 2)])

    def test_settlingNeedsNoFurtherRight(self) -> None:
        """Neither ``notify`` nor ``read``."""
        self.enqueue("a", "b")
        worker = self.server.join()
        self.allow(worker, consume=("jobs",))
        self.consume(worker, 2)
        first, second = self.tags(worker)
        self.settle(worker, ack=[first])
        self.assertEqual(worker.barrier(), [])
        self.assertEqual(self.ask(worker, SETTLE, queue="jobs", ack=[second]).value, {"unknown": []})

    def test_pathsNeedTheirRights(self) -> None:
        """``consume`` to define, that or ``publish`` to cancel, ``admin`` to replace and to pause, ``read`` to list."""
        self.enqueue("a")
        worker = self.server.join()
        for grants, path, more, status in (
            ({}, "/queue/cancel", {"message_id": "m"}, 403),
            ({"consume": ("jobs",)}, "/queue/cancel", {"message_id": "m"}, 200),
            ({"publish": ("jobs",)}, "/queue/cancel", {"message_id": "m"}, 200),
            ({}, "/queue/define", {}, 403),
            ({"consume": ("jobs",)}, "/queue/define", {"paused": True}, 403),
            ({"consume": ("jobs",)}, "/queue/define", {}, 200),
            ({"consume": ("jobs",)}, "/queue/define", {"sources": ["a"]}, 403),
            ({"consume": ("jobs",)}, "/queue/define", {"lease": 5, "replace": True}, 403),
            ({"consume": ("jobs",), "admin": ("/queue/define",)}, "/queue/define", {"lease": 5, "replace": True}, 200),
            ({"consume": ("jobs",)}, "/queue/pause", {}, 403),
            ({"admin": ("/queue/pause",)}, "/queue/pause", {}, 200),
        ):
            self.allow(worker, **grants)
            self.assertEqual(self.ask(worker, path, queue="jobs", **more).status, status, (grants, path, more))
        for grants, status in (({}, 403), ({"read": ("/queue/list",)}, 200)):
            self.allow(worker, **grants)
            self.assertEqual(self.ask(worker, "/queue/list").status, status)


class DurableTests(QueueCase):
    """A broker with a journal: PING is the barrier."""

    def setUp(self) -> None:
        """Begin with a journal whose writer works when it is told to."""
        super().setUp()
        disk = Recorder()
        disk.makeFolder("/disk")
        self.journal = JournalAtOnce(disk)
        self.server = self.makeServer(journal=self.journal)
        self.journal.open(self.server.broker.checkpointer)
        self.journal.begin()
        self.producer = self.server.join()

    def write(self) -> None:
        """Let the journal write, and the reactor turn."""
        self.journal.worker.drain()
        self.clock.advance(0)

    def kinds(self, peer: FlexiPeer) -> list[str]:
        """Return the kinds of messages that a peer heard."""
        self.clock.advance(0)
        return [each.kind for each in peer.messages()]

    def test_aPongConfirmsThatMessagesAreOnDisk(self) -> None:
        """It waits for the commit, and consumers get them after it."""
        consumer = self.consumer(10)
        self.write()
        self.enqueue("a", "b")
        self.producer.ping()
        self.assertEqual((self.kinds(self.producer), self.kinds(consumer)), ([], []))
        self.write()
        self.assertEqual((self.kinds(self.producer), self.deliveries(consumer)), (["PONG"], [("a", 1), ("b", 1)]))

    def test_aPongConfirmsThatSettlementsAreOnDisk(self) -> None:
        """A PING after a settlement is answered after its commit, the next one at once."""
        self.enqueue("a")
        self.write()
        worker = self.consumer()
        self.write()
        [tag] = self.tags(worker)
        self.settle(worker, ack=[tag])
        worker.ping()
        self.assertEqual(self.kinds(worker), [])
        self.write()
        self.assertEqual(self.kinds(worker), ["PONG"])
        worker.ping()
        self.assertEqual(self.kinds(worker), ["PONG"])

    def test_aRequestIsAnsweredWhenSettlementsAreOnDisk(self) -> None:
        """As a PING is."""
        self.enqueue("a")
        self.write()
        worker = self.consumer()
        self.write()
        worker.request(BROKER_ID, SETTLE, "r", {"queue": "jobs", "ack": self.tags(worker)})
        self.assertEqual(self.kinds(worker), [])
        self.write()
        self.assertEqual([each.value for each in worker.messages()], [{"unknown": []}])


class NotStoredTests(QueueCase):
    """A journal that has become read-only."""

    def test_settlementsThatAreNotOnDiskAreReportedBeforeThePong(self) -> None:
        """503 with the path; they are in effect, and will be stored."""
        journal = SlowJournal()
        self.server = self.makeServer(journal=journal)
        self.producer = self.server.join()
        self.enqueue("a")
        journal.commit()
        worker = self.consumer()
        journal.commit()
        tags = self.tags(worker)
        journal.readOnly = "no space left on device"
        self.settle(worker, ack=tags)
        worker.ping()
        journal.commit()
        self.clock.advance(0)
        error, pong = worker.messages()
        self.assertEqual((error.status, error.header["routing"][0]["path"], pong.kind), (503, SETTLE, "PONG"))
        self.assertIn("no space left on device", error.value)


class StopTests(QueueCase):
    """The broker stops."""

    def test_deliveriesOfDismissedConsumersReturn(self) -> None:
        """At once, while their connections still end."""
        self.enqueue("a", "b")
        worker = self.consumer(2)
        self.assertEqual(len(self.tags(worker)), 2)
        worker.protocol.session.dismiss()
        queue = self.server.broker.queues.get("jobs")
        assert queue is not None
        self.assertEqual((queue.depth, queue.inFlight), (2, 0))
        self.assertEqual(self.deliveries(worker), [])


class VariantTests(QueueCase):
    """Clients with other layouts and with headers by position."""

    def test_allVariantsConsumeAndSettle(self) -> None:
        """Each reads a delivery in its own layout; the keys of queues need a map as header."""
        for variant in VARIANTS:
            if variant.positional:
                continue
            peer = self.server.connect()
            peer.variant = variant
            worker = self.consume(peer.join({}), 1)
            self.enqueue(str(variant))
            [heard] = self.heard(worker)
            self.assertEqual((heard.value, heard.header["delivery"]["queue"]), (str(variant), "jobs"))
            self.settle(worker, ack=[heard.header["delivery"]["tag"]])
            self.assertEqual(worker.barrier(), [])
            worker.leave()


class WebSocketTests(FlexiWebSocketCase):
    """The same over a WebSocket."""

    def test_aClientOnAWebSocketEnqueuesConsumesAndSettles(self) -> None:
        """In any messages."""
        peer = FlexiWebSocketPeer(self.factory)
        peer.upgrade()
        peer.join()
        peer.tell("PUB", {"topic": "jobs", "queue": True}, b"\x01")
        peer.tell("SUB", {"topic": "jobs", "queue": True})
        self.clock.advance(0)
        [heard] = peer.messages()
        tag = heard.header["delivery"]["tag"]
        peer.tell("NOTIF", TO_BROKER, msgpack.packb({"queue": "jobs", "ack": [tag]}))
        self.clock.advance(0)
        self.assertEqual(peer.messages(), [])
        queue = self.context.broker.queues.get("jobs")
        assert queue is not None
        self.assertEqual((queue.depth, queue.inFlight), (0, 0))


globals().update(inPieces(ConsumerTests))


class LongJobTests(QueueCase):
    """Deliveries of jobs that take long, and of workers that are cut off."""

    def live(self, seconds: int, *answering: FlexiPeer) -> list[Heard]:
        """Let time pass in steps of 5 s, while these peers answer PINGs; return their other messages."""
        others: list[Heard] = []
        for _ in range(0, seconds, 5):
            self.clock.advance(5)
            for peer in answering:
                for heard in peer.messages():
                    if heard.kind == "PING":
                        peer.tell("PONG", {"keepalive": {"timestamp": heard.header["keepalive"]["timestamp"]}})
                    else:
                        others.append(heard)
        return others

    def test_aJobOfTwoHoursRunsOnce(self) -> None:
        """With default settings: the delivery is its worker's while that answers PINGs."""
        worker, other = self.consumer(), self.consumer()
        self.enqueue("long")
        [tag] = self.tags(worker)
        self.assertEqual(self.live(7200, worker, other, self.producer), [])
        self.settle(worker, ack=[tag])
        self.assertEqual(self.live(600, worker, other, self.producer), [])
        self.assertEqual(self.server.broker.queues.get("jobs").depth, 0)  # type: ignore[union-attr]

    def test_theJobOfAWorkerThatWasCutOffIsGivenOnWithinThreeKeepAlives(self) -> None:
        """Its machine sends nothing any more, and no end of the connection either."""
        worker, other = self.consumer(), self.consumer()
        self.enqueue("job")
        self.assertEqual(self.deliveries(worker), [("job", 1)])
        self.assertEqual(self.live(85, other, self.producer), [])
        [again] = self.live(10, other, self.producer)
        self.assertEqual((again.value, again.header["delivery"]["attempt"]), ("job", 2))
        self.assertTrue(worker.closed)
