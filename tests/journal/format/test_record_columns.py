"""Records as columns: what was appended comes back, whatever frames it was split into."""

import struct
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.topic_counts import topicCountsOf
from fleximq.journal.format import column_builder, record_columns
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.format.frame import FULL_FRAME_BYTES, HEADER_BYTES, Frame, FrameError, FrameKind
from fleximq.journal.format.record_columns import (
    decodeRecords,
    decodeStaged,
    encodeRecords,
    encodeSparse,
    encodeStaged,
)
from fleximq.values.records import CONTENTS, Run, StoredBatch
from tests.journal.frames import TIME, appended, everyKind, mixed, read, written

CODES = st.sampled_from(sorted(CONTENTS))


@st.composite
def runs(draw: st.DrawFn, most: int = 6) -> Run:
    """Draw a run of at least one message, with one header and content for all or one for each."""
    payloads = draw(st.lists(st.binary(max_size=6), min_size=1, max_size=most))
    count = len(payloads)
    headers = draw(st.binary(max_size=4) | st.lists(st.binary(max_size=4), min_size=count, max_size=count))
    return Run(headers, payloads, draw(CODES | st.lists(CODES, min_size=count, max_size=count)))


APPENDED = st.lists(
    st.builds(
        AppendedRun,
        st.sampled_from(["a", "b", "ü", "long" * 100]),
        st.integers(0, 3) | st.just(0xFFFFFFFF),
        st.sampled_from(["x", "y", ""]),
        st.sampled_from([0, 1, 2, 3, 4, 0xFFFF]),
        st.integers(-(2**63), 2**63 - 1),
        runs(),
    ),
    max_size=10,
)
Row = tuple[int, int, str, tuple[int, str], int, int, bytes, bytes]


def rowsOf(batch: StoredBatch) -> list[Row]:
    """Return the records of a batch with all they have: offset, time, topic, publisher and so on."""
    return [
        (
            batch.offsets[place],
            batch.timestamps[place],
            batch.topics[batch.topicOf[place]],
            batch.publishers[batch.publisherOf[place]],
            batch.dialects[place],
            batch.contents[place],
            batch.headers[place],
            batch.payloads[place],
        )
        for place in range(len(batch))
    ]


def rowsFor(wanted: Sequence[AppendedRun], offset: int) -> list[Row]:
    """Return the same of what was appended."""
    rows: list[Row] = []
    for topic, publisher, name, dialect, time, (headers, payloads, contents) in wanted:
        for place, payload in enumerate(payloads):
            header = headers if isinstance(headers, bytes) else headers[place]
            content = contents if isinstance(contents, int) else contents[place]
            rows.append((offset + len(rows), time, topic, (publisher, name), dialect, content, header, payload))
    return rows


def decoded(frame: Frame) -> StoredBatch:
    """Return the records of a frame that was written and read."""
    return decodeRecords(*read(written(frame)))


