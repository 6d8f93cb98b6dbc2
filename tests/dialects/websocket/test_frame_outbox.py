"""The outboxes of WebSockets: order, framing, and the two steps of closing."""

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.websocket.frame_outbox import MESSAGE_BYTES, FramingOutbox, WebSocketOutbox
from tests.dialects.websocket_peer import BINARY, PONG, Frame, decode

PONG_FRAME = b"\x8a\x00"
CLOSE_FRAME = b"\x88\x02\x03\xe8"


class OutboxCase(SynchronousTestCase):
    """An outbox whose farewell says a close frame."""

    outboxClass: type[WebSocketOutbox] = WebSocketOutbox
    awaits = True

    def setUp(self) -> None:
        """Let the farewells be counted."""
        self.transport = StringTransport(lenient=True)
        self.turn = WriteTurn(Clock())
        self.farewells = 0
        self.overflows = 0
        self.outbox = self.outboxClass(self.transport, self.turn, 1000, self._overflow, farewell=self._farewell)

    def _overflow(self) -> None:
        self.overflows += 1

    def _farewell(self) -> bool:
        self.farewells += 1
        self.outbox.takeFrame(CLOSE_FRAME)
        return self.awaits

    def written(self) -> bytes:
        """Return what one turn wrote."""
        self.turn.flush()
        written: bytes = self.transport.value()
        self.transport.clear()
        return written


class WebSocketOutboxTests(OutboxCase):
    """Whole frames, as they are."""

    def test_order(self) -> None:
        """What is taken is written in order, Autobahn's frames between the others."""
        self.outbox.take(b"one")
        self.outbox.takeFrame(PONG_FRAME)
        self.outbox.take(b"two")
        self.assertEqual(self.written(), b"one" + PONG_FRAME + b"two")

    def test_close(self) -> None:
        """The close frame stands behind what waits; the connection stays until the peer has answered."""
        self.outbox.take(b"last")
        self.outbox.close()
        self.assertEqual(self.written(), b"last" + CLOSE_FRAME)
        self.assertFalse(self.transport.disconnecting)
        self.outbox.finish()
        self.assertTrue(self.transport.disconnecting)

    def test_nothingBehindTheClose(self) -> None:
        """What comes behind the close frame is dropped."""
        self.outbox.close()
        self.written()
        self.outbox.take(b"late")
        self.assertEqual(self.written(), b"")

    def test_closeTwice(self) -> None:
        """Only one farewell is said."""
        self.outbox.close()
        self.outbox.close()
        self.assertEqual(self.farewells, 1)

    def test_withoutAnswer(self) -> None:
        """Where no answer is to be awaited, the connection closes at once."""
        self.awaits = False
        self.outbox.close()
        self.assertTrue(self.transport.disconnecting)

    def test_finishBeforeClose(self) -> None:
        """There is nothing to finish before it was closed."""
        self.outbox.finish()
        self.assertFalse(self.transport.disconnecting)

    def test_closeWhileHeld(self) -> None:
        """A peer that does not read gets the rest and the close frame when it does."""
        self.outbox.pauseProducing()
        self.outbox.take(b"held")
        self.outbox.close()
        self.assertEqual(self.written(), b"")
        self.outbox.resumeProducing()
        self.assertEqual(self.written(), b"held" + CLOSE_FRAME)
        self.assertFalse(self.transport.disconnecting)

    def test_finishWhileHeld(self) -> None:
        """If the peer closes meanwhile, the rest is still sent, then the connection closes."""
        self.outbox.pauseProducing()
        self.outbox.close()
        self.outbox.finish()
        self.assertFalse(self.transport.disconnecting)
        self.outbox.resumeProducing()
        self.assertEqual(self.written(), CLOSE_FRAME)
        self.assertTrue(self.transport.disconnecting)

    def test_frameOverflow(self) -> None:
        """The budget holds for what answers control frames as well."""
        self.outbox.pauseProducing()
        self.outbox.takeFrame(bytes(1000))
        self.outbox.takeFrame(PONG_FRAME)
        self.outbox.takeFrame(PONG_FRAME)
        self.assertEqual(self.overflows, 1)

    def test_overflow(self) -> None:
        """The byte budget holds: at it nothing happens, above it the peer is too slow."""
        self.outbox.pauseProducing()
        self.outbox.take(bytes(1000))
        self.turn.flush()
        self.assertEqual(self.overflows, 0)
        self.outbox.take(b"x")
        self.turn.flush()
        self.assertEqual(self.overflows, 1)


class FramingOutboxTests(OutboxCase):
    """Bytes of a stream, one message a turn."""

    outboxClass = FramingOutbox

    def frames(self) -> list[Frame]:
        """Return the frames that one turn wrote."""
        frames, rest = decode(self.written())
        self.assertEqual(rest, b"")
        return frames

    def test_oneMessageATurn(self) -> None:
        """All that a turn brings is one binary message."""
        for chunk in (b"one", b"two", b"three"):
            self.outbox.take(chunk)
        self.assertEqual(self.frames(), [Frame(BINARY, b"onetwothree")])
        self.outbox.take(b"four")
        self.assertEqual(self.frames(), [Frame(BINARY, b"four")])

    def test_framesBetween(self) -> None:
        """Other frames stand between messages, never inside."""
        self.outbox.take(b"one")
        self.outbox.takeFrame(PONG_FRAME)
        self.outbox.takeFrame(PONG_FRAME)
        self.outbox.take(b"two")
        pong = Frame(PONG, b"")
        self.assertEqual(self.frames(), [Frame(BINARY, b"one"), pong, pong, Frame(BINARY, b"two")])

    def test_frameAlone(self) -> None:
        """A frame alone brings no empty message with it."""
        self.outbox.takeFrame(PONG_FRAME)
        self.assertEqual(self.frames(), [Frame(PONG, b"")])

    def test_longMessages(self) -> None:
        """A message is cut where it would be longer than clients take; at the limit it is one."""
        for size, sizes in (
            (MESSAGE_BYTES, [MESSAGE_BYTES]),
            (MESSAGE_BYTES + 1, [MESSAGE_BYTES, 1]),
            (3 * MESSAGE_BYTES, [MESSAGE_BYTES] * 3),
        ):
            self.outbox.take(bytes(size - 1))
            self.outbox.take(b"x")
            self.assertEqual([len(frame.payload) for frame in self.frames()], sizes)

    def test_longMessageKeepsItsBytes(self) -> None:
        """Cutting loses nothing."""
        data = bytes(range(256)) * 5000
        self.outbox.take(data)
        self.assertEqual(b"".join(frame.payload for frame in self.frames()), data)

    def test_close(self) -> None:
        """The close frame stands behind the last message."""
        self.outbox.take(b"last")
        self.outbox.close()
        frames = self.frames()
        self.assertEqual([frame.opcode for frame in frames], [BINARY, 8])

    def test_nothing(self) -> None:
        """A turn that brings nothing writes nothing."""
        self.outbox.flush()
        self.assertEqual(self.written(), b"")
