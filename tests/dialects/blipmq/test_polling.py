"""BlipMQ conversations: PUBLISH, SUBSCRIBE, POLL and ACK."""

from typing import Any

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.queues.bounds import DROPPED
from fleximq.dialects.blipmq.messages import SOURCES
from fleximq.limits import BLIP_FRAME_BYTES, Limits
from fleximq.values.message import Content, Message
from fleximq.wire.blipmq_frame import FrameType, encodeFrame
from tests.dialects.blipmq.case import UNKNOWN, BlipCase, ack, nack, poll, publish

REFUSED = "durable publish failed: queue is full"


class DeliveryTests(BlipCase):
    """From PUBLISH to POLL."""

    def test_silence(self) -> None:
        """A PUBLISH that succeeds is not answered."""
        self.assertEqual(self.login().ask(publish("t", b"x", 0) + publish("t", b"x", 1)), b"")

    def test_pollDelivers(self) -> None:
        """A POLL is answered by a PUBLISH with the tag as its correlation id."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        self.assertEqual(peer.ask(publish("t", b"m1")), b"")
        self.assertEqual(peer.ask(poll(id)), publish("t", b"m1", 1, correlation=1))

    def test_empty(self) -> None:
        """A POLL that finds nothing is not answered."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        self.assertEqual(peer.ask(poll(id)), b"")

    def test_quality0(self) -> None:
        """A QoS0 delivery echoes the POLL's correlation id."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        self.assertEqual(peer.ask(publish("t", b"m0", 0) + poll(id, 66)), publish("t", b"m0", 0, correlation=66))

    def test_lowerQuality(self) -> None:
        """The delivered QoS is the lower of the two."""
        peer = self.login()
        id = self.subscribed(peer, "t", qos=0)
        self.assertEqual(peer.ask(publish("t", b"q", 1) + poll(id, 67)), publish("t", b"q", 0, correlation=67))

    def test_twoSubscriptions(self) -> None:
        """Subscribing twice gives two ids and two copies."""
        peer = self.login()
        one, two = self.subscribed(peer, "t"), self.subscribed(peer, "t")
        self.assertNotEqual(one, two)
        copy = publish("t", b"x", 1, correlation=1)
        self.assertEqual(peer.ask(publish("t", b"x") + poll(one) + poll(two)), copy + copy)

    def test_notKept(self) -> None:
        """A message to a topic without a subscription is not kept for a later one."""
        peer = self.login()
        peer.say(publish("t", b"x"))
        id = self.subscribed(peer, "t")
        self.assertEqual(peer.ask(poll(id)), b"")

    def test_pipelined(self) -> None:
        """The k-th of pipelined POLLs gets the k-th message, in the order of publication."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        peer.say(b"".join(publish("t", b"%d" % n) for n in range(100)))
        answers = peer.ask(b"".join(poll(id, 500 + n) for n in range(100)))
        self.assertEqual(answers, b"".join(publish("t", b"%d" % n, 1, n + 1) for n in range(100)))

    def test_pipelinedQuality0(self) -> None:
        """Without tags, the k-th delivery has the correlation id of the k-th POLL; POLLs in vain get nothing."""
        peer = self.login()
        id = self.subscribed(peer, "t", qos=0)
        peer.say(publish("t", b"a") + publish("t", b"b", 0))
        answers = peer.ask(poll(id, 7) + poll(id, 8) + poll(id, 9))
        self.assertEqual(answers, publish("t", b"a", 0, 7) + publish("t", b"b", 0, 8))

    def test_mixed(self) -> None:
        """Both kinds come in their common order, each with its own correlation id."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        peer.say(publish("t", b"a", 1) + publish("t", b"b", 0) + publish("t", b"c", 0) + publish("t", b"d", 1))
        answers = peer.ask(b"".join(poll(id, n) for n in (11, 12, 13, 14)))
        wanted = publish("t", b"a", 1, 1) + publish("t", b"b", 0, 12) + publish("t", b"c", 0, 13)
        self.assertEqual(answers, wanted + publish("t", b"d", 1, 2))

    def test_topics(self) -> None:
        """Neighbours with other topics and QoS keep to themselves."""
        peer = self.login()
        a, b = self.subscribed(peer, "a"), self.subscribed(peer, "b")
        peer.say(publish("a", b"1") + publish("b", b"2") + publish("a", b"3", 0) + publish("b", b"4", 0))
        answers = peer.ask(poll(a, 10) + poll(b, 11) + poll(a, 12) + poll(b, 13))
        wanted = publish("a", b"1", 1, 1) + publish("b", b"2", 1, 1)
        self.assertEqual(answers, wanted + publish("a", b"3", 0, 12) + publish("b", b"4", 0, 13))

    def test_empties(self) -> None:
        """Empty messages are messages."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        self.assertEqual(peer.ask(publish("t", b"") + poll(id)), publish("t", b"", 1, 1))

    def test_literal(self) -> None:
        """A name with a star in it is a name like any other."""
        peer = self.login()
        id = self.subscribed(peer, "a.*")
        peer.say(publish("a.b", b"other") + publish("a.*", b"x"))
        self.assertEqual(peer.ask(poll(id) + poll(id)), publish("a.*", b"x", 1, 1))


