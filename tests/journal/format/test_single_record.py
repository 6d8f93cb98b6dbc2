"""The frame of one record is the same, however it is made."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.column_builder import AppendedRun, ColumnBuilder
from fleximq.journal.format.frame import Frame, FrameKind, completeFrame, seal
from fleximq.journal.format.record_columns import SINGLE_BYTES, decodeRecords, encodeRecords, encodeSingle
from fleximq.values.records import CONTENTS, Run
from tests.journal.frames import appended


def _columns(each: AppendedRun, offset: int) -> Frame:
    columns = ColumnBuilder()
    assert columns.addOne(each)
    return columns.frame(FrameKind.RECORDS, offset)


def _all(frame: Frame) -> tuple[object, ...]:
    values = frame.kind, frame.count, frame.baseOffset, frame.firstTime, frame.lastTime, frame.length, frame.topicCounts
    return *values, b"".join(frame.pieces)


class SingleTests(SynchronousTestCase):
    """A run of one message, alone."""

    @given(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
        st.integers(0, 0xFFFFFFFF),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.integers(0, 0xFFFF),
        st.integers(0, 1 << 60),
        st.binary(max_size=20),
        st.binary(max_size=40),
        st.sampled_from(sorted(CONTENTS)),
        st.booleans(),
        st.integers(1, 1 << 60),
    )
    def test_same(
        self,
        topic: str,
        publisher: int,
        name: str,
        dialect: int,
        time: int,
        header: bytes,
        payload: bytes,
        content: int,
        asList: bool,
        offset: int,
    ) -> None:
        """All columns stand where a frame of many records has them."""
        run = Run([header] if asList else header, [payload], [content] if asList else content)
        each = AppendedRun(topic, publisher, name, dialect, time, run)
        frame = encodeSingle(each, offset)
        assert frame is not None
        self.assertEqual(_all(frame), _all(_columns(each, offset)))

    def test_large(self) -> None:
        """A large record is none of these; its frame is made as all others are."""
        self.assertIsNotNone(encodeSingle(appended(b"x" * SINGLE_BYTES), 1))
        self.assertIsNone(encodeSingle(appended(b"x" * (SINGLE_BYTES + 1)), 1))
        self.assertIsNone(encodeSingle(appended(b"x" * SINGLE_BYTES, headers=b"y"), 1))

    def test_either(self) -> None:
        """Around the limit the records come back as they were."""
        for size in (SINGLE_BYTES - 1, SINGLE_BYTES, SINGLE_BYTES + 1):
            [frame] = encodeRecords([appended(b"x" * size)], 7)
            header, body = completeFrame(b"".join(seal(frame, 1, 0, 0)[0]))
            batch = decodeRecords(header, body)
            self.assertEqual((list(batch.offsets), batch.payloads), ([7], [b"x" * size]))