class RecordsTests(SynchronousTestCase):
    """RECORDS frames."""

    @given(APPENDED, st.integers(1, 2**62))
    def test_thereAndBack(self, wanted: list[AppendedRun], offset: int) -> None:
        """What was appended comes back, in order and with all it has."""
        frames = encodeRecords(wanted, offset)
        self.assertEqual(len(frames), bool(wanted))
        self.assertEqual([row for frame in frames for row in rowsOf(decoded(frame))], rowsFor(wanted, offset))

    @given(APPENDED, st.integers(600, 1500))
    def test_split(self, wanted: list[AppendedRun], most: int) -> None:
        """Split into small frames it is the same: the offsets go on, and no frame is too large without need."""
        with patch.object(column_builder, "FULL_FRAME_BYTES", most):
            frames = encodeRecords(wanted, 5)
        self.assertEqual([row for frame in frames for row in rowsOf(decoded(frame))], rowsFor(wanted, 5))
        self.assertEqual([frame.length for frame in frames if frame.length > most and frame.count > 1], [])
        for before, after in pairwise(frames):
            self.assertEqual(before.baseOffset + before.count, after.baseOffset)

    @given(APPENDED)
    def test_bigEndian(self, wanted: list[AppendedRun]) -> None:
        """A machine of the other byte order writes and reads its own order swapped; what is packed needs no swap."""
        packed = patch.object(record_columns, "encodeSingle", lambda each, offset: None)
        with (
            packed,
            patch.object(record_columns, "_BIG_ENDIAN", True),
            patch.object(column_builder, "_BIG_ENDIAN", True),
        ):
            found = [row for frame in encodeRecords(wanted, 5) for row in rowsOf(decoded(frame))]
        self.assertEqual(found, rowsFor(wanted, 5))

    @given(APPENDED)
    def test_tally(self, wanted: list[AppendedRun]) -> None:
        """A frame that was made knows what it has of each topic, counted from its base offset."""
        for frame in encodeRecords(wanted, 5):
            batch = decoded(frame)
            batch.offsets = range(len(batch))
            self.assertEqual(frame.topicCounts, topicCountsOf(batch))

    @given(APPENDED)
    def test_times(self, wanted: list[AppendedRun]) -> None:
        """First and last time of a frame are those of its first and last record."""
        for frame in encodeRecords(wanted, 5):
            batch = decoded(frame)
            self.assertEqual((frame.firstTime, frame.lastTime), (batch.timestamps[0], batch.timestamps[-1]))

    def test_fullFrames(self) -> None:
        """A long run fills frames up to a record's size."""
        frames = encodeRecords([appended(*[b"x" * 100] * 30_000)], 1)
        self.assertEqual(sum(frame.count for frame in frames), 30_000)
        for frame in frames:
            self.assertLessEqual(frame.length, FULL_FRAME_BYTES)
        for frame in frames[:-1]:
            self.assertGreater(frame.length, FULL_FRAME_BYTES - 512)

    def test_largeRecord(self) -> None:
        """A record that is larger than a frame has one to itself; its neighbours are not in it."""
        frames = encodeRecords([appended(b"a", b"x" * FULL_FRAME_BYTES, b"b", b"c")], 1)
        self.assertEqual([frame.count for frame in frames], [1, 1, 2])
        self.assertGreater(frames[1].length, FULL_FRAME_BYTES)
        self.assertEqual(decoded(frames[1]).payloads, [b"x" * FULL_FRAME_BYTES])

    def test_largePayloads(self) -> None:
        """Large payloads are not copied."""
        payloads = [bytes([number]) * 5001 for number in range(3)]
        [frame] = encodeRecords([appended(*payloads)], 1)
        self.assertEqual([id(each) for each in frame.pieces[1:4]], [id(each) for each in payloads])
        self.assertEqual(decoded(frame).payloads, payloads)

    def test_lazy(self) -> None:
        """Reading a frame of 1,000 records takes no call for each of them; their payloads are split later."""
        [frame] = encodeRecords([appended(*[b"x" * 100] * 1000)], 1)
        header, raw = read(written(frame))

        made: list[str] = []
        sys.setprofile(lambda frame, event, argument: made.append(event))
        try:
            batch = decodeRecords(header, raw)
        finally:
            sys.setprofile(None)
        self.assertEqual(len(batch), 1000)
        self.assertLess(len(made), 500)


class SparseTests(SynchronousTestCase):
    """SPARSE_RECORDS frames."""

    @given(APPENDED, st.data())
    def test_thereAndBack(self, wanted: list[AppendedRun], data: st.DataObject) -> None:
        """Any records of a frame can be kept, each with its offset."""
        for frame in encodeRecords(wanted, 7):
            batch = decoded(frame)
            places = sorted(data.draw(st.sets(st.integers(0, len(batch) - 1), min_size=1)))
            sparse = encodeSparse(batch.pick(places))
            self.assertEqual(rowsOf(decoded(sparse)), [rowsOf(batch)[place] for place in places])
            self.assertEqual((sparse.kind, sparse.baseOffset), (FrameKind.SPARSE_RECORDS, 7 + places[0]))

    def test_again(self) -> None:
        """So can some of a sparse frame."""
        [frame] = encodeRecords(mixed(), 7)
        batch = decoded(encodeSparse(decoded(frame).pick([1, 3, 5])))
        self.assertEqual(list(decoded(encodeSparse(batch.pick([0, 2]))).offsets), [8, 12])

    def test_zeroesBehind(self) -> None:
        """Zero bytes may stand at the end of a sparse frame, anything else may not."""
        sparse = everyKind()[8]
        longer = Frame(sparse.kind, [*sparse.pieces, bytes(16)], count=3, baseOffset=sparse.baseOffset)
        self.assertEqual(rowsOf(decoded(longer)), rowsOf(decoded(sparse)))
        longer = Frame(sparse.kind, [*sparse.pieces, b"\1" + bytes(15)], count=3, baseOffset=sparse.baseOffset)
        self.assertRaises(FrameError, decoded, longer)

    def test_order(self) -> None:
        """Offsets have to ascend, from the base offset."""
        sparse = everyKind()[8]
        for offsets in ((1, 4, 4), (1, 5, 4), (2, 4, 5)):
            body = bytes(sparse.pieces[0])
            changed = body[:32] + struct.pack("<3q", *offsets) + body[56:]
            frame = Frame(sparse.kind, [changed, *sparse.pieces[1:]], count=3, baseOffset=1)
            words = str(self.assertRaises(FrameError, decoded, frame))
            self.assertEqual(words, "the offsets do not ascend from the base offset")


