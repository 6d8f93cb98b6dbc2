"""BlipMQ payloads: the document's words for everything that is wrong, and every codec there and back."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest, InvalidTopic
from fleximq.limits import TOPIC_BYTES
from fleximq.wire.blipmq_payload import (
    Nack,
    TopicAndQos,
    decodeAck,
    decodeAuth,
    decodeHello,
    decodeNack,
    decodePoll,
    decodePublish,
    decodeSubscribe,
    encodeAuth,
    encodeHello,
    encodeNack,
    encodePublish,
    encodeSubscribe,
    encodeSubscription,
)

DECODERS: list[Callable[[bytes], Any]] = [
    decodeHello,
    decodeAuth,
    decodePublish,
    decodeSubscribe,
    decodeAck,
    decodePoll,
    decodeNack,
]


class PayloadTests(SynchronousTestCase):
    """Helpers for the tests of one frame type each."""

    def refuses(self, decode: Callable[[bytes], Any], payload: bytes, words: str) -> None:
        """Expect a refusal in exactly these words."""
        error = self.assertRaises(BadRequest, decode, payload)
        self.assertEqual(str(error), words)


class HandshakeTests(PayloadTests):
    """HELLO and AUTH."""

    def test_versionGoesThereAndBack(self) -> None:
        """The version goes there and back; the document's is two bytes, 00 01."""
        self.assertEqual(encodeHello(), b"\0\1")
        for version in (0, 1, 2, 65535):
            self.assertEqual(decodeHello(encodeHello(version)), version)

    def test_helloOfAnotherLength(self) -> None:
        """A HELLO is two bytes, neither fewer nor more."""
        for payload in (b"", b"\1", b"\0\1\0"):
            self.refuses(decodeHello, payload, "invalid HELLO payload")

    def test_keyGoesThereAndBackEmptyOneAndLongestIncluded(self) -> None:
        """A key goes there and back, the empty one and the longest included."""
        for key in ("dev-key", "", "schlüssel", "k" * 65535):
            self.assertEqual(decodeAuth(encodeAuth(key)), key)

    def test_authMalformed(self) -> None:
        """A length that lies, bytes behind the key and keys that are not UTF-8 are refused."""
        for payload in (b"", b"\0", b"\0\1", b"\0\1ab", b"\0\2a", b"\0\1\xff"):
            self.refuses(decodeAuth, payload, "invalid AUTH payload")

    def test_keyTooLong(self) -> None:
        """A key that the length cannot count is not sent."""
        self.assertRaises(ValueError, encodeAuth, "k" * 65536)


