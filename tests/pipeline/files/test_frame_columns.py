"""Many frames at once give the same records as one after the other."""

from datetime import UTC, datetime, timedelta
from itertools import product
from struct import pack, pack_into
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.format.frame import Frame, FrameError, FrameKind, readHeader, seal
from fleximq.journal.format.record_columns import decodeRecords, decodeStaged, encodeRecords, encodeSparse, encodeStaged
from fleximq.values.records import DIALECTS, OTHER_DIALECT, Run, StoredBatch
from tests.journal.frames import JOURNAL, SEGMENT, TIME, appended
from tests.journal.make_vectors import FOLDER as VECTORS
from tests.nightly import repetitions
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.files import frame_columns
    from fleximq.pipeline.files.frame_columns import PlacedFrame, decodeFrames, offsetsAndTimes
    from fleximq.pipeline.files.record_headers import _textsOf, _unpacked
    from fleximq.pipeline.files.schema import COLUMNS
    from fleximq.pipeline.files.selection import Selection, Topics

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Where the staged frames' records are said to begin.
STAGED_AT = 900_000


def joined(frames: list[Frame]) -> tuple[bytes, list[Any]]:
    """Return frames one behind the other, and where each is; staged ones get offsets."""
    pieces: list[bytes | memoryview] = []
    places, position, previous, staged = [], 0, 0, STAGED_AT
    for frame in frames:
        buffers, previous = seal(frame, SEGMENT, position, previous)
        pieces += buffers
        if frame.kind == FrameKind.STAGED:
            places.append(PlacedFrame(position, staged))
            staged += frame.count
        else:
            places.append(PlacedFrame(position))
        position += frame.length
    return b"".join(pieces), places


def rowsOf(buffer: bytes, places: list[Any], selection: Any, columns: Any = None) -> list[dict[str, Any]]:
    """Return what the decoder gives as one dictionary for each record."""
    rows: list[dict[str, Any]] = []
    for batch in decodeFrames(buffer, places, columns or COLUMNS, JOURNAL, selection):
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


def expected(buffer: bytes, places: list[Any], *more: str) -> list[dict[str, Any]]:
    """Return the same by way of the journal's own decoder, record by record."""
    rows = []
    for at, first in places:
        header = readHeader(buffer, at)
        frame = buffer[at : at + header.length]
        if header.kind == FrameKind.STAGED:
            _, batch = decodeStaged(header, frame)
            batch.offsets = range(first, first + len(batch))
        else:
            batch = decodeRecords(header, frame)
        rows += [_row(batch, place) | dict.fromkeys(more, batch.contents[place]) for place in range(len(batch))]
    return rows


def _row(batch: StoredBatch, place: int) -> dict[str, Any]:
    publisher, name = batch.publishers[batch.publisherOf[place]]
    code = batch.dialects[place]
    dialects = {code: name for name, code in DIALECTS.items()} | {OTHER_DIALECT: name.partition("-")[0]}
    header = _unpacked(batch.headers[place])
    key = header.get("key")
    return {
        "journal": JOURNAL,
        "topic": batch.topics[batch.topicOf[place]],
        "offset": batch.offsets[place],
        "timestamp": _EPOCH + timedelta(microseconds=batch.timestamps[place]),
        "publisher": publisher,
        "dialect": dialects.get(code, str(code)),
        "headers": list(_textsOf(header).items()) if batch.headers[place] else None,
        "key": key.encode() if isinstance(key, str) else key,
        "value": batch.payloads[place],
    }


_HEADERS = st.sampled_from(
    [b"", b"\x81\xa3key\xa1k", b"\x82\xa3key\xc4\x02\x00\xff\xa1n\x05", b"\x81\xa1a\x92\x01\xc3"]
)
_RUN = st.builds(
    lambda topic, publisher, dialect, time, records, content: AppendedRun(
        topic,
        publisher,
        f"mine-{publisher}",
        dialect,
        time,
        Run([h for h, _ in records], [p for _, p in records], content),
    ),
    st.sampled_from(["a", "b/é", "news"]),
    st.integers(0, 3),
    st.sampled_from([0, 1, 2, 3, 4, 9, OTHER_DIALECT]),
    st.integers(TIME, TIME + 50),
    st.lists(st.tuples(_HEADERS, st.binary(max_size=30)), min_size=1, max_size=5),
    st.sampled_from([0, 0x101, 0x702]),
)


