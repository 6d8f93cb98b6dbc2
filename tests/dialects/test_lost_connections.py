"""What is left of a connection that is gone, though nobody has looked for cycles of garbage yet."""

import gc
import struct
import tracemalloc
from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.dialects.identity_ws import IdentityFactory
from fleximq.dialects.minimq import MiniFactory
from tests.dialects.blipmq.case import auth, hello
from tests.dialects.conversations import ConversationCase, Peer, makeContext
from tests.dialects.websocket_peer import BINARY, TEXT, masked
from tests.wire.flexi_frames import frame

#: Bytes of a message that never ends, and what may be left of it.
BEGUN, LEFT = 500_000, 50_000
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class ForgettingTests(ConversationCase):
    """A peer that goes in the middle of something large."""

    def assertForgotten(self, kind: type[Factory[Any]], *said: bytes) -> None:
        """Nothing of what was said is kept, only what a connection always is."""
        make: Any = kind
        peers = [Peer(make(makeContext(Clock()))) for _ in range(2)]
        for data in said[:-1]:
            peers[0].say(data)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        gc.disable()
        self.addCleanup(gc.enable)
        begun = bytes(bytearray(said[-1]) + b"x" * BEGUN)
        peers[0].say(begun)
        del begun
        self.assertGreater(tracemalloc.get_traced_memory()[0], BEGUN)
        peers[0].leave()
        self.assertLess(tracemalloc.get_traced_memory()[0], LEFT)
        tracemalloc.stop()

    def test_fleximq(self) -> None:
        """FlexiMQ."""
        joined = frame("JOIN", 0, {})
        self.assertForgotten(FlexiFactory, joined, frame("PUB", 1000, {"topic": "t"})[:-8] + struct.pack(">Q", 1 << 20))

    def test_fleximqWs(self) -> None:
        """FlexiMQ over WebSocket, in one frame of it."""
        publication = frame("PUB", 1000, {"topic": "t"})[:-8] + struct.pack(">Q", 1 << 20)
        joined = UPGRADE + masked(BINARY, frame("JOIN", 0, {}))
        head = bytes([0x82, 0xFF]) + struct.pack(">Q", 1 << 20) + bytes(4)
        self.assertForgotten(FlexiWebSocketFactory, joined, head + publication)

    def test_blipmq(self) -> None:
        """BlipMQ."""
        self.assertForgotten(BlipFactory, hello() + auth(), struct.pack(">IBQ", 1 << 20, 3, 1))

    def test_minimq(self) -> None:
        """MiniMQ."""
        self.assertForgotten(MiniFactory, b"PING:\n", b"PRODUCE:")

    def test_identity(self) -> None:
        """Identity, in one frame and in fragments."""
        head = bytes([0x81, 0xFF]) + struct.pack(">Q", 1 << 20) + bytes(4)
        self.assertForgotten(IdentityFactory, UPGRADE, head)
        fragment = masked(TEXT, b"x" * BEGUN, fin=False)
        self.assertForgotten(
            IdentityFactory, UPGRADE, fragment + bytes([0, 0xFF]) + struct.pack(">Q", 1 << 19) + bytes(4)
        )
