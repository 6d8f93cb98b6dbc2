"""FlexiMQ over WebSocket: the same conversation, in messages that are cut anywhere."""

import struct
import tracemalloc
import zlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.limits import KIBIBYTE, MEBIBYTE, Limits
from tests.dialects.admissions import REFUSAL, REFUSING
from tests.dialects.conversations import HERE, ConversationCase, inPieces, makeContext
from tests.dialects.flexi_peer import FlexiPeer
from tests.dialects.websocket.test_inflation import deflated
from tests.dialects.websocket_peer import BINARY, CLOSE, CONTINUATION, DEFLATE, PING, PONG, TEXT, WebSocketPeer, masked
from tests.nightly import repetitions
from tests.wire.flexi_frames import Heard, cut, frame


class FlexiWebSocketPeer(WebSocketPeer):
    """One FlexiMQ client on a WebSocket."""

    id = 0

    def tell(self, kind: str, header: Any = None, payload: bytes = b"") -> "FlexiWebSocketPeer":
        """Send one frame in one message."""
        self.say(masked(BINARY, frame(kind, self.id, header, payload)))
        return self

    def join(self) -> "FlexiWebSocketPeer":
        """JOIN, and take the id from the answer."""
        [heard] = self.tell("JOIN").messages()
        self.id = heard.sender
        return self

    def messages(self) -> list[Heard]:
        """Return the FlexiMQ messages received since the last time, which must all have come in binary messages."""
        frames = self.frames()
        if any(each.opcode != BINARY or each.rsv or not each.fin for each in frames):
            raise AssertionError(f"not only binary messages: {frames}")
        return cut(b"".join(each.payload for each in frames))


class FlexiWebSocketCase(ConversationCase):
    """FlexiMQ clients on WebSockets."""

    def setUp(self) -> None:
        """Start with default settings."""
        super().setUp()
        self.configure()

    def configure(self, **settings: Any) -> None:
        """Start with other settings."""
        self.context = makeContext(self.clock, **settings)
        self.factory = FlexiWebSocketFactory(self.context)

    def arrive(self, **fields: Any) -> FlexiWebSocketPeer:
        """Return a client that was upgraded."""
        peer = FlexiWebSocketPeer(self.factory, piece=self.piece)
        peer.upgrade(**fields)
        return peer

    def client(self, **fields: Any) -> FlexiWebSocketPeer:
        """Return a client that has joined."""
        return self.arrive(**fields).join()


