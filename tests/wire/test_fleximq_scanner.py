"""FlexiMQ frames out of a stream: the same however it is cut, within limits, in linear time."""

import struct
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadFraming, BrokerError, TooLarge
from fleximq.values.records import Blobs
from fleximq.wire.fleximq_scanner import (
    FEW,
    FlexiScanner,
    FrameTooLarge,
    joinedPayloads,
    payloads,
    singleFrames,
)
from tests.processor_time import Measured
from tests.wire.flexi_frames import frame

LIMIT = 1 << 20
#: Frames of all shapes: empty, header only, payload only, both; neighbours alike and not.
STREAM = [
    frame("JOIN"),
    frame("SUB", 1000, {"topic": "t"}),
    *[frame("PUB", 1000, {"topic": "t"}, payload) for payload in (b"", b"\x01", b"\xa5hello", b"\xc0" * 40)],
    frame("PUB", 1000, {"topic": "u"}, b"\x01"),
    frame("PUB", 1000, {"topic": "t"}, b"\x02"),
    frame("PUB", 1000, {"topic": "t"}, b"\x02", reserved=b"r" * 16),
    frame(77, 0xFFFFFFFF, b"\xc1", b"\x00" * 3),
    frame("BCAST", 1000, None, b"\x03"),
    frame("BCAST", 1000, None, b"\x04"),
]


def fed(scanner: FlexiScanner, pieces: Iterable[bytes]) -> list[bytes]:
    """Return the single frames of all runs; each run is checked for its envelope and count."""
    found: list[bytes] = []
    for piece in pieces:
        for envelope, frames, count in scanner.feed(piece):
            each = singleFrames(frames, len(envelope))
            if len(each) != count or any(one[: len(envelope)] != envelope for one in each) or b"".join(each) != frames:
                raise AssertionError(f"no run: {envelope!r} {frames!r} {count}")
            found += each
    return found


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return data cut at these places."""
    places = [0, *sorted(cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


class FrameTests(SynchronousTestCase):
    """Every frame comes out as it went in."""

    def test_eachShapeAloneAndWhole(self) -> None:
        """Each shape, alone and whole."""
        for each in STREAM:
            self.assertEqual(fed(FlexiScanner(LIMIT), [each]), [each])

    def test_cutEverywhere(self) -> None:
        """Two pieces, cut at every byte."""
        stream = b"".join(STREAM)
        for place in range(len(stream) + 1):
            self.assertEqual(fed(FlexiScanner(LIMIT), pieces(stream, [place])), STREAM, place)

    def test_inSmallPieces(self) -> None:
        """Pieces of 1 to 40 bytes."""
        stream = b"".join(STREAM)
        for size in range(1, 41):
            scanner = FlexiScanner(LIMIT)
            self.assertEqual(fed(scanner, pieces(stream, range(size, len(stream), size))), STREAM, size)
            self.assertEqual(scanner.buffered, 0)

    @given(st.lists(st.integers(0, sum(map(len, STREAM)))))
    def test_cutAnywhere(self, cuts: list[int]) -> None:
        """Any pieces, empty ones too."""
        self.assertEqual(fed(FlexiScanner(LIMIT), pieces(b"".join(STREAM), cuts)), STREAM)

    def test_endAtEnd(self) -> None:
        """A frame comes with its last byte, not before."""
        for each in STREAM:
            scanner = FlexiScanner(LIMIT)
            self.assertEqual(fed(scanner, [each[:-1]]), [])
            self.assertEqual(scanner.buffered, len(each) - 1)
            self.assertEqual(fed(scanner, [each[-1:]]), [each])


class RunTests(SynchronousTestCase):
    """Neighbours with one envelope are one run."""

    def runs(self, *frames: bytes) -> list[tuple[bytes, bytes, int]]:
        """Return the runs of frames that arrive at once."""
        return list(FlexiScanner(LIMIT).feed(b"".join(frames)))

    def test_payloadsMayDifferInSize(self) -> None:
        """Payloads may differ in size; one slice is handed on once the envelope has been seen."""
        same = [frame("PUB", 1000, {"topic": "t"}, bytes(size)) for size in (0, 1, 300, 0)]
        envelope = same[0][:-8]
        scanner = FlexiScanner(LIMIT)
        self.assertEqual(
            list(scanner.feed(b"".join(same))), [(envelope, same[0], 1), (envelope, b"".join(same[1:]), 3)]
        )
        self.assertEqual(list(scanner.feed(b"".join(same))), [(envelope, b"".join(same), 4)])

    def test_otherEnvelope(self) -> None:
        """Type, client id, reserved bytes and header: any difference begins another run."""
        first = frame("PUB", 1000, {"topic": "t"}, b"\x01")
        for other in (
            frame("SUB", 1000, {"topic": "t"}, b"\x01"),
            frame("PUB", 1001, {"topic": "t"}, b"\x01"),
            frame("PUB", 1000, {"topic": "u"}, b"\x01"),
            frame("PUB", 1000, {"topic": "tt"}, b"\x01"),
            frame("PUB", 1000, {"topic": "t"}, b"\x01", reserved=b"\x01" + bytes(15)),
        ):
            self.assertEqual(
                [(frames, count) for _, frames, count in self.runs(first, other, first)],
                [(first, 1), (other, 1), (first, 1)],
            )

    def test_runEndsWhereInputEnds(self) -> None:
        """A run ends where the input ends; the rest is the next one's."""
        one = frame("PUB", 1000, {"topic": "t"}, b"\x01")
        scanner = FlexiScanner(LIMIT)
        self.assertEqual([count for _, _, count in scanner.feed(one * 4 + one[:-1])], [1, 3])
        self.assertEqual(sum(count for _, _, count in scanner.feed(one[-1:] + one)), 2)

    def test_payloadsOfRunInOrder(self) -> None:
        """The payloads of a run, in order."""
        contents = [b"", b"\x01", b"x" * 300, b""]
        run = b"".join(frame("PUB", 1000, {"topic": "t"}, each) for each in contents)
        self.assertEqual(payloads(run, 26 + len(frame("PUB", 1000, {"topic": "t"})) - 34), contents)

    @given(st.lists(st.binary(max_size=3), min_size=1, max_size=40), st.booleans())
    def test_payloadsOfAnyLength(self, contents: list[bytes], alike: bool) -> None:
        """Whether they have one length or several, each payload is found."""
        contents = [each[:2].ljust(2, b"-") for each in contents] if alike else contents
        run = b"".join(frame("PUB", 1000, None, each) for each in contents)
        self.assertEqual(payloads(run, 26), contents)
        for body in (run, memoryview(b"-" + run)[1:]):
            joined = joinedPayloads(body, 26)
            self.assertEqual(list(joined), contents)
            self.assertEqual(type(joined), list if len(contents) < FEW else Blobs)

    def test_lookAlike(self) -> None:
        """Frames of other lengths that fill the same space as equal ones are not taken for such."""
        contents = [b"aa"] + [b"b", b"ccc"] * 10 + [b"dd"]
        run = b"".join(frame("PUB", 1000, None, each) for each in contents)
        self.assertEqual(len(run), len(contents) * len(frame("PUB", 1000, None, b"aa")))
        self.assertEqual(payloads(run, 26), contents)

    def test_manyEmpty(self) -> None:
        """Payloads may all be empty."""
        self.assertEqual(payloads(frame("PUB", 1000, None) * 50, 26), [b""] * 50)
        self.assertEqual(list(joinedPayloads(frame("PUB", 1000, None) * 50, 26)), [b""] * 50)


