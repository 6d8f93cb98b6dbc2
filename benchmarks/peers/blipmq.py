"""Our broker in the BlipMQ dialect: what is published and polled (BlipMQ document)."""

import struct
from collections.abc import Sequence

from benchmarks.peers.fleximq import FlexiMQBroker
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who

_HELLO, _AUTH, _PUBLISH, _SUBSCRIBE, _ACK, _PING, _PONG, _POLL = 1, 2, 3, 4, 5, 7, 8, 9
_HEAD = struct.Struct(">IBQ")
_SHORT = struct.Struct(">H")
_LONG = struct.Struct(">Q")
_BARRIER = 0xBA221E2


def frame(kind: int, correlation: int, payload: bytes = b"") -> bytes:
    """Return one frame (BlipMQ document, "Frame Layout")."""
    return _HEAD.pack(9 + len(payload), kind, correlation) + payload


class BlipMQ(FlexiMQBroker):
    """Our broker, spoken to in the BlipMQ dialect. Messages are polled, so a delivery needs a POLL."""

    def hello(self) -> bytes:
        return frame(_HELLO, 1, _SHORT.pack(1)) + frame(_AUTH, 2, _SHORT.pack(7) + b"dev-key")

    def welcome(self, said: bytes) -> Who:
        if said != frame(_ACK, 1, _LONG.pack(0)) + frame(_ACK, 2, _LONG.pack(0)):
            raise ValueError("not authenticated yet")
        return None

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        """Subscribe with QoS 0."""
        for topic in topics:
            self.subscribeWith(line, topic, qos=0)

    def subscribeWith(self, line: Line, topic: bytes, qos: int) -> int:
        """Subscribe, and return the subscription's id."""
        line.send(frame(_SUBSCRIBE, 3, _SHORT.pack(len(topic)) + topic + bytes([qos])))
        said = line.read(_HEAD.size + _LONG.size)
        subscription: int = _LONG.unpack_from(said, _HEAD.size)[0]
        line.who = subscription
        return subscription

    def barrier(self, line: Line) -> None:
        line.send(self.ping())
        line.readUntil(self.pong())

    def ping(self) -> bytes:
        """Return a PING: its answer says that all before it is done."""
        return frame(_PING, _BARRIER)

    def pong(self) -> bytes:
        """Return that answer."""
        return frame(_PONG, _BARRIER)

    def publication(self, who: Who, topic: bytes, payload: bytes, qos: int = 0) -> bytes:
        return frame(_PUBLISH, 0, bytes([qos]) + _SHORT.pack(len(topic)) + topic + payload)

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0, qos: int = 0, tag: int = 0) -> bytes:
        return frame(_PUBLISH, tag, bytes([qos]) + _SHORT.pack(len(topic)) + topic + payload)

    def poll(self, subscription: int, correlation: int = 0) -> bytes:
        """Return a request for one message."""
        return frame(_POLL, correlation, _LONG.pack(subscription))

    def acknowledgement(self, subscription: int, tag: int) -> bytes:
        """Return what acknowledges one message."""
        return frame(_ACK, tag, _LONG.pack(subscription))
