"""The offsets of single records, asked for by ranges, against a plain set."""

from array import array

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.retention.single_offsets import SingleOffsets


class SingleOffsetsTests(SynchronousTestCase):
    """Neighbours and others."""

    @given(st.sets(st.integers(1, 40)), st.integers(0, 45), st.integers(0, 45))
    def test_model(self, offsets: set[int], first: int, last: int) -> None:
        single = SingleOffsets(array("Q", offsets))
        expected = {each for each in offsets if first <= each <= last}
        if first <= last:
            self.assertEqual((single.within(first, last), single.count(first, last)), (expected, len(expected)))

    def test_neighbours(self) -> None:
        """In any order."""
        single = SingleOffsets(array("Q", [7, 5, 6]))
        self.assertEqual((single.within(6, 9), single.count(1, 6)), ({6, 7}, 2))
