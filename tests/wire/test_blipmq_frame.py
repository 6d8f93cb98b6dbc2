"""BlipMQ frames: runs out of any pieces, refusals on the prefix, and the document's samples."""

import struct
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadFraming, BrokerError, TooLarge
from fleximq.limits import BLIP_FRAME_BYTES
from fleximq.wire.blipmq_frame import BlipRun, BlipScanner, FrameType, encodeFrame, encodeRun

SAMPLES = [
    ("00 00 00 0B 01 00 00 00 00 00 00 00 01 00 01", (FrameType.HELLO, b"\0\1", [1], [])),
    (
        "00 00 00 12 02 00 00 00 00 00 00 00 02 00 07 64 65 76 2D 6B 65 79",
        (FrameType.AUTH, b"\0\7dev-key", [2], []),
    ),
    ("00 00 00 10 04 00 00 00 00 00 00 00 03 00 04 64 65 6D 6F 01", (FrameType.SUBSCRIBE, b"\0\4demo\1", [3], [])),
    (
        "00 00 00 12 03 00 00 00 00 00 00 00 04 01 00 04 64 65 6D 6F 68 69",
        (FrameType.PUBLISH, b"\1\0\4demo", [4], [b"hi"]),
    ),
    (
        "00 00 00 11 05 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2A",
        (FrameType.ACK, bytes(7) + b"\x2a", [3], []),
    ),
]


def publish(correlation: int, topic: bytes, message: bytes, qos: int = 0) -> bytes:
    head = bytes([qos]) + struct.pack(">H", len(topic)) + topic
    return encodeFrame(FrameType.PUBLISH, correlation, head + message)


def scan(pieces: Iterable[bytes], limit: int = BLIP_FRAME_BYTES) -> list[BlipRun]:
    scanner = BlipScanner(limit)
    return [run for piece in pieces for run in scanner.feed(piece)]


def frames(runs: Iterable[BlipRun]) -> list[tuple[FrameType, int, bytes]]:
    """Take runs apart: type, correlation id and payload of each frame."""
    found = []
    for kind, head, correlations, messages in runs:
        for number, correlation in enumerate(correlations):
            found.append((kind, correlation, head + messages[number] if messages else head))
    return found


class SampleTests(SynchronousTestCase):
    """The document's hex-encoded sample frames."""

    def test_eachSampleIsReadAsDocumentSays(self) -> None:
        """Each sample is read as the document says."""
        for text, run in SAMPLES:
            self.assertEqual(scan([bytes.fromhex(text)]), [run])

    def test_eachSampleIsWrittenAsDocumentSays(self) -> None:
        """Each sample is written as the document says."""
        for text, (kind, head, [correlation], messages) in SAMPLES:
            self.assertEqual(encodeFrame(kind, correlation, head + b"".join(messages)), bytes.fromhex(text))

    def test_anySplit(self) -> None:
        """The samples in one stream, cut once at every place, are the same frames."""
        stream = b"".join(bytes.fromhex(text) for text, _ in SAMPLES)
        whole = frames(scan([stream]))
        for cut in range(len(stream) + 1):
            self.assertEqual(frames(scan([stream[:cut], stream[cut:]])), whole)

    def test_smallPieces(self) -> None:
        """The samples in pieces of one to nine bytes are the same frames."""
        stream = b"".join(bytes.fromhex(text) for text, _ in SAMPLES)
        whole = frames(scan([stream]))
        for size in range(1, 10):
            pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
            self.assertEqual(frames(scan(pieces)), whole)