class StagedTests(SynchronousTestCase):
    """STAGED frames."""

    @given(APPENDED, st.dictionaries(st.text(), st.integers(0, 9)))
    def test_thereAndBack(self, wanted: list[AppendedRun], meta: dict[str, Any]) -> None:
        """The map and the records come back; their offsets are just places."""
        for frame in encodeStaged(meta, wanted):
            found, batch = decodeStaged(*read(written(frame)))
            self.assertEqual(found, meta)
            self.assertEqual(rowsOf(batch), rowsFor(wanted, 0))
            batch.offsets = range(len(batch))
            self.assertEqual(frame.topicCounts, topicCountsOf(batch))

    def test_split(self) -> None:
        """What has no room in one frame goes on in another, with the same map."""
        frames = encodeStaged({"a": 1}, [appended(*[b"x" * 1000] * 1500)])
        found = [decodeStaged(*read(written(frame))) for frame in frames]
        self.assertEqual([meta for meta, _ in found], [{"a": 1}] * 2)
        self.assertEqual(sum(len(batch) for _, batch in found), 1500)

    def test_noRecords(self) -> None:
        """They are no records, and records are nothing staged."""
        _, _, records, staged, *_ = everyKind()
        self.assertRaises(FrameError, decodeRecords, *read(written(staged)))
        self.assertRaises(FrameError, decodeStaged, *read(written(records)))

    def test_meta(self) -> None:
        """A map that is none, or longer than the frame, is refused."""
        staged = everyKind()[3]
        body = b"".join(staged.pieces)
        for changed in (
            struct.pack("<II", len(body), 0) + body[8:],
            struct.pack("<II", 3, 1) + body[8:],
            body[:8] + b"\x01" + body[9:],
            body[:8] + b"\xc1" + body[9:],
            b"",
        ):
            frame = Frame(FrameKind.STAGED, [changed or bytes(0)], count=2)
            header, raw = read(written(frame)) if changed else read(written(Frame(FrameKind.STAGED, [bytes(8)])))
            self.assertRaises(FrameError, decodeStaged, header, raw)