class ConversationTests(FlexiWebSocketCase):
    """What is said, and how it is cut."""

    def test_join(self) -> None:
        """A JOIN is answered; the subprotocol is fleximq, where the client names it."""
        peer = self.arrive(Sec_WebSocket_Protocol="fleximq")
        self.assertIn(b"Sec-WebSocket-Protocol: fleximq", peer.head)
        [heard] = peer.tell("JOIN").messages()
        self.assertEqual((heard.kind, heard.header), ("REP", {"status": 200}))

    def test_earlyFrames(self) -> None:
        """Before the JOIN so many frames are taken, control frames and fragments too, and then 1008; not after it."""
        many = masked(BINARY, b"", fin=False) + masked(CONTINUATION, b"", fin=False) * 2000
        peer = self.arrive()
        peer.say(masked(PING) * 1000)
        self.assertEqual(([each.opcode for each in peer.frames()], peer.closed), ([PONG] * 1000, False))
        peer.say(masked(PING))
        self.assertEqual(
            [(each.opcode, each.payload[:2]) for each in peer.frames()], [(CLOSE, struct.pack(">H", 1008))]
        )
        fragments = self.arrive()
        fragments.say(many)
        self.assertEqual([(each.opcode, each.payload[:2]) for each in fragments.frames()],
                         [(CLOSE, struct.pack(">H", 1008))])  # fmt: skip
        joined = self.client()
        joined.say(many)
        self.assertEqual((joined.frames(), joined.closed), ([], False))

    def test_messagesOfAClosedConnectionAreIgnored(self) -> None:
        """Those that were read before it was lost, and not yet processed."""
        peer = self.client()
        peer.protocol.messages = [frame("PING", peer.id, {"keepalive": {"timestamp": 1}})]
        peer.protocol.session.lost()
        peer.protocol.deliverMessages()
        self.assertEqual((peer.frames(), self.flushLoggedErrors()), ([], []))

    def test_acrossTransports(self) -> None:
        """A publication reaches WebSockets and streams alike, from either."""
        peer = self.client()
        stream = FlexiPeer(FlexiFactory(self.context), HERE, self.piece).join().subscribe("news")
        peer.tell("SUB", {"topic": "news"})
        stream.publish("news", "one")
        self.assertEqual(
            [(each.kind, each.sender, each.value) for each in peer.messages()], [("PUB", stream.id, "one")]
        )
        stream.values()
        peer.tell("PUB", {"topic": "news"}, b"\xa3two")
        self.assertEqual(stream.values(), ["two"])
        self.assertEqual([each.value for each in peer.messages()], ["two"])

    def test_severalInOneMessage(self) -> None:
        """One message may hold several frames."""
        peer = self.client()
        peer.say(masked(BINARY, b"".join(self.ping(peer, stamp) for stamp in (1, 2, 3))))
        self.assertEqual(self.stamps(peer), [1, 2, 3])

    def test_cutAnywhere(self) -> None:
        """A frame may be cut anywhere: between messages, fragments, compressed or not."""
        peer = self.client(Sec_WebSocket_Extensions=DEFLATE)
        stream = b"".join(self.ping(peer, stamp) for stamp in (1, 2))
        for place in range(1, len(stream)):
            one, two = stream[:place], stream[place:]
            for said in (
                masked(BINARY, one) + masked(BINARY, two),
                masked(BINARY, one, fin=False) + masked(CONTINUATION, two),
                masked(BINARY, deflated(one), rsv=4) + masked(BINARY, two),
            ):
                peer.say(said)
                self.assertEqual(self.stamps(peer), [1, 2], place)

    def test_unfinishedMessage(self) -> None:
        """A frame is answered though the message that carries it goes on."""
        peer = self.client()
        peer.say(masked(BINARY, self.ping(peer, 1), fin=False))
        self.assertEqual(self.stamps(peer), [1])

    def test_pings(self) -> None:
        """A WebSocket's own PING is answered behind what came before it."""
        peer = self.client()
        said = masked(BINARY, self.ping(peer, 1))
        peer.say(said + masked(PING) + said)
        self.assertEqual([each.opcode for each in peer.frames()], [BINARY, PONG, BINARY])

    def ping(self, peer: FlexiWebSocketPeer, stamp: int) -> bytes:
        """Return a FlexiMQ PING."""
        return frame("PING", peer.id, {"keepalive": {"timestamp": stamp}})

    def stamps(self, peer: FlexiWebSocketPeer) -> list[int]:
        """Return the timestamps of the PONGs that came."""
        heard = peer.messages()
        self.assertEqual({each.kind for each in heard}, {"PONG"})
        return [each.header["keepalive"]["timestamp"] for each in heard]


