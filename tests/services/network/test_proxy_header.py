"""Bytes of the PROXY protocol, from HAProxy's proxy-protocol.txt, in any pieces."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.services.network.proxy_header import HEADER_BYTES, LINE_BYTES, splitHeader

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
#: Section 2.1: the header of clients whose address is not known, and the longest line.
UNKNOWN = (
    b"PROXY UNKNOWN\r\n",
    b"PROXY UNKNOWN \r\n",
    b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n",
    b"PROXY UNKNOWN" + b" " * (LINE_BYTES - 15) + b"\r\n",
)
KNOWN = (
    b"PROXY TCP4 255.255.255.255 192.0.2.1 65535 0\r\n",
    b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::1 65535 65535\r\n",
)


def binary(command: int, family: int, body: bytes = b"") -> bytes:
    """Return a header of version 2; ``command`` is the whole byte, with the version."""
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


class ProxyHeaderTests(SynchronousTestCase):
    """Where a header ends, and why one is malformed."""

    def test_pieces(self) -> None:
        """Every beginning of a header is incomplete, and all after it belongs to the client."""
        for header in (*UNKNOWN, *KNOWN, binary(0x20, 0), binary(0x21, 0x11, bytes(12)), binary(0x21, 0, b"xyz")):
            for end in range(1, len(header)):
                self.assertIsNone(splitHeader(header[:end]), header[:end])
            expected = b"PROXY UNKNOWN \r\n" if header in UNKNOWN else header
            self.assertEqual(splitHeader(header), (expected, b""))
            self.assertEqual(splitHeader(header + b"a\r\nb"), (expected, b"a\r\nb"))

    def test_length(self) -> None:
        """A line has 107 bytes with its end, and a header of version 2 2 KiB."""
        self.assertIsNone(splitHeader(b"PROXY UNKNOWN".ljust(LINE_BYTES - 1)))
        self.assertIn("no end", self.reason(b"PROXY UNKNOWN".ljust(LINE_BYTES)))
        self.assertIn("no end", self.reason(b"PROXY UNKNOWN".ljust(LINE_BYTES - 1) + b"\r\n"))
        longest = binary(0x21, 0x11, bytes(HEADER_BYTES - 16))
        self.assertEqual(splitHeader(longest), (longest, b""))
        self.assertIn("longer than 2048 bytes", self.reason(binary(0x21, 0x11, bytes(HEADER_BYTES - 15))[:16]))

    def test_malformed(self) -> None:
        """It is refused as soon as it can be seen, with the reason."""
        for received, words in (
            (b"X", "missing"),
            (b"PROXX", "missing"),
            (b"PROXY\r\n", "missing"),
            (SIGNATURE[:11] + b"!", "missing"),
            (SIGNATURE + b"\x11", "version is not 2"),
            (b"PROXY TCP5 192.0.2.7 192.0.2.8 1 1\r\n", "line is malformed"),
            (b"PROXY TCP4  192.0.2.7 192.0.2.8 1 1\r\n", "line is malformed"),
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 1\r\n", "line is malformed"),
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 1 1 1\r\n", "line is malformed"),
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 many 1\r\n", "line is malformed"),
            (b"PROXY TCP4 \xff\xff 192.0.2.8 1 1\r\n", "line is malformed"),
            (b"PROXY TCP4 192.0.2.300 192.0.2.8 1 1\r\n", "192.0.2.300"),
            (b"PROXY TCP4 ::1 ::1 1 1\r\n", "::1"),
            (b"PROXY TCP6 192.0.2.7 ::1 1 1\r\n", "192.0.2.7"),
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 1 65536\r\n", "over 65535"),
        ):
            self.assertIn(words, self.reason(received))

    def reason(self, received: bytes) -> str:
        """Return why this is malformed."""
        return str(self.assertRaises(ValueError, splitHeader, received))

    @given(st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", b"PROXY UNKNOWN", SIGNATURE]), st.binary(max_size=200))
    def test_anyBytes(self, beginning: bytes, rest: bytes) -> None:
        """Nothing else is raised, and no byte after the header is lost."""
        received = beginning + rest + b"\r\n"
        try:
            split = splitHeader(received)
        except ValueError:
            return
        self.assertTrue(split is None or received.endswith(split[1]))
