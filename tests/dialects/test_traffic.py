"""What each dialect counts of its connections."""

from typing import Any

import msgpack
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.traffic import Traffic
from fleximq.config.settings import Settings
from fleximq.services.compose import compose
from fleximq.wire.blipmq_frame import FrameType
from fleximq.wire.blipmq_frame import encodeFrame as blip
from fleximq.wire.blipmq_payload import encodeAuth, encodeHello, encodePublish, encodeSubscribe, encodeSubscription
from fleximq.wire.fleximq_frame import encodeFrame
from fleximq.wire.fleximq_header import MessageType
from tests.dialects.conversations import Peer


class TrafficTests(SynchronousTestCase):
    """A whole broker, and one connection at a time."""

    def setUp(self) -> None:
        """One listener for all."""
        reactor: Any = MemoryReactorClock()
        self.whole: Any = compose(reactor, Settings())
        self.whole.privilegedStartService()
        self.whole.startService()
        self.addCleanup(self.whole.stopService)
        self.factory = reactor.tcpServers[0][1]
        self.broker = next(each.broker for each in self.whole if hasattr(each, "broker"))

    def numbers(self, dialect: str) -> tuple[int, ...]:
        """Return what was counted for a dialect: messages in and out, bytes in and out."""
        each: Traffic = self.broker.traffic.totals()[dialect]
        return each.messagesIn, each.messagesOut, each.bytesIn, each.bytesOut

    def test_fleximq(self) -> None:
        """Frames count, whatever they are and whoever takes them; deliveries go to who takes them."""
        one, two = Peer(self.factory), Peer(self.factory)
        sent = 0
        for number, peer in enumerate((one, two)):
            frames = encodeFrame(MessageType.JOIN, 0) + encodeFrame(
                MessageType.SUB, 1000 + number, msgpack.packb({"topic": "a"})
            )
            sent += len(frames)
            peer.say(frames)
        topics = [msgpack.packb({"topic": name}) for name in ("a", "a", "b", "a")]
        frames = b"".join(encodeFrame(MessageType.PUB, 1000, header, b"\x01") for header in topics)
        one.say(frames).say(frames)
        heard = len(one.heard()) + len(two.heard())
        self.assertEqual(self.numbers("fleximq"), (4 + 8, 2 * 6, sent + 2 * len(frames), heard))

    def test_fleximqInPieces(self) -> None:
        """A frame that comes in pieces counts once."""
        peer = Peer(self.factory)
        join = encodeFrame(MessageType.JOIN, 0)
        for place in range(len(join)):
            peer.say(join[place : place + 1])
        self.assertEqual(self.numbers("fleximq")[0], 1)

    def test_minimq(self) -> None:
        """Lines count; what is consumed was delivered, an empty queue delivers nothing."""
        lines = b"PRODUCE:a:1\nPRODUCE:a:2\nCONSUME:a\nCONSUME:a\nCONSUME:a\nPI"
        peer = Peer(self.factory).say(lines).say(b"NG:\n")
        self.assertEqual(self.numbers("minimq"), (6, 2, len(lines) + 4, len(peer.heard())))

    def test_blipmq(self) -> None:
        """Frames count; what is polled was delivered."""
        peer = Peer(self.factory)
        said = 0
        for frame in (
            blip(FrameType.HELLO, 1, encodeHello()),
            blip(FrameType.AUTH, 2, encodeAuth("k")),
            blip(FrameType.SUBSCRIBE, 3, encodeSubscribe("a", 0)),
            blip(FrameType.PUBLISH, 4, encodePublish("a", 0) + b"x"),
            blip(FrameType.POLL, 5, encodeSubscription(1)),
            blip(FrameType.POLL, 6, encodeSubscription(1)),
        ):
            said += len(frame)
            peer.say(frame)
        self.assertEqual(self.numbers("blipmq"), (6, 1, said, len(peer.heard())))

    def test_gone(self) -> None:
        """What went over a connection stays counted when it is gone."""
        peer = Peer(self.factory).say(b"PING:\n")
        before = self.numbers("minimq")
        peer.leave()
        self.assertEqual(self.numbers("minimq"), before)
        self.assertEqual(self.broker.traffic.connections(), {"minimq": 0})
