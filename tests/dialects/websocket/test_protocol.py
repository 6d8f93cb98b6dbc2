"""RFC 6455 towards the peer, on the face of an echo."""

import gc
import struct
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.session import LINGER
from fleximq.dialects.websocket import protocol
from tests.dialects.admissions import REFUSAL, REFUSING
from tests.dialects.conversations import inPieces, makeContext
from tests.dialects.echo import ERRORS, LIMIT, Echo, EchoCase, EchoFactory, closeFrame
from tests.dialects.websocket.test_inflation import deflated
from tests.dialects.websocket_peer import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    DEFLATE,
    PING,
    PONG,
    TEXT,
    Frame,
    WebSocketPeer,
    masked,
    text,
)
from tests.nightly import repetitions


class HandshakeTests(EchoCase):
    """From the request to the first frame."""

    def test_accepted(self) -> None:
        """The upgrade is answered as RFC 6455, section 1.3 has it, and no subprotocol is named."""
        peer = self.peer()
        self.assertTrue(peer.head.startswith(b"HTTP/1.1 101 "))
        self.assertIn(b"Sec-WebSocket-Accept: " + ACCEPT, peer.head)
        self.assertNotIn(b"Sec-WebSocket-Protocol", peer.head)
        self.assertNotIn(b"Sec-WebSocket-Extensions", peer.head)
        self.assertEqual(peer.askText("hello"), ["hello"])

    def test_subprotocol(self) -> None:
        """The dialect's own subprotocol is chosen from those the client names."""
        peer = self.peer(Sec_WebSocket_Protocol="mqtt, echo")
        self.assertIn(b"Sec-WebSocket-Protocol: echo", peer.head)

    def test_foreignSubprotocol(self) -> None:
        """Where none of them is, none is chosen."""
        peer = self.peer(Sec_WebSocket_Protocol="mqtt")
        self.assertTrue(peer.head.startswith(b"HTTP/1.1 101 "))
        self.assertNotIn(b"Sec-WebSocket-Protocol", peer.head)

    def test_anyOrigin(self) -> None:
        """Origins are looked at elsewhere; here all pass."""
        for origin in ("null", "file://", "https://example.com", "chrome-extension://abcdef", "http://[::1]:80"):
            peer = self.peer(Origin=origin)
            self.assertTrue(peer.head.startswith(b"HTTP/1.1 101 "), (origin, peer.head))

    def test_framesBehindTheRequest(self) -> None:
        """Frames that come in one read with the request are answered."""
        peer = WebSocketPeer(self.factory(), piece=self.piece).upgrade(behind=text("one") + text("two"))
        self.assertEqual(peer.texts(), ["one", "two"])

    def test_joinsOnce(self) -> None:
        """The client joins with the upgrade, not before."""
        peer = WebSocketPeer(self.factory(), piece=self.piece)
        self.assertEqual(len(self.context.broker.clients), 0)
        peer.upgrade()
        self.assertEqual(len(self.context.broker.clients), 1)

    def test_badRequests(self) -> None:
        """What is no upgrade is answered with an HTTP error, then the connection closes."""
        good = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        version = b"Sec-WebSocket-Version: 13\r\n"
        for request, code in (
            (good + version, 400),
            (good + key, 400),
            (good + key + b"Sec-WebSocket-Version: 8\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\n" + key + version, 426),
            (b"POST / HTTP/1.1\r\n" + key + version, 405),
            (b"nonsense\r\n", 400),
        ):
            peer = WebSocketPeer(self.factory(), piece=self.piece)
            answer = peer.ask(request + b"\r\n")
            self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % code), answer)
            self.assertTrue(peer.closed)
            peer.leave()
            self.assertEqual(self.event("not let in: no WebSocket"), 1)

    def test_longRequest(self) -> None:
        """A head without an end is not gathered for ever."""
        peer = WebSocketPeer(self.factory())
        answer = peer.ask(b"GET / HTTP/1.1\r\nX: " + b"x" * 70000)
        self.assertTrue(answer.startswith(b"HTTP/1.1 431 "))
        self.assertTrue(peer.closed)

    def test_refusedPeer(self) -> None:
        """A peer that may not come in gets 403 and the reason."""
        peer = WebSocketPeer(self.factory(admission=REFUSING), piece=self.piece).upgrade()
        self.assertTrue(peer.head.startswith(b"HTTP/1.1 403 " + REFUSAL.encode()), peer.head)
        self.assertTrue(peer.closed)

    def test_deadline(self) -> None:
        """A connection that never asks for an upgrade is closed without a frame."""
        peer = WebSocketPeer(self.factory(handshakeTimeout=5.0))
        self.clock.advance(4.9)
        self.assertFalse(peer.closed)
        self.clock.advance(0.2)
        self.assertTrue(peer.closed)
        self.assertEqual(peer.heard(), b"")

    def test_failureInside(self) -> None:
        """A request that our own fault keeps from being answered is answered with 500."""
        peer = WebSocketPeer(self.factory(), piece=self.piece)
        peer.protocol.session.refusal = None
        peer.upgrade()
        self.assertEqual(peer.head, b"HTTP/1.1 500 internal error\r\nConnection: close")
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_failureInAutobahn(self) -> None:
        """So is one that Autobahn gives no answer to, which logs a failure when it is freed."""
        factory = self.factory()
        factory.parserFactory.headers = None
        peer = WebSocketPeer(factory, piece=self.piece).upgrade()
        self.assertEqual(peer.head, b"HTTP/1.1 500 internal error\r\nConnection: close")
        self.assertTrue(peer.closed)
        peer.leave()
        gc.collect()
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)