@st.composite
def someFrames(draw: st.DrawFn) -> list[Frame]:
    """Return frames of all three kinds that hold records."""
    frames, offset = [], 1
    for runs in draw(st.lists(st.lists(_RUN, min_size=1, max_size=4), min_size=1, max_size=6)):
        made = encodeRecords(runs, offset)
        kind = draw(st.sampled_from([FrameKind.RECORDS, FrameKind.SPARSE_RECORDS, FrameKind.STAGED]))
        if kind == FrameKind.STAGED:
            made = encodeStaged({"query": "q" * draw(st.integers(0, 9)), "batch": 1, "part": "0"}, runs)
        elif kind == FrameKind.SPARSE_RECORDS:
            raw = b"".join(seal(made[0], SEGMENT, 0, 0)[0])
            batch = decodeRecords(readHeader(raw), raw)
            places = draw(st.sets(st.sampled_from(range(len(batch))), min_size=1))
            made = [encodeSparse(batch.pick(sorted(places)))]
        frames += made
        offset += sum(len(run.run.payloads) for run in runs)
    return frames


class AnyFramesTests(SynchronousTestCase):
    """Against the decoder of the journal."""

    def test_framesOfAnyLengthAreReadWholeOrInPart(self) -> None:
        for sizes in ([1], [31, 33], [32], [100, 1, 300], [200] * 4, [1] * 50):
            for header in (b"", b"\x81\xa3key\xa1k"):
                frames: list[Frame] = []
                for number, size in enumerate(sizes):
                    run = Run([header] * size, [b"%d" % n * (n % 9) for n in range(size)], 0)
                    some = [AppendedRun("t" * (1 + number % 60), 5, "", number % 3, TIME + number, run)]
                    frames += encodeRecords(some, 1 + 1000 * number)
                buffer, places = joined(frames)
                rows = expected(buffer, places)
                self.assertEqual(rowsOf(buffer, places, Selection()), rows)
                part = [row for row in rows if 10 <= row["offset"] < 2050]
                self.assertEqual(rowsOf(buffer, places, Selection(Topics(), 10, 2050)), part)

    @given(someFrames())
    @settings(max_examples=repetitions(60, 750), deadline=None)
    def test_allColumnsOfTheFramesAreReadInOrder(self, frames: list[Frame]) -> None:
        buffer, places = joined(frames)
        self.assertEqual(rowsOf(buffer, places, Selection()), expected(buffer, places))
        found = [row["content"] for row in rowsOf(buffer, places, Selection(), ("content",))]
        self.assertEqual(found, [row["content"] for row in expected(buffer, places, "content")])

    @given(
        someFrames(),
        st.sampled_from([None, frozenset({"a"}), frozenset({"a", "news"}), frozenset({"x"}), frozenset()]),
        st.tuples(st.integers(0, 12), st.integers(0, 12)),
        st.tuples(st.integers(TIME, TIME + 60), st.integers(TIME, TIME + 60)),
    )
    @settings(max_examples=repetitions(60, 750), deadline=None)
    def test_topicsOffsetsAndTimesFilterAloneAndTogether(
        self, frames: list[Frame], topics: Any, offsets: tuple[int, int], times: tuple[int, int]
    ) -> None:
        buffer, places = joined(frames)
        rows = expected(buffer, places)
        since, until = (_EPOCH + timedelta(microseconds=time) for time in times)
        for selection, wanted in [
            (Selection(Topics(topics)), lambda row: topics is None or row["topic"] in topics),
            (Selection(start=offsets[0], end=offsets[1]), lambda row: offsets[0] <= row["offset"] < offsets[1]),
            (Selection(since=times[0], until=times[1]), lambda row: since <= row["timestamp"] < until),
            (
                Selection(Topics(topics), start=offsets[0], since=times[0]),
                lambda row: (
                    (topics is None or row["topic"] in topics)
                    and row["offset"] >= offsets[0]
                    and row["timestamp"] >= since
                ),
            ),
        ]:
            self.assertEqual(rowsOf(buffer, places, selection), list(filter(wanted, rows)))

    @given(someFrames())
    @settings(max_examples=50, deadline=None)
    def test_offsetsAndTimesCanBeReadAlone(self, frames: list[Frame]) -> None:
        buffer, places = joined(frames)
        found = [
            (int(offset), _EPOCH + timedelta(microseconds=int(time)))
            for offsets, times in offsetsAndTimes(buffer, places)
            for offset, time in zip(offsets, times, strict=True)
        ]
        self.assertEqual(found, [(row["offset"], row["timestamp"]) for row in expected(buffer, places)])

    @given(someFrames(), st.data())
    @settings(max_examples=repetitions(120, 1500), deadline=None)
    def test_frameWithAnyBodyIsRefusedOrReadAndNothingOutsideOfIt(
        self, frames: list[Frame], data: st.DataObject
    ) -> None:
        buffer, places = joined(frames)
        changed = bytearray(buffer)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.sampled_from(places)).at
            length = readHeader(buffer, at).length
            changed[at + data.draw(st.integers(64, length - 1))] = data.draw(st.integers(0, 255))
        for long, topics in product((1, 1000), (Topics(frozenset({"a"})), Topics())):
            try:
                with patch.object(frame_columns, "_LONG", long):
                    for batch in decodeFrames(bytes(changed), places, COLUMNS, JOURNAL, Selection(topics)):
                        batch.validate(full=True)
            except FrameError:
                pass

    def test_endsThatDoNotAscendToTheLengthAreRefusedInLongFrames(self) -> None:
        made = [each for number in range(2) for each in encodeRecords([appended(*[b"abc"] * 40)], 1 + 40 * number)]
        buffer, (first, second) = joined(made)
        shape = second.at + 64
        ends = buffer.index(b"".join(pack("<i", 3 * place) for place in range(41)), shape)
        for place, value in [(0, 1), (0, -1), (20, 64), (20, 56), (20, -1), (20, 0x7FFFFFFF), (40, 119), (40, 121)]:
            changed = bytearray(buffer)
            pack_into("<i", changed, ends + 4 * place, value)
            self.assertRaises(FrameError, rowsOf, bytes(changed), [first, second], Selection())
        self.assertEqual(len(rowsOf(buffer, [first, second], Selection())), 80)


