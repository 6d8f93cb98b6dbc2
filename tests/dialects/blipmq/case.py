"""Talking BlipMQ, for tests."""

from typing import Any

from fleximq.dialects.blipmq import BlipFactory
from fleximq.wire.blipmq_frame import FrameType, encodeFrame
from fleximq.wire.blipmq_payload import (
    encodeAuth,
    encodeHello,
    encodeNack,
    encodePublish,
    encodeSubscribe,
    encodeSubscription,
)
from tests.dialects.conversations import ConversationCase, Peer, makeContext

UNKNOWN = "unknown subscription or delivery tag"


def hello(correlation: int = 1, version: int = 1) -> bytes:
    """Return a HELLO."""
    return encodeFrame(FrameType.HELLO, correlation, encodeHello(version))


def auth(correlation: int = 2, key: str = "dev-key") -> bytes:
    """Return an AUTH."""
    return encodeFrame(FrameType.AUTH, correlation, encodeAuth(key))


def publish(topic: str, message: bytes, qos: int = 1, correlation: int = 4) -> bytes:
    """Return a PUBLISH, which is also what a delivery looks like."""
    return encodeFrame(FrameType.PUBLISH, correlation, encodePublish(topic, qos) + message)


def subscribe(topic: str, qos: int = 1, correlation: int = 3) -> bytes:
    """Return a SUBSCRIBE."""
    return encodeFrame(FrameType.SUBSCRIBE, correlation, encodeSubscribe(topic, qos))


def poll(subscription: int, correlation: int = 50) -> bytes:
    """Return a POLL."""
    return encodeFrame(FrameType.POLL, correlation, encodeSubscription(subscription))


def ack(correlation: int, subscription: int = 0) -> bytes:
    """Return an ACK: of a delivery, or the answer to HELLO, AUTH and SUBSCRIBE."""
    return encodeFrame(FrameType.ACK, correlation, encodeSubscription(subscription))


def nack(correlation: int, code: int, words: str) -> bytes:
    """Return a NACK."""
    return encodeFrame(FrameType.NACK, correlation, encodeNack(code, words))


def ping(correlation: int, payload: bytes = b"") -> bytes:
    """Return a PING."""
    return encodeFrame(FrameType.PING, correlation, payload)


def pong(correlation: int) -> bytes:
    """Return a PONG."""
    return encodeFrame(FrameType.PONG, correlation)


class BlipCase(ConversationCase):
    """A conversation with a BlipMQ listener."""

    def setUp(self) -> None:
        """Open the listener."""
        super().setUp()
        self.listen()

    def listen(self, **settings: Any) -> None:
        """Open it anew, with other settings."""
        self.context = makeContext(self.clock, **settings)
        self.factory = BlipFactory(self.context)

    def login(self, key: str = "dev-key") -> Peer:
        """Return a peer that has authenticated."""
        peer = self.connect(self.factory)
        self.assertEqual(peer.ask(hello() + auth(key=key)), ack(1) + ack(2))
        return peer

    def subscribed(self, peer: Peer, topic: str, qos: int = 1) -> int:
        """Subscribe and return the subscription's id."""
        answer = peer.ask(subscribe(topic, qos, correlation=3))
        id = int.from_bytes(answer[-8:], "big")
        self.assertEqual(answer, ack(3, id))
        return id