class RunTests(SynchronousTestCase):
    """Which neighbours are one run."""

    def test_sameHead(self) -> None:
        """Neighbouring PUBLISHes of one topic and QoS are one run, whatever their messages' lengths."""
        stream = publish(1, b"t", b"a") + publish(2, b"t", b"") + publish(2**64 - 1, b"t", b"ccc")
        self.assertEqual(scan([stream]), [(FrameType.PUBLISH, b"\0\0\1t", [1, 2, 2**64 - 1], [b"a", b"", b"ccc"])])

    def test_otherTopic(self) -> None:
        """Another topic ends the run, also one that begins or ends like the first."""
        for one, two in [(b"t", b"u"), (b"t", b"tt"), (b"tt", b"t"), (b"", b"t"), (b"t", b"")]:
            runs = scan([publish(1, one, b"xx") + publish(2, two, b"xx")])
            self.assertEqual([run[2:] for run in runs], [([1], [b"xx"]), ([2], [b"xx"])])

    def test_otherQos(self) -> None:
        """Another QoS ends the run."""
        runs = scan([publish(1, b"t", b"a") + publish(2, b"t", b"b", 1)])
        self.assertEqual([run[1] for run in runs], [b"\0\0\1t", b"\1\0\1t"])

    def test_otherTypeWithTheSameBytes(self) -> None:
        """A frame of another type whose payload begins alike ends the run."""
        runs = scan([publish(1, b"t", b"a") + encodeFrame(FrameType.PING, 2, b"\0\0\1tb") + publish(3, b"t", b"c")])
        self.assertEqual([run[0].name for run in runs], ["PUBLISH", "PING", "PUBLISH"])

    def test_headBeyondTheFrame(self) -> None:
        """A PUBLISH too short for its head is no part of the run, even if the bytes behind it complete the head."""
        short = encodeFrame(FrameType.PUBLISH, 2, b"\0\0\3a")
        runs = scan([publish(1, b"a\0\0", b"x") + short + b"\0\0\0\x09\7" + bytes(8)])
        self.assertEqual(
            runs,
            [
                (FrameType.PUBLISH, b"\0\0\3a\0\0", [1], [b"x"]),
                (FrameType.PUBLISH, b"\0\0\3a", [2], []),
                (FrameType.PING, b"", [0], []),
            ],
        )

    def test_shortPublish(self) -> None:
        """A PUBLISH that cannot hold its head comes alone, without messages."""
        for payload in (b"", b"\0", b"\0\0", b"\0\0\1", b"\1\0\4abc"):
            one = encodeFrame(FrameType.PUBLISH, 7, payload)
            self.assertEqual(scan([one + one]), [(FrameType.PUBLISH, payload, [7], [])] * 2)

    def test_sameSubscription(self) -> None:
        """Neighbouring POLLs, or ACKs, of one subscription are one run; another subscription or type ends it."""
        one, two = bytes(7) + b"\1", bytes(7) + b"\2"
        for kind, other in [(FrameType.POLL, FrameType.ACK), (FrameType.ACK, FrameType.POLL)]:
            stream = [encodeFrame(kind, number, one) for number in (1, 2, 3)]
            stream += [encodeFrame(kind, 4, two), encodeFrame(other, 5, two)]
            self.assertEqual(
                scan([b"".join(stream)]), [(kind, one, [1, 2, 3], []), (kind, two, [4], []), (other, two, [5], [])]
            )

    def test_otherLength(self) -> None:
        """A POLL whose longer payload begins like its neighbour's is not in its run."""
        runs = scan([encodeFrame(FrameType.POLL, 1, b"abc") + encodeFrame(FrameType.POLL, 2, b"abcd")])
        self.assertEqual(runs, [(FrameType.POLL, b"abc", [1], []), (FrameType.POLL, b"abcd", [2], [])])

    def test_othersComeAlone(self) -> None:
        """Frames of all other types are one run each, since their order with others matters."""
        for kind in set(FrameType) - {FrameType.PUBLISH, FrameType.POLL, FrameType.ACK}:
            self.assertEqual(scan([encodeFrame(kind, 1, b"x") * 2]), [(kind, b"x", [1], [])] * 2)

    def test_encodeRun(self) -> None:
        """A run is written as the frames it was read from."""
        head, messages = b"\1\0\4demo", [b"a", b"", b"c" * 300]
        self.assertEqual(scan([encodeRun(head, [1, 2, 3], messages)]), [(FrameType.PUBLISH, head, [1, 2, 3], messages)])

    def test_encodeRunCounts(self) -> None:
        """A run with more ids than messages is refused rather than cut."""
        self.assertRaises(ValueError, encodeRun, b"\0\0\1t", [1, 2], [b"a"])


