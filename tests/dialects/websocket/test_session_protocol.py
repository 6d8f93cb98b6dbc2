"""The WebSocket face: how a session's life goes on it, and what a read costs."""

import struct

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.outbox import markOf
from fleximq.dialects.session import LINGER
from fleximq.dialects.websocket.session_protocol import closeCode
from fleximq.limits import Limits
from fleximq.wire import websocket_frame
from fleximq.wire.websocket_frame import encodeFrame
from tests.dialects.conversations import makeContext
from tests.dialects.echo import LIMIT, Echo, EchoCase, EchoFactory, closeFrame
from tests.dialects.websocket_peer import CLOSE, PING, TEXT, Frame, WebSocketPeer, masked, text


class ClosingTests(EchoCase):
    """How a connection ends."""

    def session(self, peer: WebSocketPeer) -> Echo:
        """Return a peer's session."""
        session: Echo = peer.protocol.session
        return session

    def test_peerCloses(self) -> None:
        """The peer's close frame is echoed behind the pending answers, then the connection closes."""
        peer = self.peer()
        peer.say(text("last") + closeFrame(3001, "tschüß".encode()) + text("never"))
        self.assertEqual(peer.frames(), [Frame(TEXT, b"last"), Frame(CLOSE, b"\x0b\xb9" + "tschüß".encode())])
        self.assertTrue(peer.closed)
        peer.leave()
        self.assertEqual(self.event("left: client closed"), 1)

    def test_peerClosesWithoutCode(self) -> None:
        """A close frame may be empty, and so is its answer."""
        peer = self.peer()
        peer.say(masked(CLOSE))
        self.assertEqual(peer.frames(), [Frame(CLOSE, b"")])
        self.assertTrue(peer.closed)

    def test_weClose(self) -> None:
        """Our close frame stands behind pending answers; the peer's answer closes the connection."""
        peer = self.peer()
        peer.sayText("answer", "end", "never")
        frames = peer.frames()
        self.assertEqual([frame.opcode for frame in frames], [TEXT, CLOSE])
        self.assertEqual(frames[1].payload, b"\x03\xe9asked to")
        self.assertFalse(peer.closed)
        peer.say(closeFrame(1001))
        self.assertTrue(peer.closed)
        self.assertFalse(peer.aborted)
        peer.leave()
        self.assertEqual(self.event("left: asked to"), 1)

    def test_noAnswer(self) -> None:
        """A peer that does not answer our close frame is dropped after a while."""
        peer = self.peer()
        peer.sayText("end")
        self.clock.advance(LINGER - 0.1)
        self.assertFalse(peer.closed)
        self.clock.advance(0.2)
        self.assertTrue(peer.aborted)

    def test_bothClose(self) -> None:
        """Close frames that cross are answers to each other."""
        peer = self.peer()
        self.session(peer).end("asked to")
        self.clock.advance(0)
        peer.say(closeFrame(1000))
        self.assertEqual([frame.opcode for frame in peer.frames()], [CLOSE])
        self.assertTrue(peer.closed)

    def test_nothingBehindTheCloseFrame(self) -> None:
        """No data follows a close frame."""
        peer = self.peer()
        session = self.session(peer)
        session.end("asked to")
        self.clock.advance(0)
        peer.frames()
        session.outbox.take(encodeFrame(websocket_frame.TEXT, b"late"))
        self.clock.advance(0)
        self.assertEqual(peer.frames(), [])

    def test_inputEnds(self) -> None:
        """A peer that ends its input gets its answers, a close frame and the end; no frame of its can come."""
        peer = self.peer()
        peer.sayText("one").endInput()
        self.assertEqual(peer.frames(), [Frame(TEXT, b"one"), Frame(CLOSE, b"\x03\xe8client closed")])
        self.assertTrue(peer.closed)

    def test_inputEndsInsteadOfAnswer(self) -> None:
        """One that ends its input instead of answering our close frame is not waited for."""
        peer = self.peer()
        peer.sayText("end").endInput()
        self.assertTrue(peer.closed)

    def test_lost(self) -> None:
        """A lost connection leaves the broker."""
        peer = self.peer()
        peer.leave()
        self.assertIs(self.session(peer).state, ConnectionState.CLOSED)
        self.assertEqual(len(self.context.broker.clients), 0)
        self.assertEqual(self.event("left: connection lost"), 1)
        self.assertEqual(len(self.context.broker.deadlines), 0)

    def test_lostBeforeTheHandshake(self) -> None:
        """Nothing is left behind by one that was lost before."""
        WebSocketPeer(self.factory()).leave()
        self.assertEqual(len(self.context.broker.deadlines), 0)

    def test_slowPeer(self) -> None:
        """A peer that does not read what it asked for is dropped."""
        peer = WebSocketPeer(self.factory(limits=Limits(outboxBytes=1000)), piece=self.piece).upgrade()
        self.assertEqual(peer.askText(""), [""])
        peer.producer.pauseProducing()
        peer.sayText("x" * (markOf(1000) - 6))
        self.assertFalse(peer.aborted)
        peer.sayText("x")
        self.assertTrue(peer.aborted)
        peer.leave()
        self.assertEqual(self.event("left: slow consumer"), 1)

    def test_codes(self) -> None:
        """The code follows from why the session ended."""
        for reason, code in (
            ("client closed", 1000),
            ("error 413", 1009),
            ("error 500", 1011),
            ("error 503", 1013),
            ("broker stopped", 1012),
            ("error 401", 1008),
            ("handshake deadline", 1008),
            ("internal error", 1011),
            ("keep-alive", 1001),
            ("the broker stops", 1001),
        ):
            self.assertEqual(closeCode(reason), code, reason)