class PublishTests(PayloadTests):
    """The head of a PUBLISH."""

    def test_thereAndBack(self) -> None:
        """Topic and QoS go there and back."""
        for topic, qos in [("demo", 1), ("t", 0), ("é/你好", 1)]:
            self.assertEqual(decodePublish(encodePublish(topic, qos)), TopicAndQos(topic, qos))

    def test_sample(self) -> None:
        """The document's example."""
        self.assertEqual(encodePublish("demo", 1), bytes.fromhex("01 00 04 64 65 6D 6F"))

    def test_shape(self) -> None:
        """Too short a payload and a topic that is not UTF-8 are the first thing said, whatever else is wrong."""
        for payload in (b"", b"\2", b"\2\0", b"\2\0\1", b"\1\0\4abc", b"\2\0\1\xff"):
            self.refuses(decodePublish, payload, "invalid PUBLISH payload")

    def test_emptyTopic(self) -> None:
        """An empty topic is said before a bad QoS."""
        for head in (b"\1\0\0", b"\2\0\0"):
            self.refuses(decodePublish, head, "empty topic")

    def test_qosOtherThan0And1IsSaidBeforeTopicsLength(self) -> None:
        """A QoS other than 0 and 1 is said before the topic's length."""
        for head in (b"\2\0\1t", b"\xff\0\1t", encodePublish("t" * 2000, 2)):
            self.refuses(decodePublish, head, "invalid QoS value")

    def test_topicLength(self) -> None:
        """A topic may have 1024 bytes of UTF-8, not one more."""
        for topic in ("t" * (TOPIC_BYTES - 1), "t" * TOPIC_BYTES, "é" * (TOPIC_BYTES // 2)):
            self.assertEqual(decodePublish(encodePublish(topic, 0)).topic, topic)
        for topic in ("t" * (TOPIC_BYTES + 1), "é" * (TOPIC_BYTES // 2) + "t"):
            self.refuses(decodePublish, encodePublish(topic, 0), "topic is longer than 1024 bytes")
        self.assertRaises(InvalidTopic, decodePublish, encodePublish("t" * (TOPIC_BYTES + 1), 0))

    def test_deadLetters(self) -> None:
        """The prefix of a dead-letter topic comes on top of the longest name."""
        longest = "$dead/" + "t" * TOPIC_BYTES
        self.assertEqual(decodePublish(encodePublish(longest, 0)).topic, longest)
        self.refuses(decodePublish, encodePublish(longest + "t", 0), "topic is longer than 1024 bytes")


class SubscribeTests(PayloadTests):
    """SUBSCRIBE."""

    def test_thereAndBack(self) -> None:
        """Topic and QoS go there and back."""
        for topic, qos in [("demo", 1), ("t", 0), ("你好", 1)]:
            self.assertEqual(decodeSubscribe(encodeSubscribe(topic, qos)), TopicAndQos(topic, qos))

    def test_sample(self) -> None:
        """The document's example."""
        self.assertEqual(encodeSubscribe("demo", 1), bytes.fromhex("00 04 64 65 6D 6F 01"))

    def test_trailingBytes(self) -> None:
        """Bytes behind the QoS are ignored."""
        self.assertEqual(decodeSubscribe(b"\0\1t\1more"), TopicAndQos("t", 1))

    def test_tooShortPayloadAndTopicThatIsNotUTF8AreFirstThingSaid(self) -> None:
        """Too short a payload and a topic that is not UTF-8 are the first thing said."""
        for payload in (b"", b"\0", b"\0\0", b"\0\1t", b"\0\4abc", b"\0\1\xff\2"):
            self.refuses(decodeSubscribe, payload, "invalid SUBSCRIBE payload")

    def test_emptyTopicIsSaidBeforeBadQoSBadQoSBeforeTopicsLength(self) -> None:
        """An empty topic is said before a bad QoS, a bad QoS before the topic's length."""
        self.refuses(decodeSubscribe, b"\0\0\2", "empty topic")
        self.refuses(decodeSubscribe, b"\0\1t\2", "invalid QoS value")
        self.refuses(decodeSubscribe, encodeSubscribe("t" * 1025, 2), "invalid QoS value")
        self.refuses(decodeSubscribe, encodeSubscribe("t" * 1025, 1), "topic is longer than 1024 bytes")


class SubscriptionIdTests(PayloadTests):
    """ACK and POLL."""

    def test_thereAndBack(self) -> None:
        """An id goes there and back."""
        for subscription in (1, 42, 2**64 - 1):
            self.assertEqual(decodeAck(encodeSubscription(subscription)), subscription)
            self.assertEqual(decodePoll(encodeSubscription(subscription)), subscription)

    def test_0NamesNoSubscription(self) -> None:
        """0 names no subscription; only the answer to a handshake carries it."""
        for decode in (decodeAck, decodePoll):
            self.refuses(decode, bytes(8), "subscription_id must be non-zero")
        self.assertEqual(decodeAck(bytes(8), zero=True), 0)

    def test_eightBytesNeitherFewerNorMore(self) -> None:
        """Eight bytes, neither fewer nor more."""
        for payload in (b"", bytes(7), bytes(9)):
            self.refuses(decodeAck, payload, "invalid ACK payload")
            self.refuses(decodePoll, payload, "invalid POLL payload")


class NackTests(PayloadTests):
    """NACK."""

    def test_thereAndBack(self) -> None:
        """Code and words go there and back."""
        for nack in (Nack(400, "empty topic"), Nack(0, ""), Nack(65535, "größer")):
            self.assertEqual(decodeNack(encodeNack(*nack)), nack)

    def test_longWords(self) -> None:
        """Words that the length cannot count are cut between two characters."""
        self.assertEqual(decodeNack(encodeNack(500, "é" * 40000)), Nack(500, "é" * 32767))

    def test_lengthThatLiesAndWordsThatAreNotUTF8AreRefused(self) -> None:
        """A length that lies and words that are not UTF-8 are refused."""
        for payload in (b"", bytes(3), b"\1\x90\0\1", b"\1\x90\0\1ab", b"\1\x90\0\1\xff"):
            self.refuses(decodeNack, payload, "invalid NACK payload")


class AnyBytesTests(SynchronousTestCase):
    """Arbitrary payloads."""

    @given(st.sampled_from(DECODERS), st.binary(max_size=12))
    def test_onlyBadRequest(self, decode: Callable[[bytes], Any], payload: bytes) -> None:
        """Arbitrary bytes end in a value or in BadRequest with words."""
        try:
            decode(payload)
        except BadRequest as error:
            self.assertTrue(str(error))