class LimitTests(SynchronousTestCase):
    """Sizes are refused on the length."""

    def refused(self, scanner: FlexiScanner, data: bytes) -> FrameTooLarge:
        """Return the error for what is too large."""
        error: FrameTooLarge = self.assertRaises(FrameTooLarge, lambda: list(scanner.feed(data)))
        self.assertIsInstance(error, TooLarge)
        self.assertTrue(error.closes)
        return error

    def test_65535And65536BytesOfHeaderAreTaken65537AreRefused(self) -> None:
        """65,535 and 65,536 bytes of header are taken, 65,537 are refused."""
        for size in (65535, 65536):
            whole = frame("PUB", 1000, bytes(size))
            self.assertEqual(fed(FlexiScanner(LIMIT), [whole]), [whole])
        self.refused(FlexiScanner(LIMIT), frame("PUB", 1000, bytes(65537))[:26])

    def test_longerHeaders(self) -> None:
        """Another limit for headers holds in the place of this one."""
        whole = frame("PUB", 1000, bytes(70000))
        self.assertEqual(fed(FlexiScanner(LIMIT, header=70000), [whole]), [whole])
        self.refused(FlexiScanner(LIMIT, header=69999), whole[:26])

    def test_baseHeaderAndPayloadTogetherMayBeAsLargeAsLimit(self) -> None:
        """Base, header and payload together may be as large as the limit: below and at are taken, above is not."""
        header = b"\x80" + bytes(99)
        for size in (4095, 4096):
            whole = frame("PUB", 1000, header, bytes(size - 134))
            self.assertEqual((len(whole), fed(FlexiScanner(4096), [whole])), (size, [whole]))
        self.refused(FlexiScanner(4096), frame("PUB", 1000, header, bytes(4097 - 134))[: 26 + 100 + 8])

    def test_headerOverTheMessage(self) -> None:
        """A header that cannot fit the limit is refused on its own length, before its bytes."""
        whole = frame("PUB", 1000, bytes(1024 - 34))
        self.assertEqual(fed(FlexiScanner(1024), [whole]), [whole])
        self.refused(FlexiScanner(1024), frame("PUB", 1000, bytes(1024 - 33))[:26])

    def test_hugeLengths(self) -> None:
        """Lengths up to the largest number are refused; nothing is set aside for them."""
        for length in (LIMIT, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
            tracemalloc.start()
            self.refused(FlexiScanner(LIMIT), frame("PUB", 1000)[:26] + struct.pack(">Q", length))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertLess(peak, 100_000)
        self.refused(FlexiScanner(LIMIT), frame("PUB", 1000)[:22] + b"\xff" * 4)

    def test_insideARun(self) -> None:
        """What came before is yielded, then the error is raised, whether the neighbours are alike or not."""
        good = frame("PUB", 1000, {"topic": "t"}, b"\x01")
        for other in (frame("PUB", 1000, {"topic": "t"}, bytes(5000)), frame("PUB", 1000, {"topic": "u"}, bytes(5000))):
            found: list[int] = []
            scanner = FlexiScanner(4096)

            def work(scanner: FlexiScanner = scanner, other: bytes = other, found: list[int] = found) -> None:
                for _, _, count in scanner.feed(good * 2 + other):
                    found.append(count)

            self.assertRaises(FrameTooLarge, work)
            self.assertEqual(found, [1, 1])

    def test_errorHasEnvelopeWhereItIsKnownSoThatItCanBeCorrelated(self) -> None:
        """The error has the envelope where it is known, so that it can be correlated."""
        whole = frame("REQ", 1000, {"reqrep": {"type": "request", "id": "a"}}, bytes(5000))
        self.assertEqual(self.refused(FlexiScanner(4096), whole).envelope, whole[: len(whole) - 5008])
        self.assertEqual(self.refused(FlexiScanner(4096), frame("PUB", 1000, bytes(65537))[:26]).envelope, b"")

    def test_anyVersionBut1EndsItBehindWhatCameBefore(self) -> None:
        """Any version but 1 ends it, behind what came before."""
        for version in (0, 2, 255):
            found: list[bytes] = []
            scanner = FlexiScanner(LIMIT)

            def work(scanner: FlexiScanner = scanner, version: int = version, found: list[bytes] = found) -> None:
                for _, frames, _ in scanner.feed(STREAM[0] + frame("JOIN", version=version)):
                    found.append(frames)

            self.assertTrue(self.assertRaises(BadFraming, work).closes)
            self.assertEqual(found, STREAM[:1])

    def test_limitsBeforeVersion(self) -> None:
        """A header that is too long is named first."""
        self.refused(FlexiScanner(LIMIT), frame("JOIN", header=bytes(65537), version=2)[:26])

    @given(st.lists(st.binary(max_size=60), max_size=20))
    def test_arbitraryBytesInArbitraryPieces(self, data: list[bytes]) -> None:
        """Arbitrary bytes in arbitrary pieces: frames or the protocol's own error, and little is held."""
        scanner = FlexiScanner(1024)
        try:
            for piece in data:
                fed(scanner, [piece])
                self.assertLessEqual(scanner.buffered, 1024)
        except BrokerError as error:
            self.assertTrue(error.closes)

    @given(st.lists(st.sampled_from(STREAM)), st.binary(max_size=60), st.lists(st.integers(0, 2000)))
    def test_anythingBehindFrames(self, before: list[bytes], after: bytes, cuts: list[int]) -> None:
        """Good frames are found, whatever stands behind them, and whatever the pieces, with the same end."""
        stream = b"".join(before) + after
        outcomes = []
        for parts in ([stream], pieces(stream, [place for place in cuts if place < len(stream)])):
            scanner = FlexiScanner(1024)
            found: list[bytes] = []
            words = ""
            try:
                for part in parts:
                    for envelope, frames, _ in scanner.feed(part):
                        found += singleFrames(frames, len(envelope))
            except BrokerError as error:
                words = f"{type(error).__name__}: {error}"
            outcomes.append((found, words))
        self.assertEqual(outcomes[0], outcomes[1])
        self.assertEqual(outcomes[0][0][: len(before)], before)


class TimeTests(SynchronousTestCase):
    """Linear, however it arrives."""

    def test_largeFrameInPieces(self) -> None:
        """16 MiB in pieces of 64 KiB are joined once, not once for each piece."""
        payload = bytes(16 << 20)
        whole = frame("PUB", 1000, {"topic": "t"}, payload)
        scanner = FlexiScanner(1 << 30)
        with Measured() as measured:
            found = fed(scanner, pieces(whole, range(65536, len(whole), 65536)))
        self.assertLess(measured.seconds, 0.6)
        self.assertEqual([len(each) for each in found], [len(whole)])

    def test_headerByteByByte(self) -> None:
        """A header of 64 KiB that arrives a byte at a time."""
        whole = frame("PUB", 1000, bytes(65536))
        with Measured() as measured:
            self.assertEqual(fed(FlexiScanner(LIMIT), pieces(whole, range(len(whole)))), [whole])
        self.assertLess(measured.seconds, 1.0)