class MessageTests(EchoCase):
    """Messages of all shapes arrive in order."""

    def test_sizes(self) -> None:
        """Whatever its length's form, a message arrives."""
        peer = self.peer()
        for size in (0, 1, 125, 126, 127, LIMIT):
            self.assertEqual(peer.askText("x" * size), ["x" * size])

    def test_binary(self) -> None:
        """Binary messages that are text arrive too; others are ignored."""
        peer = self.peer()
        peer.say(masked(BINARY, "é".encode()) + masked(BINARY, b"\xff") + text("next"))
        self.assertEqual(peer.texts(), ["é", "next"])

    def test_fragments(self) -> None:
        """Fragments are one message, also where a character is cut in two."""
        peer = self.peer()
        euro = "€".encode()
        peer.say(masked(TEXT, euro[:1], fin=False) + masked(CONTINUATION, euro[1:2], fin=False))
        self.assertEqual(peer.texts(), [])
        peer.say(masked(CONTINUATION, euro[2:]) + text("next"))
        self.assertEqual(peer.texts(), ["€", "next"])

    def test_emptyFragments(self) -> None:
        """Fragments may be empty, the last one too."""
        peer = self.peer()
        empty = masked(CONTINUATION, fin=False)
        peer.say(masked(TEXT, b"a", fin=False) + empty * 5 + masked(CONTINUATION))
        self.assertEqual(peer.texts(), ["a"])

    def test_orderOfBothWays(self) -> None:
        """Small frames, fragments, compressed and unmasked-by-zero ones keep their order."""
        peer = self.peer(Sec_WebSocket_Extensions=DEFLATE)
        peer.say(
            text("1")
            + masked(TEXT, deflated(b"2"), rsv=4)
            + masked(TEXT, b"3", fin=False)
            + masked(PONG, b"")
            + masked(CONTINUATION, b"3")
            + masked(TEXT, b"4", mask=bytes(4))
            + masked(BINARY, b"5")
        )
        self.assertEqual(peer.texts(), ["1", "2", "33", "4", "5"])

    def test_pings(self) -> None:
        """A PING is answered behind the answers to what came before it."""
        peer = self.peer()
        peer.say(text("1") + masked(PING, b"p" * 125) + text("2") + masked(PING))
        self.assertEqual(
            peer.frames(), [Frame(TEXT, b"1"), Frame(PONG, b"p" * 125), Frame(TEXT, b"2"), Frame(PONG, b"")]
        )

    def test_pingInsideMessage(self) -> None:
        """A PING between fragments is answered at once."""
        peer = self.peer()
        peer.say(masked(TEXT, b"a", fin=False) + masked(PING, b"p"))
        self.assertEqual(peer.frames(), [Frame(PONG, b"p")])
        peer.say(masked(CONTINUATION, b"b"))
        self.assertEqual(peer.texts(), ["ab"])

    def test_deflate(self) -> None:
        """permessage-deflate is accepted for what comes in; what goes out is not compressed."""
        peer = self.peer(Sec_WebSocket_Extensions=DEFLATE)
        self.assertIn(b"Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover", peer.head)
        data = deflated(b"hello " * 50)
        self.assertEqual(peer.say(masked(TEXT, data, rsv=4)).frames(), [Frame(TEXT, b"hello " * 50)])

    def test_deflatedFragments(self) -> None:
        """A compressed message may be cut into fragments; each message is inflated by itself."""
        peer = self.peer(Sec_WebSocket_Extensions=DEFLATE)
        data = deflated(b"hello")
        for _ in range(2):
            peer.say(masked(TEXT, data[:3], fin=False, rsv=4) + masked(CONTINUATION, data[3:]))
        self.assertEqual(peer.texts(), ["hello", "hello"])

    def test_declinedOffers(self) -> None:
        """Offers that cannot be accepted are declined, and the WebSocket is opened without compression."""
        for offer in (
            "server_max_window_bits", "server_max_window_bits=8", "server_max_window_bits=16", "unknown",
            "server_max_window_bits=010", "server_max_window_bits=1_0", "server_max_window_bits=", "unknown=1",
            "client_max_window_bits=7", "client_max_window_bits=x", "client_no_context_takeover=1",
            "server_no_context_takeover=true",
            "client_max_window_bits; client_max_window_bits", "",
        ):  # fmt: skip
            peer = self.peer(Sec_WebSocket_Extensions=f"permessage-deflate; {offer}")
            self.assertTrue(peer.head.startswith(b"HTTP/1.1 101 "), (offer, peer.head))
            self.assertNotIn(b"Sec-WebSocket-Extensions", peer.head, offer)
            self.assertEqual(peer.askText("plain"), ["plain"])
        peer = self.peer(Sec_WebSocket_Extensions="permessage-bzip2; x=1, permessage-snappy; y")
        self.assertTrue(peer.head.startswith(b"HTTP/1.1 101 "), peer.head)

    def test_severalOffers(self) -> None:
        """The first offer that can be accepted is, whether they share a field or not; its window is confirmed."""
        fits = 'permessage-deflate; server_no_context_takeover; server_max_window_bits="10"; client_max_window_bits=12'
        answer = (
            b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; server_max_window_bits=10; "
            b"client_no_context_takeover\r\n"
        )
        several: list[dict[str, str]] = [
            {"Sec_WebSocket_Extensions": f"permessage-deflate; x, foo, {fits}, permessage-deflate"},
            {"Sec_WebSocket_Extensions": "permessage-deflate; x", "sec_websocket_extensions": fits, "Via": "x"},
        ]
        for fields in several:
            peer = self.peer(**fields)
            self.assertIn(answer, peer.head + b"\r\n")
            self.assertEqual(peer.say(masked(TEXT, deflated(b"hello"), rsv=4)).frames(), [Frame(TEXT, b"hello")])

    def test_foreignExtensions(self) -> None:
        """Extensions that are not known are not accepted."""
        peer = self.peer(Sec_WebSocket_Extensions="x-webkit-deflate-frame, permessage-foo")
        self.assertTrue(peer.head.startswith(b"HTTP/1.1 101 "))
        self.assertNotIn(b"Sec-WebSocket-Extensions", peer.head)


