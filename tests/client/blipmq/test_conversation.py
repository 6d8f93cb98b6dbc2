"""What a BlipMQ client says and hears, without any I/O."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blipmq.conversation import BlipConversation, BlipDelivery
from fleximq.client.errors import Answered, ConnectionLost, SubscribeFailed
from fleximq.errors import BrokerError
from fleximq.wire.blipmq_frame import BlipScanner, FrameType, encodeFrame
from fleximq.wire.blipmq_payload import Nack, decodePoll, encodeNack, encodePublish, encodeSubscription


class TalkTests(SynchronousTestCase):
    """One connection."""

    def setUp(self) -> None:
        """Begin it."""
        self.nacked: list[tuple[int | None, int | None, Nack]] = []
        self.talk = BlipConversation(lambda *told: self.nacked.append(told))

    def said(self, data: bytes) -> list[Any]:
        """Return the frames of what is to be sent."""
        return [(kind, head, each) for kind, head, correlations, _ in BlipScanner().feed(data) for each in correlations]

    def answer(self, kind: FrameType, correlation: int, payload: bytes = b"") -> None:
        """Let the broker say something, a byte at a time."""
        for byte in encodeFrame(kind, correlation, payload):
            self.talk.received(bytes([byte]))

    def test_hello(self) -> None:
        """HELLO and AUTH are those of the document's examples, and answered by ACKs."""
        data, hello, auth = self.talk.hello("dev-key")
        (one, head, first), (two, key, second) = self.said(data)
        self.assertEqual((one, head, two, key), (FrameType.HELLO, b"\0\1", FrameType.AUTH, b"\0\7dev-key"))
        self.answer(FrameType.ACK, first, encodeSubscription(0))
        self.assertTrue(hello.done and not auth.done)
        self.answer(FrameType.NACK, second, encodeNack(401, "invalid API key"))
        self.assertEqual(self.assertRaises(Answered, auth.result).status, 401)

    def test_subscribe(self) -> None:
        """The ACK has the id."""
        data, pending = self.talk.subscribe("demo", 1)
        ((kind, head, correlation),) = self.said(data)
        self.assertEqual((kind, head), (FrameType.SUBSCRIBE, b"\0\4demo\1"))
        self.answer(FrameType.ACK, correlation, encodeSubscription(42))
        self.assertEqual(pending.result(), 42)

    def test_tooMany(self) -> None:
        """A round ends the connection with more deliveries than POLLs, and so does a frame over 16 MiB."""
        self.talk.poll(7, 2)
        for tag in (1, 2):
            self.answer(FrameType.PUBLISH, tag, encodePublish("t", 1) + b"a")
        self.assertRaises(BrokerError, self.answer, FrameType.PUBLISH, 3, encodePublish("t", 1) + b"a")
        other = BlipConversation(lambda *told: None)
        self.assertRaises(BrokerError, other.received, ((16 << 20) + 1).to_bytes(4, "big") + b"\3" + bytes(8))

    def test_rounds(self) -> None:
        """What comes before a PONG belongs to the oldest round; tags are no correlation ids of ours."""
        one, first = self.talk.poll(7, 2)
        two, second = self.talk.poll(8, 1)
        polls = self.said(one + two)
        self.assertEqual([kind.name for kind, _, _ in polls], ["POLL", "POLL", "PING", "POLL", "PING"])
        self.assertEqual([decodePoll(head) for kind, head, _ in polls if kind is FrameType.POLL], [7, 7, 8])
        self.answer(FrameType.PUBLISH, 1, encodePublish("t", 1) + b"a")
        self.answer(FrameType.PUBLISH, polls[1][2], encodePublish("t", 0) + b"b")
        self.assertFalse(first.done)
        self.answer(FrameType.PONG, polls[2][2])
        self.answer(FrameType.PONG, polls[4][2])
        self.assertEqual(first.result(), [BlipDelivery("t", b"a", 1, 1, 7), BlipDelivery("t", b"b", 0, 0, 7)])
        self.assertEqual(second.result(), [])

    def test_refusedRound(self) -> None:
        """A NACK to a POLL ends its round, once."""
        data, pending = self.talk.poll(7, 2)
        polls = self.said(data)
        for _, _, correlation in polls[:2]:
            self.answer(FrameType.NACK, correlation, encodeNack(404, "unknown"))
        self.answer(FrameType.PONG, polls[2][2])
        self.assertEqual(self.assertRaises(SubscribeFailed, pending.result).status, 404)
        self.assertEqual(self.nacked, [])

    def test_nacked(self) -> None:
        """NACKs tell publications by their number, ACKs by their tag, and the end by neither."""
        data = self.talk.publications(encodePublish("t", 1), 5, [b"a", b"b"])
        (_, _, first), (_, _, second) = self.said(data)
        self.answer(FrameType.NACK, second, encodeNack(500, "disk"))
        self.answer(FrameType.NACK, 3, encodeNack(404, "unknown"))
        self.answer(FrameType.NACK, 0, encodeNack(401, "gone"))
        wanted = [(6, None, Nack(500, "disk")), (None, 3, Nack(404, "unknown")), (None, None, Nack(401, "gone"))]
        self.assertEqual((second - first, self.nacked), (1, wanted))

    def test_notStored(self) -> None:
        """A NACK to a PING says that ACKs are not stored; only those who flush are told, and a round goes on."""
        data, flush = self.talk.ping()
        polls, pending = self.talk.poll(7, 1)
        for _, _, correlation in (self.said(data)[0], self.said(polls)[1]):
            self.answer(FrameType.NACK, correlation, encodeNack(500, "disk"))
            self.answer(FrameType.PONG, correlation)
        self.assertEqual((flush.result(), pending.result()), (None, []))
        self.assertEqual(self.nacked, [(None, 0, Nack(500, "disk"))])

    def test_unasked(self) -> None:
        """What answers nothing ends the connection."""
        for kind, payload in (
            (FrameType.ACK, encodeSubscription(1)), (FrameType.PONG, b""), (FrameType.POLL, encodeSubscription(1)),
            (FrameType.PUBLISH, encodePublish("t", 1)),
        ):  # fmt: skip
            self.assertRaises(BrokerError, BlipConversation(lambda *told: None).received, encodeFrame(kind, 1, payload))

    def test_lost(self) -> None:
        """Whoever waits for an answer is told."""
        waiting = [self.talk.subscribe("t", 1)[1], self.talk.ping()[1], self.talk.poll(1, 1)[1]]
        self.talk.lost(ConnectionLost("gone"))
        for each in waiting:
            self.assertRaises(ConnectionLost, each.result)  # type: ignore[attr-defined]

    @given(st.lists(st.binary(max_size=40)))
    def test_anything(self, pieces: list[bytes]) -> None:
        """Whatever comes is understood or refused."""
        talk = BlipConversation(lambda *told: None)
        talk.poll(1, 3)
        try:
            for each in pieces:
                talk.received(each)
        except BrokerError:
            pass