class FaultTests(EchoCase):
    """What a session raises."""

    def test_error(self) -> None:
        """An error is answered, and the connection lives on."""
        peer = self.peer()
        self.assertEqual(peer.askText("refuse"), ["error 400"])
        self.assertEqual(peer.askText("hello"), ["hello"])

    def test_errorThatCloses(self) -> None:
        """One that cannot be got over closes, behind its answer."""
        for word, status, code in (("framing", 400, 1008), ("large", 413, 1009)):
            peer = self.peer()
            peer.sayText(word)
            frames = peer.frames()
            self.assertEqual(frames[0], Frame(TEXT, f"error {status}".encode()))
            self.assertEqual(frames[1].payload[:2], struct.pack(">H", code))

    def test_unforeseen(self) -> None:
        """Anything else is logged and answered, and that connection closes."""
        peer = self.peer()
        peer.sayText("boom", "never")
        frames = peer.frames()
        self.assertEqual([frame.payload for frame in frames], [b"error 500", b"\x03\xf3internal error"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_unforeseenInTheParser(self) -> None:
        """So is what goes wrong before a message is whole."""
        peer = self.peer()
        peer.protocol._parser.onPing = None
        peer.say(masked(PING))
        self.assertEqual(peer.closeCode(), 1011)
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)


class CountingTransport(StringTransport):
    """Counts its writes."""

    writes = 0

    def write(self, data: bytes) -> None:
        """Count."""
        self.writes += 1
        super().write(data)


class TurnTests(SynchronousTestCase):
    """What one read costs."""

    def test_oneWrite(self) -> None:
        """All that one read brings about is written at once, Autobahn's frames included."""
        clock = Clock()
        peer = WebSocketPeer(EchoFactory(makeContext(clock), Echo, lambda: LIMIT)).upgrade()
        transport = CountingTransport()
        transport.registerProducer(peer.protocol.session.outbox, True)
        peer.protocol.session.outbox._transport = transport
        peer.say(text("1") * 100 + masked(PING) + text("2") * 100 + masked(TEXT, b"3", fin=False) + closeFrame(1000))
        self.assertEqual(transport.writes, 1)

    def test_abort(self) -> None:
        """An abort drops what waits to be written."""
        peer = WebSocketPeer(EchoFactory(makeContext(Clock()), Echo, lambda: LIMIT)).upgrade()
        peer.sayText("pending", "abort", "never")
        self.assertEqual(peer.frames(), [])
        self.assertTrue(peer.aborted)

    def test_interface(self) -> None:
        """The face hears of ended input."""
        face = EchoFactory(makeContext(Clock()), Echo, lambda: LIMIT).buildProtocol(None)
        verifyObject(IHalfCloseableProtocol, face)