class ViolationTests(EchoCase):
    """What breaks the protocol is answered by its code, behind the answers to what came before."""

    def assertCode(self, code: int, data: bytes, **fields: str) -> WebSocketPeer:
        """Check that these bytes are answered with this code, and what follows with nothing."""
        peer = self.peer(**fields)
        peer.say(text("before") + data + text("behind"))
        frames = peer.frames()
        self.assertEqual([frame.opcode for frame in frames], [TEXT, CLOSE], data[:20])
        self.assertEqual(frames[0].payload, b"before")
        self.assertEqual(struct.unpack(">H", frames[1].payload[:2])[0], code, data[:20])
        return peer

    def test_protocolErrors(self) -> None:
        """1002, and the connection closes without waiting."""
        for data in (
            masked(TEXT, b"hello", mask=None),
            masked(CLOSE, b"\x03\xe8", mask=None),
            *(masked(TEXT, b"hello", rsv=rsv) for rsv in range(1, 8)),
            *(masked(opcode, b"hello") for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
            masked(PING, b"p", fin=False),
            masked(PING, b"p" * 126),
            masked(PING, b"p", length=1 << 60, width=8),
            masked(CONTINUATION, b"x"),
            masked(TEXT, b"a", fin=False) + masked(TEXT, b"b"),
            masked(TEXT, b"a", fin=False) + masked(BINARY, b"b", fin=False),
            masked(TEXT, b"x" * 125, width=2),
            masked(TEXT, b"x" * 125, width=8),
            masked(TEXT, b"x", length=1 << 63, width=8),
            masked(CLOSE, b"\x03"),
            closeFrame(999),
            closeFrame(1005),
            closeFrame(1006),
            closeFrame(2999),
            closeFrame(5000),
        ):
            peer = self.assertCode(1002, data)
            self.assertTrue(peer.closed, data)
            self.assertFalse(peer.aborted)

    def test_compressedWrongly(self) -> None:
        """1002 for compressed control frames and continuations, where compression was agreed on."""
        data = deflated(b"hello")
        for wrong in (
            masked(PING, b"p", rsv=4),
            masked(TEXT, data[:2], fin=False, rsv=4) + masked(CONTINUATION, data[2:], rsv=4),
            masked(TEXT, data, rsv=6),
        ):
            self.assertCode(1002, wrong, Sec_WebSocket_Extensions=DEFLATE)

    def test_noUtf8(self) -> None:
        """1007 for text that is none, in a frame, in fragments, and in the words of a close frame."""
        for data in (
            masked(TEXT, b"caf\xe9"),
            masked(TEXT, b"\xff" * 300),
            masked(TEXT, b"\xe2\x82", fin=False) + masked(CONTINUATION, b"!"),
            closeFrame(1000, b"\xff"),
        ):
            self.assertCode(1007, data)

    def test_noDeflate(self) -> None:
        """1007 for a compressed message that is not, or is cut off."""
        for data in (b"\xff" * 10, deflated(bytes(range(256)))[:100]):
            self.assertCode(1007, masked(TEXT, data, rsv=4), Sec_WebSocket_Extensions=DEFLATE)

    def test_lateFrames(self) -> None:
        """Behind our close frame the peer's is looked for, but not among any number of frames."""
        self.patch(protocol, "LATE_FRAMES", 10)
        for number, closes in ((9, True), (10, False)):
            peer = self.peer()
            peer.say(masked(TEXT, b"x" * (LIMIT + 1)))
            peer.say(masked(PING) * number + masked(CLOSE, b"\x03\xe8"))
            self.assertEqual(peer.closed, closes, number)
            self.clock.advance(LINGER)
            self.assertTrue(peer.closed)

    def test_tooLarge(self) -> None:
        """1009 for a message over the limit; one of the limit passes."""
        for good in (
            masked(TEXT, b"x" * LIMIT),
            masked(TEXT, b"x" * (LIMIT - 1), fin=False) + masked(CONTINUATION, b"x"),
            masked(TEXT, deflated(b"x" * LIMIT), rsv=4),
        ):
            peer = self.peer(Sec_WebSocket_Extensions=DEFLATE)
            peer.say(good)
            self.assertEqual(peer.texts(), ["x" * LIMIT])
        for bad in (
            masked(TEXT, b"x" * (LIMIT + 1), fin=False) + masked(CONTINUATION),
            masked(TEXT, b"x" * LIMIT, fin=False) + masked(CONTINUATION, b"x"),
            masked(TEXT, deflated(b"x" * (LIMIT + 1)), rsv=4),
        ):
            self.assertCode(1009, bad, Sec_WebSocket_Extensions=DEFLATE)

    def test_tooLargeWords(self) -> None:
        """The close frame names the limit, however the message came."""
        for bad in (masked(TEXT, b"x" * (LIMIT + 1)), masked(TEXT, deflated(b"x" * (LIMIT + 1)), rsv=4)):
            peer = self.peer(Sec_WebSocket_Extensions=DEFLATE)
            peer.say(bad)
            self.assertEqual(peer.frames()[-1].payload[2:].decode(), f"a message may have {LIMIT} bytes")

    def test_tooLargeInOneFrame(self) -> None:
        """So is a frame that could be taken quickly."""
        self.assertCode(1009, masked(TEXT, b"x" * (LIMIT + 1)))

    def test_refusedOnItsLength(self) -> None:
        """A frame over the limit is refused before its bytes arrive."""
        for size in (LIMIT + 1, 1 << 40):
            peer = self.peer()
            peer.say(masked(TEXT, b"", length=size, width=2 if size < 1 << 16 else 8))
            self.assertEqual(peer.closeCode(), 1009)

    def test_bomb(self) -> None:
        """A message that would inflate to 64 MiB is given up, and the peer's close frame behind it is still found."""
        stream = zlib.compressobj(9, zlib.DEFLATED, -15)
        bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(64)) + stream.flush(zlib.Z_SYNC_FLUSH)
        peer = self.peer(Sec_WebSocket_Extensions=DEFLATE)
        peer.say(masked(TEXT, bomb[:-4], rsv=4))
        self.assertEqual(peer.closeCode(), 1009)
        self.assertFalse(peer.closed)
        peer.say(closeFrame(1009))
        self.assertTrue(peer.closed)

    def test_skipsWhatIsTooLarge(self) -> None:
        """The rest of a frame that was too large is skipped, until the peer has closed."""
        peer = self.peer()
        frame = masked(TEXT, b"x" * (LIMIT * 20))
        peer.say(frame[:100])
        self.assertEqual(peer.closeCode(), 1009)
        peer.say(frame[100:] + text("more") + masked(PING))
        self.assertEqual(peer.frames(), [])
        self.assertFalse(peer.closed)
        peer.say(closeFrame(1009))
        self.assertTrue(peer.closed)

    def test_nothingIsLogged(self) -> None:
        """A peer's fault is no error of ours."""
        self.test_protocolErrors()
        self.assertEqual(self.flushLoggedErrors(), [])


