"""BlipMQ clients in every form: what MiniMQ does not have. See also :mod:`tests.client.queues.test_both`."""

import time
from pathlib import Path
from typing import Any

from fleximq.cli.credential_files import setSecret
from fleximq.client.errors import BufferFull, ConnectionLost, JoinRefused, Nacked, SubscribeFailed
from fleximq.client.settings import State
from tests.broker_process import BrokerProcess
from tests.client.cases import SOON, inEveryForm
from tests.client.queues.cases import LATER, BlipCase


def payloads(subscription: Any, count: int) -> list[bytes]:
    """Return what the next deliveries hold."""
    got = [subscription.next(SOON) for _ in range(count)]
    return [each and each.payload for each in got]


class Conversations(BlipCase):
    """What is said between a client and a broker that is there."""

    def test_deliveryHasTopicQosTagAndSubscription(self) -> None:
        """What is published comes, in order, with topic, QoS and tag."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        self.assertEqual(one.publish(self.topic, b"a"), 1)
        self.assertEqual(one.publish_many(self.topic, [b"b", "ü", b""]), range(2, 5))
        got = [subscription.next(SOON) for _ in range(4)]
        self.assertEqual([each.payload for each in got], [b"a", b"b", "ü".encode(), b""])
        self.assertEqual([each.tag for each in got], [1, 2, 3, 4])
        self.assertEqual(
            {(each.topic, each.qos, each.subscription) for each in got}, {(self.topic, 1, subscription.id)}
        )
        self.assertEqual(got[2].text, "ü")

    def test_twoSubscriptionsHaveACopyEach(self) -> None:
        """Two subscriptions of one client to one topic have a copy each, and are polled side by side."""
        one = self.direct()
        both = [one.subscribe(self.topic, prefetch=3) for _ in range(2)]
        one.publish_many(self.topic, [b"a", b"b", b"c", b"d"])
        for _ in range(2):
            for each in both:
                self.assertEqual(len(payloads(each, 2)), 2)
        self.assertNotEqual(both[0].id, both[1].id)
        self.assertEqual([each.next(0) for each in both], [None, None])

    def test_messageRepeatedDuringTheBodyIsGivenOnce(self) -> None:
        """What comes again while the body is at work on it is not given twice."""
        one = self.direct()
        subscription = one.subscribe(self.topic, prefetch=2)
        one.publish_many(self.topic, [b"a", b"b"])
        got = payloads(subscription, 1)
        time.sleep(LATER)  # longer than the broker waits for an ACK
        one.publish(self.topic, b"c")
        got += payloads(subscription, 2)
        self.assertEqual((got, subscription.next(0)), ([b"a", b"b", b"c"], None))

    def test_qos0NeedsNoAcknowledgement(self) -> None:
        """QoS 0: nothing to acknowledge."""
        one = self.direct()
        subscription = one.subscribe(self.topic, qos=0)
        one.publish(self.topic, b"a", qos=0)
        delivery = subscription.next(SOON)
        self.assertEqual((delivery.payload, delivery.qos, delivery.tag), (b"a", 0, 0))
        one.ack(delivery)
        one.flush()

    def test_flushRaisesNacksWithTopicAndNumberOnce(self) -> None:
        """The flush tells what was refused: code, reason, topic and number; then it is told."""
        one = self.direct()
        one.publish("$sys/x", b"1")
        one.publish_many(self.topic, [b"2", b"3"])
        one.publish("$sys/y", b"4")
        error = self.assertRaises(Nacked, one.flush)
        self.assertEqual((error.code, error.topic, error.number, error.count), (401, "$sys/x", 1, 2))
        self.assertEqual([(each.topic, each.number) for each in error.others], [("$sys/y", 4)])
        self.assertTrue(error.reason)
        one.flush()

    def test_flushRaisesTheNackOfAnAck(self) -> None:
        """So does it for an ACK of what is not there."""
        one = self.direct()
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, b"a")
        delivery = subscription.next(SOON)
        self.direct().ack(delivery._replace(subscription=subscription.id, tag=99))
        other = self.direct()
        other.ack(delivery._replace(tag=99))
        error = self.assertRaises(Nacked, other.flush)
        self.assertEqual((error.code, error.number, error.tag), (404, None, 99))

    def test_closeRaisesNacks(self) -> None:
        """AsyncClosedOnExit tells it, too."""
        one = self.direct()
        one.publish("$sys/x", b"1")
        self.assertRaises(Nacked, one.close)
        self.assertIs(one.state, State.CLOSED)
        one.close()

    def test_refusedAndUnknownSubscriptionsFail(self) -> None:
        """A subscription that is refused, and one that is not known."""
        one = self.direct()
        self.assertEqual(self.assertRaises(SubscribeFailed, one.subscribe, "").status, 400)
        self.assertEqual(self.assertRaises(SubscribeFailed, one.resume(1 << 40).next, SOON).status, 404)

    def test_wrongArgumentsAreRefusedBeforeSending(self) -> None:
        """What makes no sense is refused before anything is sent."""
        one = self.direct()
        self.assertRaises(ValueError, one.publish, self.topic, b"", 2)
        self.assertRaises(ValueError, one.publish, "x" * 70_000, b"")
        self.assertRaises(ValueError, one.publish, self.topic, bytes(16 << 20))
        for payload in 5, None, ["a"]:
            self.assertRaises(TypeError, one.publish, self.topic, payload)
        subscription = one.subscribe(self.topic)
        self.assertRaises(ValueError, one.resume, subscription.id)

    def test_wrongKeyIsRefusedAndAnotherKeyDoesNotResume(self) -> None:
        """The key is shown, and a wrong one is refused; another key does not get at a subscription."""
        keys = str(Path(self.mktemp()).absolute())
        for name in ("one", "two"):
            setSecret(keys, name, f"{name}-has-a-key-that-is-long-enough")
        with BrokerProcess("--auth", f"apikeys:{keys}") as broker:
            url = f"tcp://127.0.0.1:{broker.port()}"
            error = self.assertRaises(JoinRefused, self.form.connect, url, key="wrong")
            self.assertEqual(error.status, 401)
            one, two = (self.connectedTo(url, key=f"{name}-has-a-key-that-is-long-enough") for name in ("one", "two"))
            subscription = one.subscribe(self.topic)
            two.publish(self.topic, b"a")
            two.flush()
            self.assertEqual(self.assertRaises(SubscribeFailed, two.resume(subscription.id).next, SOON).status, 404)
            self.assertEqual(payloads(subscription, 1), [b"a"])


class Networks(BlipCase):
    """A network that fails, and a broker that is killed."""

    def test_ackWithoutAConnectionIsSentOnTheNext(self) -> None:
        """What the body finished while there was no connection is acknowledged by the next one."""
        one = self.connected()
        subscription = one.subscribe(self.topic)
        one.publish(self.topic, b"a")
        delivery = subscription.next(SOON)
        one.flush()
        self.away(one)
        one.ack(delivery)
        self.network.isDown = False
        one.flush()
        time.sleep(LATER)
        self.assertIsNone(subscription.next(0))

    def test_publicationsAreBufferedWhileAway(self) -> None:
        """What is published while the broker is away arrives later, in order; more than fits is refused."""
        one, subscription = self.connected(buffer=20_000), self.direct().subscribe(self.topic)
        self.away(one)
        published = 0

        def fill() -> None:
            nonlocal published
            while True:
                one.publish(self.topic, b"%d" % published)
                published += 1

        self.assertRaises(BufferFull, fill)
        self.assertGreater(published, 100)
        self.assertRaises(TimeoutError, one.flush, 0.05)
        self.assertIsNone(subscription.next(0))
        self.network.isDown = False
        one.flush()
        self.assertEqual(payloads(subscription, published), [b"%d" % n for n in range(published)])

    def test_unflushedPublicationsAreToldAsLostOnce(self) -> None:
        """What was sent before a cut and not flushed is told as uncertain, once."""
        one = self.connected()
        one.publish(self.topic, b"1")
        one.ping()
        self.cut(one)
        self.assertRaises(ConnectionLost, one.flush)
        one.flush()
        one.publish(self.topic, b"2")
        one.flush()
        self.cut(one)
        one.close()

    def test_forgottenSubscriptionIsMadeAgain(self) -> None:
        """A broker that knows the subscription no more is asked for another one."""
        with BrokerProcess() as first:
            self.network.target = first.address
            one = self.connected()
            subscription = one.subscribe(self.topic)
        with BrokerProcess() as second:
            self.network.target = second.address
            self.assertIsNone(subscription.next(0.5))
            one.publish(self.topic, b"new")
            self.assertEqual(payloads(subscription, 1), [b"new"])
            one.close()

    def test_idOfAnotherSubscriptionIsNoticed(self) -> None:
        """A broker that was started anew may give the id to somebody else's subscription: that is noticed."""
        with BrokerProcess() as first:
            self.network.target = first.address
            one = self.connected()
            subscription = one.subscribe(self.topic)
            self.network.isDown = True
        with BrokerProcess() as second:
            self.network.target = second.address
            other = self.connectedTo(f"tcp://127.0.0.1:{second.port()}")
            others = other.subscribe("other")
            self.assertEqual(others.id, subscription.id)
            other.publish("other", b"not for one")
            other.flush()
            self.network.isDown = False
            self.assertIsNone(subscription.next(0.5))
            one.publish(self.topic, b"new")
            self.assertEqual(payloads(subscription, 1), [b"new"])
            one.close()


inEveryForm(globals(), Conversations, Networks)
del BlipCase
