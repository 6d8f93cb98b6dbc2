"""BlipMQ as a client sees it (BlipMQ document and docs/reference/dialects.rst)."""

import socket
import struct
import threading
import time
from typing import Any

from tests.conversations.case import SocketCase, onOwnListeners
from tests.conversations.clients import Ack, BlipClient, Delivery, Ended, Nack, Pong, counted

UNKNOWN = "unknown subscription or delivery tag"
_HELLO, _AUTH, _PUBLISH, _SUBSCRIBE = BlipClient.HELLO, BlipClient.AUTH, BlipClient.PUBLISH, BlipClient.SUBSCRIBE
_ACK, _NACK, _PING, _PONG, _POLL = BlipClient.ACK, BlipClient.NACK, BlipClient.PING, BlipClient.PONG, BlipClient.POLL


class HandshakeTests(SocketCase):
    """HELLO, then AUTH, then everything else."""

    def setUp(self) -> None:
        """A client that has said nothing yet."""
        super().setUp()
        self.client = self.opened(BlipClient(self.place.address("blipmq")))

    def test_wayIn(self) -> None:
        """Both are acknowledged with subscription 0 and their correlation ids."""
        self.assertEqual((self.client.hello(10), self.client.auth("any", 2**64 - 1)), (Ack(10, 0), Ack(2**64 - 1, 0)))

    def test_beforeHello(self) -> None:
        """Before HELLO every frame is refused, AUTH with words of its own."""
        for kind in (_PUBLISH, _SUBSCRIBE, _ACK, _NACK, _PING, _PONG, _POLL):
            self.assertEqual(self.client.ask(kind, 7), Nack(7, 401, "unauthenticated"))
        self.assertEqual(self.client.auth("x", 8), Nack(8, 400, "HELLO not performed"))

    def test_beforeAuth(self) -> None:
        """Between HELLO and AUTH every other frame is refused."""
        self.client.hello()
        for kind in (_PUBLISH, _SUBSCRIBE, _ACK, _NACK, _PING, _PONG, _POLL):
            self.assertEqual(self.client.ask(kind, 7), Nack(7, 401, "unauthenticated"))

    def test_otherVersion(self) -> None:
        """Another version gets 426, and the client may try again."""
        self.assertEqual(self.client.ask(_HELLO, 9, b"\0\2"), Nack(9, 426, "unsupported protocol version"))
        self.assertEqual(self.client.hello(), Ack(1, 0))

    def test_malformed(self) -> None:
        """A malformed HELLO or AUTH is refused, and the client may try again."""
        self.assertEqual(self.client.ask(_HELLO, 3, b"\0\1\0"), Nack(3, 400, "invalid HELLO payload"))
        self.client.hello()
        for payload in (b"\0", b"\0\2x", counted("x") + b"y", b"\0\1\xff"):
            self.assertEqual(self.client.ask(_AUTH, 4, payload), Nack(4, 400, "invalid AUTH payload"))
        self.assertEqual(self.client.auth(), Ack(2, 0))

    def test_twice(self) -> None:
        """Nobody says HELLO or AUTH twice."""
        self.client.login()
        self.assertEqual(self.client.hello(5), Nack(5, 400, "HELLO already performed"))
        self.assertEqual(self.client.auth("x", 6), Nack(6, 400, "already authenticated"))