class BoundTests(SynchronousTestCase):
    """Nothing a peer sends is held without bound."""

    def peer(self) -> WebSocketPeer:
        """Return an upgraded peer with compression."""
        factory = EchoFactory(makeContext(Clock()), Echo, lambda: LIMIT)
        return WebSocketPeer(factory).upgrade(Sec_WebSocket_Extensions=DEFLATE)

    def buffered(self, peer: WebSocketPeer) -> int:
        """Return how many bytes, and objects for them, wait in a face."""
        face = peer.protocol
        parser = vars(face._parser)
        held = len(parser["data"]) + sum(map(len, parser.get("control_frame_data") or ()))
        gathered = face._gathered
        return len(face._input) + int(gathered.buffered) + len(gathered._pieces) + len(face.messages) + held

    def test_emptyFragments(self) -> None:
        """A message of nothing but empty fragments takes no room."""
        peer = self.peer()
        peer.say(masked(TEXT, fin=False) + masked(CONTINUATION, fin=False) * 10000)
        self.assertEqual(self.buffered(peer), 0)

    def test_smallFragments(self) -> None:
        """One of single bytes takes no more than their number."""
        peer = self.peer()
        peer.say(masked(TEXT, fin=False) + masked(CONTINUATION, b"x", fin=False) * 1000)
        self.assertLessEqual(self.buffered(peer), 1001)

    def test_behindTheEnd(self) -> None:
        """Whatever comes behind a violation, a close frame or a refused request is dropped."""
        for end in (masked(TEXT, b"x", mask=None), closeFrame(1000), masked(PING, b"", length=1 << 60, width=8)):
            peer = self.peer()
            peer.say(end)
            for _ in range(10):
                peer.protocol.dataReceived(b"x" * 10000)
            self.assertLessEqual(self.buffered(peer), 14, end)

    def test_linear(self) -> None:
        """A read full of small control frames does not copy the read for each of them."""
        peer = self.peer()
        seen: list[int] = []
        parser = peer.protocol._parser
        parse = parser.receive

        def receive(data: bytes) -> None:
            seen.append(len(data))
            parse(data)

        parser.receive = receive
        peer.say(masked(PONG) * 1000)
        self.assertLess(max(seen), 20)

    @settings(max_examples=repetitions(120, 1500), deadline=None)
    @given(st.data())
    def test_anyBytes(self, data: st.DataObject) -> None:
        """Arbitrary bytes and frames in arbitrary pieces raise nothing, log no error, and are not piled up."""
        frames = st.builds(
            masked,
            opcode=st.integers(0, 15) | st.sampled_from([0, 1, 1, 2, 8, 9]),
            payload=st.binary(max_size=200) | st.binary(max_size=50).map(deflated),
            fin=st.booleans(),
            rsv=st.sampled_from([0, 0, 0, 0, 4, 4, 1]),
            mask=st.none() | st.binary(min_size=4, max_size=4),
            length=st.none() | st.none() | st.just(100),
        )
        peer = self.peer()
        stream = b"".join(data.draw(st.lists(frames | st.binary(max_size=30), max_size=12)))
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            if not peer.closed:
                peer.protocol.dataReceived(stream[:size])
            stream = stream[size:]
            self.assertLessEqual(self.buffered(peer), LIMIT + 300)
        peer.frames()
        peer.leave()
        self.assertEqual(self.flushLoggedErrors(), [])

    @settings(deadline=None)
    @given(st.lists(st.text(max_size=200), max_size=10), st.data())
    def test_anyPieces(self, texts: list[str], data: st.DataObject) -> None:
        """However frames are cut, what arrives is what was sent."""
        said = [each for each in texts if each not in {*ERRORS, "boom", "end", "abort"}]
        stream = b"".join(
            masked(TEXT, each.encode()) if place % 3 else masked(TEXT, deflated(each.encode()), rsv=4)
            for place, each in enumerate(said)
        )
        peer = self.peer()
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            peer.protocol.dataReceived(stream[:size])
            stream = stream[size:]
        self.assertEqual(peer.texts(), said)


globals().update(inPieces(MessageTests))