class RefusedTests(BlipCase):
    """POLLs and ACKs that mean nothing."""

    def test_pollPayload(self) -> None:
        """A POLL names one subscription in exactly eight bytes, and it is not 0."""
        peer = self.login()
        for payload in (b"", bytes(7), bytes(9)):
            answer = peer.ask(encodeFrame(FrameType.POLL, 24, payload))
            self.assertEqual(answer, nack(24, 400, "invalid POLL payload"))
        self.assertEqual(peer.ask(poll(0, 24)), nack(24, 400, "subscription_id must be non-zero"))

    def test_ackPayload(self) -> None:
        """The same for an ACK."""
        peer = self.login()
        for payload in (b"", bytes(7), bytes(9)):
            answer = peer.ask(encodeFrame(FrameType.ACK, 25, payload))
            self.assertEqual(answer, nack(25, 400, "invalid ACK payload"))
        self.assertEqual(peer.ask(ack(25, 0)), nack(25, 400, "subscription_id must be non-zero"))

    def test_unknown(self) -> None:
        """An unknown subscription gets one 404 for each POLL and ACK."""
        peer = self.login()
        answers = b"".join(nack(n, 404, UNKNOWN) for n in (7, 8, 9, 10))
        self.assertEqual(peer.ask(poll(1 << 60, 7) + poll(1 << 60, 8) + ack(9, 1 << 60) + ack(10, 1 << 60)), answers)

    def test_otherKey(self) -> None:
        """To another key a subscription does not exist."""
        peer, other = self.login("one"), self.login("two")
        id = self.subscribed(peer, "t")
        peer.ask(publish("t", b"x") + poll(id))
        self.assertEqual(other.ask(poll(id, 7) + ack(1, id)), nack(7, 404, UNKNOWN) + nack(1, 404, UNKNOWN))


class AckTests(BlipCase):
    """What is delivered and acknowledged, or not."""

    def setUp(self) -> None:
        """Let three messages wait."""
        super().setUp()
        self.peer = self.login()
        self.subscription = self.subscribed(self.peer, "t")
        self.peer.say(publish("t", b"1") + publish("t", b"2") + publish("t", b"3"))

    def test_silence(self) -> None:
        """An ACK of what was delivered is not answered."""
        self.peer.ask(poll(self.subscription))
        self.assertEqual(self.peer.ask(ack(1, self.subscription)), b"")

    def test_again(self) -> None:
        """The same ACK again gets 404, under the tag."""
        self.peer.ask(poll(self.subscription) + ack(1, self.subscription))
        self.assertEqual(self.peer.ask(ack(1, self.subscription)), nack(1, 404, UNKNOWN))

    def test_someUnknown(self) -> None:
        """In a run of ACKs only the unknown tags are answered."""
        self.peer.ask(poll(self.subscription) + poll(self.subscription))
        said = b"".join(ack(tag, self.subscription) for tag in (1, 77, 2, 78))
        self.assertEqual(self.peer.ask(said), nack(77, 404, UNKNOWN) + nack(78, 404, UNKNOWN))

    def test_undelivered(self) -> None:
        """A tag that was not handed out yet is unknown."""
        self.assertEqual(self.peer.ask(ack(1, self.subscription)), nack(1, 404, UNKNOWN))

    def test_redelivery(self) -> None:
        """What is not acknowledged comes again after the time, in order, with its tag."""
        first = self.peer.ask(poll(self.subscription) + poll(self.subscription))
        self.clock.advance(30)
        wanted = first + publish("t", b"3", 1, 3)
        self.assertEqual(self.peer.ask(poll(self.subscription) * 3), wanted)

    def test_hidden(self) -> None:
        """Before that it is hidden."""
        self.peer.ask(poll(self.subscription) * 3)
        self.clock.advance(29)
        self.assertEqual(self.peer.ask(poll(self.subscription)), b"")

    def test_lateAck(self) -> None:
        """An ACK that comes after the time is accepted."""
        self.peer.ask(poll(self.subscription))
        self.clock.advance(31)
        self.assertEqual(self.peer.ask(ack(1, self.subscription)), b"")
        self.assertEqual(self.peer.ask(poll(self.subscription)), publish("t", b"2", 1, 2))

    def test_lostConnection(self) -> None:
        """What was in flight over a lost connection is at the head at once, for another connection with the key."""
        delivered = self.peer.ask(poll(self.subscription) + poll(self.subscription))
        other = self.login()
        self.assertEqual(other.ask(poll(self.subscription)), publish("t", b"3", 1, 3))
        self.peer.leave()
        self.assertEqual(other.ask(poll(self.subscription) + poll(self.subscription)), delivered)

    def test_otherConnection(self) -> None:
        """Another connection with the key may acknowledge."""
        self.peer.ask(poll(self.subscription))
        self.assertEqual(self.login().ask(ack(1, self.subscription)), b"")
        self.assertEqual(self.peer.ask(ack(1, self.subscription)), nack(1, 404, UNKNOWN))

    def test_grace(self) -> None:
        """A subscription outlives its last connection by the grace time."""
        self.peer.leave()
        self.clock.advance(59)
        self.assertEqual(self.login().ask(poll(self.subscription)), publish("t", b"1", 1, 1))

    def test_expired(self) -> None:
        """And not by more."""
        self.peer.leave()
        self.clock.advance(60)
        self.assertEqual(self.login().ask(poll(self.subscription, 5)), nack(5, 404, UNKNOWN))

    def test_deadLetter(self) -> None:
        """After the last delivery a message moves to the dead-letter topic."""
        self.listen(maxDeliveries=2)
        peer = self.login()
        id = self.subscribed(peer, "t")
        peer.say(publish("t", b"x"))
        for _ in range(2):
            self.assertEqual(peer.ask(poll(id)), publish("t", b"x", 1, 1))
            self.clock.advance(30)
        self.assertEqual(peer.ask(poll(id)), b"")
        delivery = self.context.broker.consume(peer.protocol.session.client, "$dead/t")
        self.assertEqual(delivery and delivery.message.payload, b"x")


