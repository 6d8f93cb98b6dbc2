"""The timetable, against a sorted list."""

from array import array
from sys import getsizeof

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker import timetable
from fleximq.broker.timetable import Entries, Timetable

ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20), st.integers(0, 60)),
        st.tuples(st.just("addAll"), st.integers(0, 20), st.integers(0, 60)),
        st.tuples(st.just("remove"), st.integers(0, 20), st.integers(0, 60)),
        st.tuples(st.just("take"), st.integers(0, 20), st.integers(0, 9)),
    ),
    max_size=80,
)


def rows(entries: Entries) -> list[tuple[int, int, int]]:
    """Return entries as a list."""
    return list(entries.rows())


class TimetableTests(SynchronousTestCase):
    """Blocks are small, so that a few entries need several."""

    def setUp(self) -> None:
        """Begin."""
        self.patch(timetable, "_BLOCK", 4)

    @given(ACTS)
    def test_model(self, acts: list[tuple[str, int, int]]) -> None:
        """It has the entries in the order of due time and number, each once."""
        table, model = Timetable(), dict[tuple[int, int], int]()
        for act, due, number in acts:
            if act == "add":
                table.add(due, number, number % 7)
                model.setdefault((due, number), number % 7)
            elif act == "addAll":
                several = Entries.none()
                for more in range(9):
                    key = due + more // 3, number + 7 * more % 5 + more
                    if key not in [row[:2] for row in rows(several)]:
                        several.insert(more % 2 and several.size, *key, key[1] % 7)
                        model.setdefault(key, key[1] % 7)
                table.addAll(several)
            elif act == "remove":
                self.assertEqual(table.remove(due, number), model.pop((due, number), None))
            else:
                expected = [(*key, owner) for key, owner in sorted(model.items()) if key[0] <= due][:number]
                self.assertEqual(rows(table.takeDue(due, number)), expected)
                for row in expected:
                    del model[row[:2]]
            ordered = [(*key, owner) for key, owner in sorted(model.items())]
            self.assertEqual([row for block in table.blocks() for row in rows(block)], ordered)
            self.assertEqual((len(table), table.first), (len(model), min(model)[0] if model else None))
        for due, number in [(0, 0), (5, 5), (5, 6), (20, 60)]:
            after = [row for row in ordered if row[:2] > (due, number)][:3] if acts else []
            self.assertEqual(rows(table.after(due, number, 3)), after)

    def test_foundAfterTheyWereAddedTogether(self) -> None:
        """Those that filled the last block, and those of new ones."""
        table = Timetable()
        table.add(1, 1)
        table.addAll(Entries(array("Q", [2, 3, 4, 5]), array("Q", [2, 3, 4, 5]), array("H", [7, 7, 7, 7])))
        self.assertEqual([table.remove(each, each) for each in (2, 3, 4, 5, 1)], [7, 7, 7, 7, 0])

    @given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=30))
    def test_loadedAsItWas(self, keys: set[tuple[int, int]]) -> None:
        """From columns in order."""
        entries = Entries.none()
        for due, number in sorted(keys):
            entries.insert(entries.size, due, number, 3)
        table = Timetable()
        table.load(entries)
        self.assertEqual(rows(table.takeDue(10, 100)), rows(entries))
        self.assertEqual(table.counts().total(), 0)


class MemoryTests(SynchronousTestCase):
    """The bytes of 100,000 entries."""

    def test_atMost24BytesEach(self) -> None:
        """In any order of arrival."""
        for step in (1, 7919):
            table = Timetable()
            for number in range(100_000):
                table.add(number * step % 100_000, number)
            size = sum(getsizeof(column) for block in table.blocks() for column in block)
            size += sum(getsizeof(block) for block in table.blocks())
            self.assertLess(size / 100_000, 24)

    def test_addedTogether(self) -> None:
        """Also a few at a time, as commits have them; the blocks are full."""
        table = Timetable()
        for first in range(0, 100_000, 8):
            block = range(first, first + 8)
            table.addAll(Entries(array("Q", block), array("Q", block), array("H", bytes(16))))
        self.assertEqual(len(table.blocks()), -(-100_000 // (timetable._BLOCK // 2)))
        self.assertEqual(len(table), 100_000)

    def test_columnsAreNumbers(self) -> None:
        """Of 18 bytes."""
        table = Timetable()
        table.add(1, 2, 3)
        [block] = table.blocks()
        self.assertEqual(block, Entries(array("Q", [1]), array("Q", [2]), array("H", [3])))
        self.assertEqual(sum(column.itemsize for column in block), 18)