class ContradictionTests(SynchronousTestCase):
    """Bodies that were written wrong: their check sums are right, and they are refused all the same."""

    #: One record: shape, time, topic and publisher, dialect, content, ends of headers and payloads, topic, publisher.
    body = (
        struct.pack("<IIIIQQ", 1, 1, 1, 1, 2, 3)
        + struct.pack("<q", TIME)
        + struct.pack("<I4x", 0)
        + struct.pack("<I4x", 0)
        + struct.pack("<H6x", 1)
        + struct.pack("<H6x", 0x100)
        + struct.pack("<ii", 0, 2)
        + struct.pack("<ii", 0, 3)
        + struct.pack("<ii", 0, 1)
        + b"t".ljust(8, b"\0")
        + struct.pack("<I4x", 1000)
        + struct.pack("<ii", 0, 1)
        + b"p".ljust(8, b"\0")
        + b"hh".ljust(8, b"\0")
        + b"ppp".ljust(8, b"\0")
    )

    def frame(self, body: bytes, count: int = 1) -> Frame:
        """Return a RECORDS frame with this body."""
        return Frame(FrameKind.RECORDS, [body], count=count, baseOffset=9)

    def refusal(self, place: int, format: str, *values: Any) -> str:
        """Return why the body is refused with these values at a place."""
        changed = bytearray(self.body)
        struct.pack_into("<" + format, changed, place, *values)
        return str(self.assertRaises(FrameError, decoded, self.frame(bytes(changed))))

    def test_right(self) -> None:
        """As it stands here it is right."""
        self.assertEqual(rowsOf(decoded(self.frame(self.body))), [(9, TIME, "t", (1000, "p"), 1, 0x100, b"hh", b"ppp")])

    def test_places(self) -> None:
        """Topics, publishers and contents have to be known."""
        self.assertEqual(self.refusal(40, "I", 1), "1 is none of the topics")
        self.assertEqual(self.refusal(48, "I", 7), "7 is none of the publishers")
        self.assertEqual(self.refusal(64, "H", 3), "3 is none of the kinds of content")

    def test_laterDialect(self) -> None:
        """A dialect may be unknown."""
        changed = bytearray(self.body)
        struct.pack_into("<H", changed, 56, 9)
        self.assertEqual(decoded(self.frame(bytes(changed))).dialects[0], 9)

    def test_ends(self) -> None:
        """Ends go from 0 to the size of what they part, and never back."""
        self.assertEqual(self.refusal(72, "i", 1), "the ends of headers do not ascend from 0 to 2")
        self.assertEqual(self.refusal(76, "i", 1), "the ends of headers do not ascend from 0 to 2")
        self.assertEqual(self.refusal(84, "i", 4), "the ends of payloads do not ascend from 0 to 3")
        self.assertEqual(self.refusal(92, "i", -1), "the ends of topic names do not ascend from 0 to 1")

    def test_names(self) -> None:
        """Names are UTF-8."""
        self.assertEqual(self.refusal(96, "B", 0xFF), "the topic names are not UTF-8")
        self.assertEqual(self.refusal(120, "B", 0xFF), "the publisher names are not UTF-8")

    def test_sizes(self) -> None:
        """Whatever counts it begins with, a frame is refused rather than read over its end."""
        for place in (0, 4, 8, 12, 16, 24):
            for value in (0, 2, 9, 0x7FFFFFFF, 0xFFFFFFFF):
                if struct.unpack_from("<I", self.body, place)[0] != value:
                    self.refusal(place, "I", value)
        self.refusal(16, "Q", 2**64 - 1)

    def test_cut(self) -> None:
        """A body may neither be shorter nor longer than its columns."""
        for size in range(8, len(self.body), 8):
            self.assertRaises(FrameError, decoded, self.frame(self.body[:size]))
        words = str(self.assertRaises(FrameError, decoded, self.frame(self.body + bytes(8))))
        self.assertEqual(words, "8 bytes stand behind the payloads")

    def test_count(self) -> None:
        """The count of the header has to be that of the columns."""
        for count in (0, 2, 3, 1000, 2**32 - 1):
            self.assertRaises(FrameError, decoded, self.frame(self.body, count))

    def test_twice(self) -> None:
        """A topic stands in the list once."""
        [frame] = encodeRecords([appended(b"a", topic="t"), appended(b"b", topic="u")], 1)
        body = b"".join(frame.pieces).replace(b"tu", b"tt")
        words = str(self.assertRaises(FrameError, decoded, self.frame(body, 2)))
        self.assertEqual(words, "a topic or a publisher stands in its list twice")

    def test_descending(self) -> None:
        """Ends that go back in between are found out."""
        [frame] = encodeRecords([appended(b"a" * 3, b"b" * 3, b"c" * 3)], 1)
        body = b"".join(frame.pieces).replace(struct.pack("<4i", 0, 3, 6, 9), struct.pack("<4i", 0, 6, 3, 9))
        words = str(self.assertRaises(FrameError, decoded, self.frame(body, 3)))
        self.assertEqual(words, "the ends of payloads do not ascend from 0 to 9")

    def test_header(self) -> None:
        """A frame with nothing but a header is too short for records."""
        self.assertRaises(FrameError, decoded, self.frame(bytes(8)))
        self.assertEqual(HEADER_BYTES, 64)