class ErrorTests(SocketCase):
    """What is refused while the connection lives on, and what ends it."""

    def test_payloads(self) -> None:
        """Each wrong payload gets the document's words, in the order of the checks."""
        client = self.blip()
        for kind, payload, words in (
            (_PUBLISH, b"\1\0\0x", "empty topic"),
            (_PUBLISH, b"\2\0\0x", "empty topic"),
            (_PUBLISH, b"\2\0\1tx", "invalid QoS value"),
            (_PUBLISH, b"\0\0", "invalid PUBLISH payload"),
            (_PUBLISH, b"\0\0\1\xff", "invalid PUBLISH payload"),
            (_SUBSCRIBE, b"\0\1t", "invalid SUBSCRIBE payload"),
            (_SUBSCRIBE, b"\0\1\xff\0", "invalid SUBSCRIBE payload"),
            (_SUBSCRIBE, b"\0\0\1", "empty topic"),
            (_SUBSCRIBE, b"\0\1t\2", "invalid QoS value"),
            (_POLL, bytes(7), "invalid POLL payload"),
            (_POLL, bytes(8), "subscription_id must be non-zero"),
            (_ACK, bytes(9), "invalid ACK payload"),
            (_ACK, bytes(8), "subscription_id must be non-zero"),
        ):
            self.assertEqual(client.ask(kind, 20, payload), Nack(20, 400, words), (kind, payload))

    def test_longTopic(self) -> None:
        """A topic over 1,024 bytes is refused."""
        answer = self.blip().ask(_SUBSCRIBE, 21, counted("x" * 1025) + b"\1")
        self.assertEqual((answer.correlation, answer.code), (21, 400))

    def test_unknown(self) -> None:
        """ACK and POLL of unknown subscriptions get 404."""
        client = self.blip()
        for kind in (_ACK, _POLL):
            self.assertEqual(client.ask(kind, 25, struct.pack(">Q", 1 << 60)), Nack(25, 404, UNKNOWN))

    def test_ping(self) -> None:
        """A PONG has the PING's correlation id and is empty; a client's PONG and NACK are ignored."""
        client = self.blip().frame(_PONG, 1).frame(_NACK, 2)
        self.assertEqual(client.ask(_PING, 2**64 - 1, b"abc"), Pong(2**64 - 1, b""))

    def test_framing(self) -> None:
        """Impossible lengths and unknown types end the connection, behind the answers to what came before."""
        for wrong in (
            bytes(4),
            struct.pack(">I", 8) + bytes(8),
            struct.pack(">I", (16 << 20) + 1),
            struct.pack(">IBQ", 9, 10, 1),
            struct.pack(">IBQ", 9, 0, 1),
        ):
            client = self.blip()
            client.say(struct.pack(">IBQ", 9, _PING, 5) + wrong)
            self.assertEqual(client.hear(), Pong(5, b""))
            self.assertRaises(Ended, client.hear)

    def test_ownTopics(self) -> None:
        """Only the broker publishes to ``$sys/`` and ``$dead/``."""
        for topic in ("$sys/x", "$dead/x"):
            answer = self.blip().publish(topic, b"x").hear()
            self.assertEqual(answer, Nack(4, 401, "not permitted"))


