"""The two layouts of FlexiMQ frames: told apart once, cut anywhere, turned into each other."""

import struct
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadFraming, BrokerError
from fleximq.wire.fleximq_layout_b import Layout, framesWithinLayoutB, fromLayoutB, toLayoutB
from fleximq.wire.fleximq_scanner import FrameTooLarge, singleFrames
from tests.wire.flexi_frames import frame
from tests.wire.flexi_variants import inLayoutB
from tests.wire.transcoded import TranscodedScanner

LIMIT = 1 << 20
#: Frames that begin with some that have no header, so that the layout is told late.
STREAM = [
    frame("JOIN"),
    frame("BCAST", 1000, None, b"\x01\x02"),
    frame("SUB", 1000, {"topic": "t"}),
    *[frame("PUB", 1000, {"topic": "t"}, payload) for payload in (b"", b"\x01", b"\xc0" * 300)],
    frame("BCAST", 1000, None, b"\x03"),
    frame(77, 1000, b"\x90", b"\x00"),
]
#: What a stream may be in: as it is, or each frame turned.
LAYOUTS: dict[Layout, Callable[[bytes], bytes]] = {Layout.A: bytes, Layout.B: inLayoutB}


def fed(scanner: Any, pieces: Iterable[bytes]) -> list[bytes]:
    """Return the single frames that come out."""
    found: list[bytes] = []
    for piece in pieces:
        for envelope, frames, count in scanner.feed(piece):
            each = singleFrames(frames, len(envelope))
            if len(each) != count or any(one[: len(envelope)] != envelope for one in each):
                raise AssertionError(f"no run: {envelope!r} {frames!r} {count}")
            found += each
    return found


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return data cut at these places."""
    return [data[start:end] for start, end in pairwise([0, *sorted(cuts), len(data)])]


class ToldTests(SynchronousTestCase):
    """Byte 26 of the first frame with a header decides."""

    def test_either(self) -> None:
        """Both layouts come out in layout A, and the layout is known from the first header on."""
        for layout, turn in LAYOUTS.items():
            scanner = TranscodedScanner(LIMIT)
            self.assertEqual(fed(scanner, map(turn, STREAM[:2])), STREAM[:2])
            self.assertIsNone(scanner.layout)
            self.assertEqual(fed(scanner, map(turn, STREAM[2:])), STREAM[2:])
            self.assertIs(scanner.layout, layout)

    def test_everyMarker(self) -> None:
        """Every marker of a map or an array means layout A."""
        for marker in [*range(0x80, 0xA0), *range(0xDC, 0xE0)]:
            scanner = TranscodedScanner(LIMIT)
            whole = frame("JOIN", 0, bytes((marker, 0xC0)))
            self.assertEqual(fed(scanner, [whole]), [whole])
            self.assertIs(scanner.layout, Layout.A)

    def test_atTheByte(self) -> None:
        """It is told as soon as byte 26 is there, and not before."""
        for layout, turn in LAYOUTS.items():
            scanner = TranscodedScanner(LIMIT)
            whole = turn(STREAM[2])
            fed(scanner, [whole[:26]])
            self.assertIsNone(scanner.layout)
            fed(scanner, [whole[26:27]])
            self.assertIs(scanner.layout, layout)

    def test_onceForAll(self) -> None:
        """Later frames do not change it."""
        scanner = TranscodedScanner(LIMIT)
        fed(scanner, [inLayoutB(STREAM[2])])
        odd = frame("PUB", 1000, {"topic": "t"}, b"\x80" * 0x81)
        self.assertEqual(fed(scanner, [inLayoutB(odd)]), [odd])

    def test_cutEverywhere(self) -> None:
        """In two pieces, cut at every byte."""
        for turn in LAYOUTS.values():
            stream = b"".join(map(turn, STREAM))
            for place in range(len(stream) + 1):
                self.assertEqual(fed(TranscodedScanner(LIMIT), pieces(stream, [place])), STREAM, place)

    @settings(deadline=None)
    @given(st.sampled_from(Layout), st.lists(st.integers(0, sum(map(len, STREAM)))))
    def test_cutAnywhere(self, layout: Layout, cuts: list[int]) -> None:
        """In any pieces; at the end nothing is held."""
        scanner = TranscodedScanner(LIMIT)
        stream = b"".join(map(LAYOUTS[layout], STREAM))
        self.assertEqual(fed(scanner, pieces(stream, cuts)), STREAM)
        self.assertEqual(scanner.buffered, 0)

    def test_layoutAPassesThroughTheTranscoder(self) -> None:
        """Once layout A is known, the transcoder holds nothing, and the scanner may be fed directly."""
        scanner = TranscodedScanner(LIMIT)
        found = fed(scanner, [STREAM[3] + STREAM[5][:40]])
        self.assertEqual(scanner.transcoder.buffered, 0)
        self.assertEqual(found + fed(scanner.scanner, [STREAM[5][40:]]), [STREAM[3], STREAM[5]])


class LimitTests(SynchronousTestCase):
    """The same limits, on the same prefixes."""

    def scanners(self, limit: int) -> list[tuple[Any, Callable[[bytes], bytes]]]:
        """Return scanners for each layout, and for layout B once it is known."""
        told = TranscodedScanner(limit)
        fed(told, [inLayoutB(STREAM[2])])
        return [*((TranscodedScanner(limit), turn) for turn in LAYOUTS.values()), (told, inLayoutB)]

    def test_atLimitMessageIsTakenAboveItRefusedOnItsLengths(self) -> None:
        """At the limit a message is taken, above it refused on its lengths."""
        header = msgpack.packb({"topic": "t" * 80})
        most = 4096 - 34 - len(header)
        whole, more = (frame("PUB", 1000, header, bytes(size)) for size in (most, most + 1))
        for scanner, turn in self.scanners(4096):
            self.assertEqual(fed(scanner, [turn(whole)]), [whole])
        for scanner, turn in self.scanners(4096):
            self.assertRaises(FrameTooLarge, fed, scanner, [turn(more)[: 34 + len(header)]])

    def test_65536BytesOfHeaderAreTaken65537AreRefusedWithFirst34BytesAt(self) -> None:
        """65,536 bytes of header are taken, 65,537 are refused with the first 34 bytes at the latest."""
        header = msgpack.packb({"topic": "t" * (65536 - 10)})
        self.assertEqual(len(header), 65536)
        for scanner, turn in self.scanners(LIMIT):
            whole = frame("PUB", 1000, header)
            self.assertEqual(fed(scanner, [turn(whole)]), [whole])
        for scanner, turn in self.scanners(LIMIT):
            self.assertRaises(FrameTooLarge, fed, scanner, [turn(frame("PUB", 1000, header + b"\xc0"))[:34]])

    def test_withoutHeader(self) -> None:
        """The payload of a frame without a header is limited too, before the layout is known."""
        for scanner, _ in self.scanners(4096):
            self.assertRaises(FrameTooLarge, fed, scanner, [frame("BCAST")[:26] + struct.pack(">Q", 4063)])

    def test_headerBeforeTheLayout(self) -> None:
        """A header over the limit is refused before the byte behind it tells the layout."""
        for following in (b"\x00", b"\x80"):
            scanner = TranscodedScanner(4096)
            with self.assertRaises(FrameTooLarge) as caught:
                list(scanner.feed(bytes((1, 5)) + bytes(20) + struct.pack(">I", 4063) + following))
            self.assertEqual(
                (str(caught.exception), scanner.layout),
                (
                    "the header has 4063 bytes, but at most 4062 are allowed",
                    None,
                ),
            )

    def test_anotherVersionEndsIt(self) -> None:
        """Another version ends it."""
        for header in (None, {"topic": "t"}):
            for scanner, turn in self.scanners(LIMIT):
                self.assertRaises(BadFraming, fed, scanner, [turn(frame("PUB", 1, header, version=2))])

    @settings(deadline=None)
    @given(st.booleans(), st.lists(st.binary(max_size=60), max_size=20))
    def test_arbitraryBytesInArbitraryPieces(self, isB: bool, data: list[bytes]) -> None:
        """Arbitrary bytes in arbitrary pieces: frames or the protocol's own error, and little is held."""
        scanner = TranscodedScanner(1024)
        if isB:
            fed(scanner, [inLayoutB(STREAM[2])])
        try:
            for piece in data:
                fed(scanner, [piece])
                self.assertLessEqual(scanner.buffered, 1024)
        except BrokerError as error:
            self.assertTrue(error.closes)


class TurnedTests(SynchronousTestCase):
    """From layout A to layout B."""

    def test_eachFrameOfRunIsTurned(self) -> None:
        """Each frame of a run is turned."""
        self.assertEqual(toLayoutB(b"".join(STREAM)), b"".join(map(inLayoutB, STREAM)))
        self.assertEqual(toLayoutB(b""), b"")

    @given(st.binary(max_size=40).filter(bool), st.binary(max_size=40))
    def test_thereAndBack(self, header: bytes, payload: bytes) -> None:
        """What was turned comes back as it was."""
        whole = frame("PUB", 1000, header, payload)
        self.assertEqual(fromLayoutB(toLayoutB(whole) + b"cut", LIMIT), whole)

    def test_howMuchOfRunEndsWithinSoManyBytes(self) -> None:
        """How much of a run ends within so many bytes."""
        turned = list(map(inLayoutB, STREAM))
        run = b"".join(turned)
        ends = [sum(map(len, turned[:count])) for count in range(len(turned) + 1)]
        for room in range(-1, len(run) + 2):
            count = sum(end <= room for end in ends[1:])
            self.assertEqual(framesWithinLayoutB(run, room), (ends[count], count), room)