class RefusalTests(SynchronousTestCase):
    """What is wrong is said on its prefix, after everything before it."""

    def refused(self, data: bytes, error: type[BrokerError], limit: int = BLIP_FRAME_BYTES) -> None:
        """Feed a good frame and ``data``: the frame comes out, then the error, and the error again for more."""
        scanner, seen = BlipScanner(limit), []
        with self.assertRaises(error):
            for run in scanner.feed(publish(1, b"t", b"x") + data):
                seen.append(run[0])
        self.assertEqual(seen, [FrameType.PUBLISH])
        with self.assertRaises(error):
            list(scanner.feed(encodeFrame(FrameType.PING, 1)))
        self.assertLess(scanner.buffered, 16)

    def test_lengthTooSmall(self) -> None:
        """Lengths 0 to 8 are refused on their four bytes."""
        for length in range(9):
            self.refused(struct.pack(">I", length), BadFraming)

    def test_lengthTooLarge(self) -> None:
        """A length over the limit is refused on its four bytes."""
        self.refused(struct.pack(">I", BLIP_FRAME_BYTES + 1), TooLarge)
        self.refused(b"\xff\xff\xff\xff", TooLarge)
        self.refused(struct.pack(">I", 101), TooLarge, 100)

    def test_wholeFrameTooLarge(self) -> None:
        """A frame over the limit is refused as well when all of it is there, alone or in a run."""
        for kind in (FrameType.PUBLISH, FrameType.PING):
            self.refused(encodeFrame(kind, 1, b"\0\0\1t" + b"x" * 88), TooLarge, 100)

    def test_atTheLimit(self) -> None:
        """A frame exactly at the limit is carried."""
        for kind in (FrameType.PUBLISH, FrameType.PING):
            runs = scan([publish(1, b"t", b"x") + encodeFrame(kind, 2, b"\0\0\1t" + b"x" * 87)], 100)
            self.assertEqual(len(frames(runs)), 2)

    def test_unknownType(self) -> None:
        """An unknown type is refused on its byte, before its payload arrives."""
        for number in (0, 10, 255):
            self.refused(struct.pack(">IB", 1000, number), BadFraming)
            self.refused(encodeFrame(FrameType.PING, 1)[:4] + bytes([number]) + bytes(8), BadFraming)

    def test_oneByteAtATime(self) -> None:
        """The error comes with the very byte that shows it."""
        for good, bad in [(b"\0\0\0", b"\x08"), (b"\1\0\0", b"\1"), (b"\0\0\1\0", b"\x0a")]:
            scanner = BlipScanner()
            for number in good:
                self.assertEqual(list(scanner.feed(bytes([number]))), [])
            self.assertRaises(BrokerError, list, scanner.feed(bad))

    def test_nothingAllocatedForAnAnnouncement(self) -> None:
        """A frame that announces 16 MiB and sends none of them costs next to nothing."""
        scanner = BlipScanner()
        tracemalloc.start()
        list(scanner.feed(struct.pack(">IBQ", BLIP_FRAME_BYTES, 3, 1)))
        grown = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(grown, 10_000)

    def test_largestFrame(self) -> None:
        """A frame of exactly 16 MiB comes through in pieces of 64 KiB."""
        stream = publish(1, b"t", b"x" * (BLIP_FRAME_BYTES - 9 - 4))
        runs = scan(stream[at : at + 65536] for at in range(0, len(stream), 65536))
        self.assertEqual([len(message) for message in runs[0][3]], [BLIP_FRAME_BYTES - 13])


class AnyBytesTests(SynchronousTestCase):
    """Arbitrary input in arbitrary pieces."""

    @given(
        st.lists(st.tuples(st.sampled_from(list(FrameType)), st.integers(0, 3), st.binary(max_size=8)), max_size=20),
        st.lists(st.integers(0, 300), max_size=6),
    )
    def test_thereAndBack(self, sent: list[tuple[FrameType, int, bytes]], cuts: list[int]) -> None:
        """Frames in any pieces come out as they were sent."""
        stream = b"".join(encodeFrame(*frame) for frame in sent)
        ends = [0, *sorted(cuts), len(stream)]
        pieces = [stream[start:end] for start, end in pairwise(ends)]
        self.assertEqual(frames(scan(pieces)), sent)

    @given(st.lists(st.binary(max_size=40)))
    def test_anyBytes(self, pieces: list[bytes]) -> None:
        """Arbitrary bytes end in frames or in the protocol's own errors, and hold no more than a frame."""
        scanner = BlipScanner(100)
        for piece in pieces:
            try:
                list(scanner.feed(piece))
            except (BadFraming, TooLarge):
                self.assertLessEqual(scanner.buffered, 5)
                return
            self.assertLess(scanner.buffered, 104)