class DeliveryTests(SocketCase):
    """PUBLISH, SUBSCRIBE, POLL and ACK."""

    def setUp(self) -> None:
        """A consumer with a subscription, and a publisher."""
        super().setUp()
        self.consumer, self.publisher = self.blip(), self.blip()
        self.subscription = self.consumer.subscribe(self.topic)

    def publish(self, *messages: bytes, qos: int = 1) -> None:
        """Publish these, and wait until that is done."""
        for each in messages:
            self.publisher.publish(self.topic, each, qos)
        self.assertEqual(self.publisher.barrier(), [])

    def poll(self, subscription: int = 0, correlation: int = 50) -> Any:
        """Return what a POLL brings."""
        return self.consumer.poll(subscription or self.subscription, correlation)

    def test_empty(self) -> None:
        """A POLL of an empty subscription is not answered."""
        self.assertIsNone(self.poll())

    def test_delivery(self) -> None:
        """A POLL brings the message, with the subscription's first tag."""
        self.publish(b"m1")
        self.assertEqual(self.poll(), Delivery(1, 1, self.topic, b"m1"))

    def test_ids(self) -> None:
        """Each SUBSCRIBE gets an id of its own and its own copies."""
        second = self.consumer.subscribe(self.topic)
        self.assertNotIn(second, (0, self.subscription))
        self.publish(b"m")
        self.assertEqual((self.poll().message, self.poll(second).message), (b"m", b"m"))

    def test_notTwice(self) -> None:
        """What was not acknowledged is not delivered again at once."""
        self.publish(b"m")
        self.poll()
        self.assertIsNone(self.poll())

    def test_ack(self) -> None:
        """An ACK is not answered, the same once more gets 404."""
        self.publish(b"m")
        tag = self.poll().tag
        self.assertEqual(self.consumer.ack(tag, self.subscription).barrier(), [])
        self.assertEqual(self.consumer.ack(tag, self.subscription).barrier(), [Nack(tag, 404, UNKNOWN)])

    def test_qos0(self) -> None:
        """A QoS0 delivery carries the correlation id of its POLL."""
        self.publish(b"m", qos=0)
        self.assertEqual(self.poll(correlation=66), Delivery(66, 0, self.topic, b"m"))

    def test_lowerQos(self) -> None:
        """The delivered QoS is the lower of the two."""
        zero = self.consumer.subscribe(self.topic, 0)
        self.publish(b"m")
        self.assertEqual(self.poll(zero, 67), Delivery(67, 0, self.topic, b"m"))

    def test_anyBytes(self) -> None:
        """Messages are bytes, none of them too."""
        self.publish(b"", b"\xff\x00\n")
        self.assertEqual([self.poll().message for _ in range(2)], [b"", b"\xff\x00\n"])

    def test_notKept(self) -> None:
        """What was published before there was a subscription is not kept for it."""
        late = f"{self.topic}.late"
        self.publisher.publish(late, b"m").barrier()
        self.assertIsNone(self.poll(self.consumer.subscribe(late)))

    def test_tolerant(self) -> None:
        """SUBSCRIBE tolerates bytes behind its QoS."""
        self.assertIsInstance(self.consumer.ask(_SUBSCRIBE, 3, counted(self.topic) + b"\1more"), Ack)

    def test_pipelined(self) -> None:
        """100 pipelined POLLs bring 100 messages in order, with tags that count up."""
        self.publish(*(b"%d" % n for n in range(100)))
        for n in range(100):
            self.consumer.frame(_POLL, n, struct.pack(">Q", self.subscription))
        heard = self.consumer.barrier()
        self.assertEqual([each.message for each in heard], [b"%d" % n for n in range(100)])
        self.assertEqual([each.tag for each in heard], list(range(1, 101)))

    def test_pollBeforeMessage(self) -> None:
        """A POLL that found nothing is not answered later, when a message comes."""
        self.poll()
        self.publish(b"m")
        self.assertEqual(self.consumer.barrier(), [])

    def test_disconnect(self) -> None:
        """What was in flight over a lost connection is delivered to the next one of the same key, same tag, at once."""
        self.publish(b"m1", b"m2")
        first = self.poll()
        self.consumer.close()
        again = self.blip()
        found = self.eventually(lambda: again.poll(self.subscription), "a delivery")
        while found != first:  # the broker had not noticed yet, and gave the second
            found = self.eventually(lambda: again.poll(self.subscription), "the first delivery again")
        self.assertEqual(again.ack(first.tag, self.subscription).barrier(), [])

    def test_otherKey(self) -> None:
        """Another key gets 404 for POLL and ACK."""
        self.publish(b"m")
        stranger = self.blip("other-key")
        self.assertEqual(stranger.poll(self.subscription), Nack(50, 404, UNKNOWN))
        self.assertEqual(stranger.ack(1, self.subscription).barrier(), [Nack(1, 404, UNKNOWN)])

    def test_largest(self) -> None:
        """A frame of exactly 16 MiB is carried."""
        big = bytes((16 << 20) - 9 - 3 - len(self.topic))
        talking = threading.Thread(target=self.publish, args=(big,), daemon=True)
        talking.start()
        talking.join()
        self.assertEqual(self.poll().message, big)

    def test_nagle(self) -> None:
        """A client with Nagle's algorithm on acknowledges 200 messages without a delay of 40 ms for each."""
        if not hasattr(socket, "TCP_QUICKACK"):
            self.skipTest("the platform has no TCP_QUICKACK")
        self.consumer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        self.publish(*(b"%d" % n for n in range(200)))
        began = time.monotonic()
        for n in range(200):
            self.consumer.frame(_POLL, n, struct.pack(">Q", self.subscription))
            self.consumer.ack(self.consumer.hear().tag, self.subscription)
        self.assertLess(time.monotonic() - began, 6.0)


globals().update(onOwnListeners(HandshakeTests, ErrorTests, DeliveryTests))