class FullTests(BlipCase):
    """Subscriptions that are full."""

    def setUp(self) -> None:
        """Allow two messages."""
        super().setUp()
        self.listen(limits=Limits(queueMessages=2))
        self.peer = self.login()
        self.subscription = self.subscribed(self.peer, "t")

    def test_refused(self) -> None:
        """A QoS1 message that does not fit is refused under its own correlation id; those before it are kept."""
        said = b"".join(publish("t", b"%d" % n, 1, correlation=10 + n) for n in range(4))
        self.assertEqual(self.peer.ask(said), nack(12, 500, REFUSED) + nack(13, 500, REFUSED))
        self.assertEqual(
            self.peer.ask(poll(self.subscription) + poll(self.subscription)),
            publish("t", b"0", 1, 1) + publish("t", b"1", 1, 2),
        )

    def test_somebodyElse(self) -> None:
        """It is refused for all subscriptions, so that nobody gets what the publisher will send again."""
        self.peer.say(publish("t", b"1") + publish("t", b"2"))
        second = self.subscribed(self.peer, "t")
        self.assertEqual(self.peer.ask(publish("t", b"3", 1, 9)), nack(9, 500, REFUSED))
        self.assertEqual(self.peer.ask(poll(second)), b"")

    def test_roomAgain(self) -> None:
        """The publisher may empty the subscription itself."""
        self.peer.say(publish("t", b"1") + publish("t", b"2"))
        self.peer.ask(poll(self.subscription) + ack(1, self.subscription))
        self.assertEqual(self.peer.ask(publish("t", b"3", 1, 9)), b"")

    def test_quality0(self) -> None:
        """A QoS0 message drops the oldest of its kind, and nobody is told."""
        said = b"".join(publish("t", b"%d" % n, 0) for n in range(4))
        self.assertEqual(self.peer.ask(said), b"")
        answers = self.peer.ask(poll(self.subscription, 5) + poll(self.subscription, 6) + poll(self.subscription, 7))
        self.assertEqual(answers, publish("t", b"2", 0, 5) + publish("t", b"3", 0, 6))