class BatchesTests(SynchronousTestCase):
    """How records are put together to batches."""

    def batches(self, payload: bytes, frames: int, records: int) -> list[Any]:
        """Return the batches of so many frames with so many records each."""
        made: list[Frame] = []
        for number in range(frames):
            made += encodeRecords([appended(*[payload] * records)], 1 + number * records)
        buffer, places = joined(made)
        return list(decodeFrames(buffer, places, COLUMNS, JOURNAL, Selection()))

    def test_smallFramesAreJoinedUpTo40000RecordsOr4Mebibytes(self) -> None:
        self.assertEqual([batch.num_rows for batch in self.batches(b"x", 900, 100)], [40_000, 40_000, 10_000])
        self.assertEqual([batch.num_rows for batch in self.batches(b"x" * 100_000, 90, 1)], [41, 41, 8])

    def test_largeFrameIsABatchWithoutCopyOfItsPayloads(self) -> None:
        self.patch(frame_columns, "_BYTES", 1 << 20)
        batches = self.batches(b"x" * 40_000, 3, 26)
        self.assertEqual([batch.num_rows for batch in batches], [26, 26, 26])
        self.assertEqual(batches[1].column("value").to_pylist(), [b"x" * 40_000] * 26)

    def test_thereAreNoEmptyBatches(self) -> None:
        buffer, places = joined(encodeRecords([appended(b"1")], 1))
        self.assertEqual(list(decodeFrames(buffer, places, COLUMNS, JOURNAL, Selection(end=1))), [])
        self.assertEqual(list(decodeFrames(buffer, [], COLUMNS, JOURNAL, Selection())), [])

    def test_columnsAreInTheOrderAskedFor(self) -> None:
        buffer, places = joined(encodeRecords([appended(b"1", b"2")], 5))
        self.assertEqual(
            rowsOf(buffer, places, Selection(), ("value", "offset")),
            [{"value": b"1", "offset": 5}, {"value": b"2", "offset": 6}],
        )

    def test_frameWithoutRecordsIsRefused(self) -> None:
        raw = (VECTORS / "gap.fxj").read_bytes()
        self.assertRaises(FrameError, rowsOf, raw, [PlacedFrame(0)], Selection())

    def test_publishedFramesAreReadAsThePageSays(self) -> None:
        for name in ("records", "sparse-records", "staged"):
            raw = (VECTORS / f"{name}.fxj").read_bytes()
            places = [PlacedFrame(0, 77 if name == "staged" else -1)]
            self.assertEqual(rowsOf(raw, places, Selection()), expected(raw, places))
