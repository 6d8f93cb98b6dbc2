"""Frames while they are filled: what has room is taken, what has none is not."""

from itertools import accumulate
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format import column_builder
from fleximq.journal.format.column_builder import ColumnBuilder
from fleximq.journal.format.frame import FrameKind
from fleximq.journal.format.record_columns import encodeRecords
from fleximq.values.records import Blobs, Run
from tests.journal.frames import appended, written


class FillingTests(SynchronousTestCase):
    """Runs that are added to a frame of little room."""

    def taken(self, room: int, count: int, size: int = 100) -> tuple[int, int]:
        """Return how many of so many messages a frame takes that has one already, and how long it is."""
        columns = ColumnBuilder()
        with patch.object(column_builder, "FULL_FRAME_BYTES", room):
            columns.add(appended(b"x" * size), 0)
            taken = columns.add(appended(*[b"x" * size] * count), 0)
        return taken, columns.frame(FrameKind.RECORDS, 1).length

    def test_room(self) -> None:
        """With each byte more the same or more is taken, and the frame is never longer than it may be."""
        before = 0
        for room in range(300, 2000):
            taken, length = self.taken(room, 10)
            self.assertGreaterEqual(taken, before)
            if taken:
                self.assertLessEqual(length, room)
            before = taken
        self.assertEqual(before, 10)

    def test_edge(self) -> None:
        """There is a size that is just enough for two; with a byte less, only one is taken."""
        enough = next(room for room in range(300, 2000) if self.taken(room, 1)[0])
        self.assertEqual([self.taken(room, 1)[0] for room in (enough - 1, enough, enough + 1)], [0, 1, 1])

    def test_oneByOne(self) -> None:
        """A single message is taken just where a run of one is."""
        for room in range(300, 700):
            columns = ColumnBuilder()
            with patch.object(column_builder, "FULL_FRAME_BYTES", room):
                columns.add(appended(b"x" * 100), 0)
                one = columns.addOne(appended(b"x" * 100))
            self.assertEqual(int(one), self.taken(room, 1)[0], room)

    def test_same(self) -> None:
        """Taken one by one or as runs of one, the frame is the same; topics and publishers may be new."""
        quick, slow = ColumnBuilder(), ColumnBuilder()
        for number in range(20):
            each = appended(
                b"x" * number,
                topic=f"t{number % 3}",
                publisher=number % 4,
                time=number,
                headers=[b"\x80"] if number % 2 else b"\x81\x01\x02",
                contents=[1] if number % 2 else 2,
            )
            self.assertTrue(quick.addOne(each))
            self.assertEqual(slow.add(each, 0), 1)
        one, other = quick.frame(FrameKind.RECORDS, 5), slow.frame(FrameKind.RECORDS, 5)
        self.assertEqual((b"".join(one.pieces), one.topicCounts), (b"".join(other.pieces), other.topicCounts))

    @given(st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=20), min_size=1, max_size=4), st.booleans())
    def test_joined(self, runs: list[list[bytes]], alike: bool) -> None:
        """Runs whose payloads are joined make the same frames as others, where they are split as well."""
        runs = [[b"x" * (len(run) + 1)] * len(run) for run in runs] if alike else runs
        joined = []
        for run in runs:
            size = len(run[0])
            ends = range(0, size * len(run) + 1, size) if alike else [0, *accumulate(map(len, run))]
            joined.append(appended()._replace(run=Run(b"", Blobs(b"".join(run), ends), 0x100)))
        with patch.object(column_builder, "FULL_FRAME_BYTES", 700):
            frames, others = (encodeRecords(each, 7) for each in (joined, [appended(*run) for run in runs]))
        self.assertEqual(list(map(written, frames)), list(map(written, others)))

    def test_largeAlone(self) -> None:
        """An empty frame takes one message whatever its size."""
        columns = ColumnBuilder()
        with patch.object(column_builder, "FULL_FRAME_BYTES", 300):
            self.assertFalse(columns.addOne(appended(b"x" * 1000)))
            self.assertEqual(columns.add(appended(b"x" * 1000, b"y"), 0), 1)
