"""FlexiMQ frames as the broker writes them, and single frames taken apart."""

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.wire.fleximq_frame import (
    NO_RESERVED,
    RESERVED,
    encodeFrame,
    encodeMessage,
    frameOf,
    payloadOf,
    readPrefix,
    withZeroReserved,
    words,
)
from fleximq.wire.fleximq_header import MessageType
from tests.wire.flexi_frames import cut, frame

U32 = st.integers(0, 0xFFFFFFFF)


class EncodeTests(SynchronousTestCase):
    """Section 2.1."""

    def test_layout(self) -> None:
        """Version, type, client id, reserved bytes, header length, header, payload length, payload."""
        self.assertEqual(
            encodeFrame(2, 1000, b"\x81\xa6status\xcc\xc8", b"\xc0"),
            b"\x01\x02\x00\x00\x03\xe8" + bytes(16) + b"\x00\x00\x00\x0a\x81\xa6status\xcc\xc8"
            b"\x00\x00\x00\x00\x00\x00\x00\x01\xc0",
        )

    def test_smallestFrameHas34BytesSection71(self) -> None:
        """The smallest frame has 34 bytes (section 7.1)."""
        self.assertEqual(len(encodeFrame(0, 0)), 34)

    @given(st.integers(0, 255), U32, st.binary(max_size=50), st.binary(max_size=50))
    def test_everyFrameIsWhatDocumentSays(self, kind: int, client_id: int, header: bytes, payload: bytes) -> None:
        """Every frame is what the document says."""
        self.assertEqual(encodeFrame(kind, client_id, header, payload), frame(kind, client_id, header, payload))

    def test_examplesOf421(self) -> None:
        """The examples of 4.2.1: a JOIN, its answer, a REQ."""
        join = encodeMessage(MessageType.JOIN, 0, {"auth": {"type": "token", "token": "client-auth-token"}})
        self.assertEqual(join[:22], b"\x01\x00\x00\x00\x00\x00" + bytes(16))
        answer = encodeMessage(MessageType.REP, 1000, {"status": 200})
        self.assertEqual(answer[:22], b"\x01\x02\x00\x00\x03\xe8" + bytes(16))
        self.assertEqual(encodeMessage(MessageType.REQ, 1000, {})[:6], b"\x01\x01\x00\x00\x03\xe8")

    def test_mapIsPackedAndReadAgainByDocument(self) -> None:
        """A map is packed, and read again by the document."""
        fields = {"keepalive": {"timestamp": 1703123456789}}
        [heard] = cut(encodeMessage(MessageType.PONG, 1, fields))
        self.assertEqual((heard.kind, heard.sender, heard.header, heard.payload), ("PONG", 1, fields, b""))

    def test_wordsAreOneMessagePackString(self) -> None:
        """Words are one MessagePack string."""
        self.assertEqual(msgpack.unpackb(words("grüße")), "grüße")


class TakeApartTests(SynchronousTestCase):
    """Envelopes and frames."""

    @given(st.integers(0, 255), U32)
    def test_firstThreeFieldsAreRead(self, kind: int, client_id: int) -> None:
        """The first three fields are read."""
        self.assertEqual(readPrefix(frame(kind, client_id)[:26]), (1, kind, client_id))

    @given(st.binary(min_size=16, max_size=16), st.binary(max_size=9), st.binary(max_size=9))
    def test_reservedBytesBecomeZeroAndNothingElseChanges(self, reserved: bytes, header: bytes, payload: bytes) -> None:
        """Reserved bytes become zero, and nothing else changes."""
        raw = frame("PUB", 7, header, payload, reserved=reserved)
        self.assertEqual(withZeroReserved(raw), frame("PUB", 7, header, payload))
        self.assertEqual(raw[RESERVED], reserved)
        self.assertEqual(payloadOf(raw, 26 + len(header)), payload)
        self.assertEqual(frameOf(raw[: 26 + len(header)], payload), raw)

    def test_everyReservedByte(self) -> None:
        """A single bit in any of the sixteen is seen."""
        for place in range(16):
            reserved = bytearray(16)
            reserved[place] = 1
            self.assertNotEqual(frame("PUB", 7, reserved=bytes(reserved))[RESERVED], NO_RESERVED)
        self.assertEqual(frame("PUB", 0xFFFFFFFF, b"\xff" * 3)[RESERVED], NO_RESERVED)
