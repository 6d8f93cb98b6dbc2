"""The client's side of one BlipMQ connection, without I/O (BlipMQ document, docs/reference/dialects.rst).

A POLL of an empty subscription has no answer. So POLLs are sent in rounds, each followed by a PING, whose PONG
completes the oldest round.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fleximq.client.errors import Answered, ConnectionLost, SubscribeFailed
from fleximq.client.protocol.completion import Pending
from fleximq.client.queues.reconnecting_link import QueueConversation
from fleximq.compiled import choice
from fleximq.errors import BadFraming
from fleximq.limits import BLIP_FRAME_BYTES
from fleximq.wire.blipmq_frame import FrameType, encodeFrame
from fleximq.wire.blipmq_payload import (
    Nack,
    decodeAck,
    decodeNack,
    decodePublish,
    encodeAuth,
    encodeHello,
    encodeSubscribe,
    encodeSubscription,
)

#: Correlation ids: delivery tags count from 1 and never reach these values.
_QUESTIONS = 1 << 62
_PUBLICATIONS = 1 << 63


class BlipDelivery(NamedTuple):
    """A message. ``tag`` identifies it in the subscription for the ACK; 0 with QoS 0."""

    topic: str
    payload: bytes
    qos: int
    tag: int
    subscription: int

    @property
    def text(self) -> str:
        """The payload as text; raises ValueError if it is not UTF-8."""
        return self.payload.decode()


class _Round(NamedTuple):
    subscription: int
    first: int
    polls: int
    deliveries: list[BlipDelivery]
    pending: Pending[list[BlipDelivery]]


class BlipConversation(QueueConversation):
    """One connection.

    :param nacked: called with NACKs for frames that have no other answer: the number of a publication or None, the
        delivery tag of an ACK or None, and the NACK. With neither, the broker is about to end the connection.
    """

    def __init__(self, nacked: Callable[[int | None, int | None, Nack], None]) -> None:
        self._nacked = nacked
        self._scanner = choice.BlipScanner(BLIP_FRAME_BYTES)
        self._next = _QUESTIONS
        self._questions: dict[int, Pending[int]] = {}
        self._pings: dict[int, Pending[None]] = {}
        self._rounds: deque[_Round] = deque()

    def hello(self, key: str) -> tuple[bytes, Pending[int], Pending[int]]:
        """Return HELLO and AUTH, and the results for their answers."""
        hello, one = self._question(FrameType.HELLO, encodeHello())
        auth, two = self._question(FrameType.AUTH, encodeAuth(key))
        return hello + auth, one, two

    def subscribe(self, topic: str, qos: int) -> tuple[bytes, Pending[int]]:
        """Return a SUBSCRIBE, and a result with the id of the subscription."""
        return self._question(FrameType.SUBSCRIBE, encodeSubscribe(topic, qos))

    def _question(self, kind: FrameType, payload: bytes) -> tuple[bytes, Pending[int]]:
        pending: Pending[int] = Pending()
        self._next += 1
        self._questions[self._next] = pending
        return encodeFrame(kind, self._next, payload), pending

    def ping(self) -> tuple[bytes, Pending[None]]:
        pending: Pending[None] = Pending()
        self._next += 1
        self._pings[self._next] = pending
        return encodeFrame(FrameType.PING, self._next), pending

    def poll(self, subscription: int, count: int) -> tuple[bytes, Pending[list[BlipDelivery]]]:
        """Return a round of ``count`` POLLs, and a result with its deliveries."""
        payload, first = encodeSubscription(subscription), self._next + 1
        pending: Pending[list[BlipDelivery]] = Pending()
        self._next += count + 1
        self._rounds.append(_Round(subscription, first, count, [], pending))
        polls = [encodeFrame(FrameType.POLL, first + each, payload) for each in range(count)]
        return b"".join(polls) + encodeFrame(FrameType.PING, first + count), pending

    @staticmethod
    def ack(subscription: int, tags: Sequence[int]) -> bytes:
        """Return the ACKs of these deliveries."""
        payload = encodeSubscription(subscription)
        return b"".join(encodeFrame(FrameType.ACK, tag, payload) for tag in tags)

    @staticmethod
    def publications(head: bytes, first: int, messages: Sequence[bytes]) -> bytes:
        """Return PUBLISHes, numbered from ``first`` on; ``head`` is the encoded topic and QoS."""
        return choice.encodeRun(head, range(_PUBLICATIONS + first, _PUBLICATIONS + first + len(messages)), messages)

    def received(self, data: bytes) -> None:
        for kind, head, correlations, messages in self._scanner.feed(data):
            if kind is FrameType.PUBLISH:
                self._delivered(head, correlations, messages)
            elif kind is FrameType.ACK:
                for each in correlations:
                    if each not in self._questions:
                        raise BadFraming(f"an ACK with the correlation id {each} answers no request")
                    self._questions.pop(each).succeed(decodeAck(head, zero=True))
            elif kind is FrameType.PONG:
                self._ponged(correlations[0])
            elif kind is FrameType.NACK:
                self._refused(correlations[0], decodeNack(head))
            else:
                raise BadFraming(f"a broker does not send {kind.name}")

    def _delivered(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        if not self._rounds:
            raise BadFraming("a delivery arrived without a POLL")
        topic, qos = decodePublish(head)
        oldest = self._rounds[0]
        if len(oldest.deliveries) + len(messages) > oldest.polls:
            raise BadFraming("more deliveries arrived than were requested")
        for tag, message in zip(correlations, messages, strict=True):
            oldest.deliveries.append(BlipDelivery(topic, message, qos, tag if qos else 0, oldest.subscription))

    def _ponged(self, correlation: int) -> None:
        pending = self._pings.pop(correlation, None)
        if pending is not None:
            pending.succeed(None)
        elif self._rounds and correlation == self._rounds[0].first + self._rounds[0].polls:
            asked = self._rounds.popleft()
            asked.pending.succeed(asked.deliveries)
        else:
            raise BadFraming(f"a PONG with the correlation id {correlation} answers no request")

    def _refused(self, correlation: int, nack: Nack) -> None:
        if correlation >= _PUBLICATIONS:
            self._nacked(correlation - _PUBLICATIONS, None, nack)
        elif correlation in self._questions:
            self._questions.pop(correlation).fail(Answered(nack.code, nack.message))
        elif correlation in self._pings:
            self._nacked(None, 0, nack)  # its PONG follows
        elif self._rounds and correlation >= self._rounds[0].first:
            oldest = self._rounds[0]
            # The number after those of the POLLs is that of the ACKs, which are not stored: a flush says so.
            if correlation != oldest.first + oldest.polls:
                oldest.pending.fail(SubscribeFailed(nack.code, nack.message))
        else:
            self._nacked(None, correlation or None, nack)

    def lost(self, lost: ConnectionLost) -> None:
        for each in (*self._questions.values(), *self._pings.values(), *(asked.pending for asked in self._rounds)):
            each.fail(lost)  # type: ignore[attr-defined]
        self._questions.clear()
        self._pings.clear()
        self._rounds.clear()