class OtherDialectsTests(BlipCase):
    """Publications of other dialects."""

    def deliver(self, message: Message) -> bytes:
        """Publish a message as somebody else and return what a POLL is answered."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        broker = self.context.broker
        client = broker.join("other")
        broker.publish(Envelope(broker.topicFor(client, "t"), client, MessageSource()), [message], 1)
        return peer.ask(poll(id))

    def test_text(self) -> None:
        """Text arrives as its UTF-8, with QoS1."""
        self.assertEqual(self.deliver(Message("é".encode(), Content.TEXT)), publish("t", "é".encode(), 1, 1))

    def test_string(self) -> None:
        """A MessagePack string arrives as its bytes."""
        self.assertEqual(self.deliver(Message(b"\xa2hi", Content.MESSAGEPACK)), publish("t", b"hi", 1, 1))

    def test_value(self) -> None:
        """Any other MessagePack value arrives as it is."""
        self.assertEqual(self.deliver(Message(b"\x93\1\2\3", Content.MESSAGEPACK)), publish("t", b"\x93\1\2\3", 1, 1))


class EnvelopeTests(BlipCase):
    """What is remembered between publications."""

    def test_remembered(self) -> None:
        """A topic is looked up once for each QoS, not for each message."""
        peer = self.login()
        asked: list[str] = []
        broker = self.context.broker
        find = broker.topicFor

        def topicFor(client: ConnectedClient, name: str) -> Any:
            asked.append(name)
            return find(client, name)

        self.patch(broker, "topicFor", topicFor)
        for _ in range(3):
            peer.say(publish("t", b"x", 0) + publish("t", b"x", 1))
        self.assertEqual(asked, ["t", "t"])

    def test_run(self) -> None:
        """Neighbours are published together."""
        peer = self.login()
        counts: list[int] = []
        self.patch(self.context.broker, "publish", lambda envelope, body, count, kept: counts.append(count))
        peer.say(publish("t", b"x") * 5 + publish("u", b"x") * 2)
        self.assertEqual(counts, [5, 2])

    def test_durable(self) -> None:
        """QoS1 is durable, QoS0 is not."""
        peer = self.login()
        seen: list[tuple[int, bool]] = []
        note = lambda envelope, body, count, kept: seen.append((envelope.qos, envelope.durable))  # noqa: E731
        self.patch(self.context.broker, "publish", note)
        peer.say(publish("t", b"x", 0) + publish("t", b"x", 1))
        self.assertEqual(seen, [(0, False), (1, True)])

    def test_forgottenTopic(self) -> None:
        """A topic that left the table meanwhile is found again, and remembered again."""
        self.listen(limits=Limits(topics=4))
        peer = self.login()
        peer.say(publish("t", b"x") + b"".join(publish(f"other{n}", b"x") for n in range(8)))
        self.assertIsNone(self.context.broker.topics.find("t"))
        id = self.subscribed(peer, "t")
        self.assertEqual(peer.ask(publish("t", b"y") + poll(id)), publish("t", b"y", 1, 1))
        asked: list[str] = []
        self.patch(self.context.broker, "topicFor", lambda client, name: asked.append(name))
        peer.say(publish("t", b"z"))
        self.assertEqual(asked, [])

    def test_refusedIsNotRemembered(self) -> None:
        """What may not be published to is refused every time."""
        peer = self.login()
        for _ in range(2):
            self.assertEqual(peer.ask(publish("$sys/x", b"x", 0, 5)), nack(5, 401, "not permitted"))


class TooLargeTests(BlipCase):
    """What another dialect published may have no room in a frame."""

    def setUp(self) -> None:
        """Let somebody publish one message that just fits, and one with a byte more, between small ones."""
        super().setUp()
        self.peer = self.login()
        self.fits, self.over = (bytes(BLIP_FRAME_BYTES - 9 - 3 - 1 + more) for more in (0, 1))

    def publishAll(self) -> None:
        """Publish them as another dialect does, which knows larger messages."""
        broker, client = self.context.broker, self.peer.protocol.session.client
        for payload in (b"a", self.over, self.fits, self.over, b"b"):
            envelope = Envelope(broker.topicFor(client, "t"), client, SOURCES[1])
            broker.publish(envelope, [payload], 1)

    def test_tracked(self) -> None:
        """It is a dead letter at once, and the POLLs go to what comes behind it."""
        id = self.subscribed(self.peer, "t")
        self.publishAll()
        wanted = publish("t", b"a", 1, 1) + publish("t", self.fits, 1, 3) + publish("t", b"b", 1, 5)
        self.assertTrue(self.peer.ask(b"".join(poll(id, n) for n in range(4))) == wanted)
        self.assertEqual(self.peer.ask(b"".join(ack(tag, id) for tag in (1, 3, 5))), b"")
        client = self.peer.protocol.session.client
        for _ in range(2):
            delivery = self.context.broker.consume(client, "$dead/t")
            assert delivery is not None
            self.assertTrue(delivery.message.payload == self.over)
        self.assertIsNone(self.context.broker.consume(client, "$dead/t"))
        subscription = self.context.broker.polledSubscriptions.find(id, self.peer.protocol.session._owner)
        self.assertEqual((subscription.depth, subscription.inFlight, subscription.size), (0, 0, 0))

    def test_untracked(self) -> None:
        """For a subscription of QoS0 it is dropped and counted."""
        id = self.subscribed(self.peer, "t", qos=0)
        self.publishAll()
        wanted = publish("t", b"a", 0, 0) + publish("t", self.fits, 0, 1) + publish("t", b"b", 0, 2)
        self.assertTrue(self.peer.ask(b"".join(poll(id, n) for n in range(4))) == wanted)
        self.assertEqual(self.context.broker.counts.events[DROPPED], 2)
        self.assertIsNone(self.context.broker.consume(self.peer.protocol.session.client, "$dead/t"))
