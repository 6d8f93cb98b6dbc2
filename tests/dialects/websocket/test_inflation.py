"""Inflation within a bound."""

import os
import zlib
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.websocket.close_code import INVALID_PAYLOAD, TOO_BIG, WebSocketFault
from fleximq.dialects.websocket.inflation import Inflation


def deflated(payload: bytes, level: int = 9) -> bytes:
    """Return a payload compressed as RFC 7692, section 7.2.1 says."""
    stream = zlib.compressobj(level, zlib.DEFLATED, -15)
    return (stream.compress(payload) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]


def inflated(data: bytes, limit: int = 1 << 20, piece: int = 0) -> bytes:
    """Return what a message inflates to, fed in pieces."""
    inflation = Inflation(limit)
    inflation.begin()
    step = piece or len(data) or 1
    parts = [inflation.inflate(data[start : start + step]) for start in range(0, len(data), step)]
    inflation.end()
    return b"".join(parts)


class InflationTests(SynchronousTestCase):
    """Messages come out whole or not at all."""

    def assertFault(self, code: int, call: Callable[[], object]) -> None:
        """Check that a call raises a fault with this close code."""
        self.assertEqual(self.assertRaises(WebSocketFault, call).code, code)

    def test_documentsExamples(self) -> None:
        """The examples of RFC 7692, section 7.2.3: one block, a stored one, a final one, two in one message."""
        for example in ("f248cdc9c90700", "000500faff48656c6c6f00", "f348cdc9c9070000", "f248050000 00ffffcac9c90700"):
            self.assertEqual(inflated(bytes.fromhex(example)), b"Hello", example)

    def test_everyPiece(self) -> None:
        """It does not matter how a message is cut."""
        data = deflated(b"hello " * 100)
        for piece in range(1, len(data) + 1):
            self.assertEqual(inflated(data, piece=piece), b"hello " * 100)

    def test_limit(self) -> None:
        """A message of exactly the limit passes, compressible or not; one byte more does not."""
        for payload in (bytes(5000), os.urandom(5000)):
            self.assertEqual(inflated(deflated(payload), 5000), payload)
            self.assertEqual(inflated(deflated(payload, 0), 5000, piece=7), payload)
            for piece in (0, 1):
                self.assertFault(TOO_BIG, partial(inflated, deflated(payload + b"x"), 5000, piece))

    def test_limitIsOfEachMessage(self) -> None:
        """Every message may have as much."""
        inflation = Inflation(1000)
        for _ in range(3):
            inflation.begin()
            self.assertEqual(inflation.inflate(deflated(bytes(1000))), bytes(1000))
            inflation.end()

    def test_bomb(self) -> None:
        """A message that would inflate to a gigabyte is given up at the limit."""
        stream = zlib.compressobj(9, zlib.DEFLATED, -15)
        bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(64)) + stream.flush(zlib.Z_SYNC_FLUSH)
        inflation = Inflation(1 << 16)
        inflation.begin()
        self.assertFault(TOO_BIG, lambda: inflation.inflate(bomb[:-4]))

    def test_behindTheEnd(self) -> None:
        """What follows a finished stream is dropped, not kept."""
        inflation = Inflation(1000)
        inflation.begin()
        inflation.inflate(bytes.fromhex("f348cdc9c9070000"))
        for _ in range(10):
            self.assertEqual(inflation.inflate(b"x" * 1000), b"")
        self.assertLess(len(inflation._stream.unused_data), 10)

    def test_noDeflate(self) -> None:
        """Bytes that are no deflate stream are refused."""
        self.assertFault(INVALID_PAYLOAD, lambda: inflated(b"\xff" * 10))

    def test_cutOff(self) -> None:
        """So is a message that ends in the middle of a block."""
        self.assertFault(INVALID_PAYLOAD, lambda: inflated(deflated(os.urandom(1000))[:500]))

    @given(st.binary(max_size=300), st.integers(1, 9))
    def test_anyBytes(self, data: bytes, piece: int) -> None:
        """Arbitrary bytes inflate to no more than the limit, or are refused."""
        try:
            self.assertLessEqual(len(inflated(data, 100, piece)), 100)
        except WebSocketFault:
            pass