class EndTests(FlexiWebSocketCase):
    """Limits and the end."""

    def test_text(self) -> None:
        """Text is refused with 1003."""
        peer = self.client()
        peer.say(masked(TEXT, b"hello"))
        self.assertEqual(peer.closeCode(), 1003)

    def test_refusedPeer(self) -> None:
        """A peer that may not come in gets 403."""
        self.configure(admission=REFUSING)
        self.assertIn(REFUSAL.encode(), self.arrive().head)

    def test_joinDeadline(self) -> None:
        """A client that never joins is closed with 1008."""
        self.configure(handshakeTimeout=5.0)
        peer = self.arrive()
        self.clock.advance(5.0)
        self.clock.advance(0)
        self.assertEqual(peer.closeCode(), 1008)

    def test_errorThatCloses(self) -> None:
        """An error that closes is answered in FlexiMQ's words first."""
        peer = self.arrive()
        peer.tell("PING", {"keepalive": {"timestamp": 1}})
        answer, close = peer.frames()
        self.assertEqual(cut(answer.payload)[0].header["status"], 401)
        self.assertEqual((close.opcode, close.payload[:2]), (CLOSE, struct.pack(">H", 1008)))

    def test_limit(self) -> None:
        """The limit is that of FlexiMQ messages: 413 and 1009 over it, found on the length, compressed or not."""
        self.configure(limits=Limits(message=KIBIBYTE))
        for isDeflated in (False, True):
            peer = self.client(Sec_WebSocket_Extensions=DEFLATE)
            said = frame("PUB", peer.id, {"topic": "t"}, bytes(KIBIBYTE))[:100]
            peer.say(masked(BINARY, deflated(said), rsv=4) if isDeflated else masked(BINARY, said))
            answer, close = peer.frames()
            self.assertEqual(cut(answer.payload)[0].header["status"], 413)
            self.assertEqual(close.payload[:2], struct.pack(">H", 1009))

    def test_messagesHaveNoLimit(self) -> None:
        """A WebSocket message may hold more than one FlexiMQ message may, compressed or not, in any fragments."""
        self.configure(limits=Limits(message=KIBIBYTE))
        peer = self.client(Sec_WebSocket_Extensions=DEFLATE)
        one = frame("PUB", peer.id, {"topic": "t"}, bytes(500))
        count = 4 * MEBIBYTE // len(one) if not self.piece else 100
        peer.tell("SUB", {"topic": "t"})
        data = deflated(one * count)
        half = len(data) // 2
        for said in (
            masked(BINARY, one * count),
            masked(BINARY, data, rsv=4),
            masked(BINARY, data[:half], fin=False, rsv=4) + masked(CONTINUATION, data[half:]),
        ):
            peer.say(said)
            self.assertEqual(len(peer.messages()), count)

    def test_inputEnds(self) -> None:
        """Who ends its input gets its answers, a close frame and the end."""
        peer = self.client()
        peer.endInput()
        self.assertEqual(peer.closeCode(), 1000)
        self.assertTrue(peer.closed)


class InflationTests(SynchronousTestCase):
    """Compressed messages."""

    def test_bomb(self) -> None:
        """A message that inflates to 100 MB is served in parts, none of which is much longer than one read."""
        stream = zlib.compressobj(9, zlib.DEFLATED, -15)
        peer = FlexiWebSocketPeer(FlexiWebSocketFactory(makeContext(Clock(), limits=Limits(message=128 * KIBIBYTE))))
        peer.upgrade(Sec_WebSocket_Extensions=DEFLATE)
        peer.join()
        one = frame("NOTIF", peer.id, {"routing": [{"client_id": 1, "path": ""}]}, bytes(100 * KIBIBYTE))
        bomb = b"".join(stream.compress(one) for _ in range(1000)) + stream.flush(zlib.Z_SYNC_FLUSH)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        peer.say(masked(BINARY, bomb[:-4], rsv=4))
        self.assertLess(tracemalloc.get_traced_memory()[1], 40 * MEBIBYTE)
        self.assertEqual(peer.frames(), [])
        self.assertFalse(peer.closed)

    @settings(max_examples=repetitions(40, 500), deadline=None)
    @given(st.lists(st.binary(max_size=100)), st.booleans())
    def test_anyBytes(self, said: list[bytes], joined: bool) -> None:
        """Arbitrary bytes in binary messages log no error."""
        peer = FlexiWebSocketPeer(FlexiWebSocketFactory(makeContext(Clock())))
        peer.upgrade()
        if joined:
            peer.join()
        for each in said:
            peer.say(masked(BINARY, each))
        peer.frames()
        peer.leave()
        self.assertEqual(self.flushLoggedErrors(), [])


globals().update(inPieces(ConversationTests))
