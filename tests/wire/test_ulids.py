"""Ids that are new, sort as they were made, and are ULIDs."""

from twisted.trial.unittest import SynchronousTestCase
from ulid import ULID

from fleximq.wire import ulids
from fleximq.wire.minimq_message import isId
from fleximq.wire.ulids import Ulids, idAt, newUlid


class UlidsTests(SynchronousTestCase):
    """Whatever the clock does."""

    def test_ulidsAreThoseOfPythonUlid(self) -> None:
        """They are what python-ulid reads, and of the present."""
        before = ULID().milliseconds
        id = newUlid()
        self.assertEqual(str(ULID.from_str(id)), id)
        self.assertTrue(before <= ULID.from_str(id).milliseconds <= ULID().milliseconds)

    def test_inOneMillisecondInLaterOnesAndWhenClockIsSetBack(self) -> None:
        """In one millisecond, in later ones, and when the clock is set back."""
        times = iter([5] * 500 + [6, 7, 7, 3, 3, 8] * 100)
        ids = [each() for each in [Ulids(lambda: next(times))] * 1100]
        self.assertEqual(ids, sorted(set(ids)))

    def test_mostOfAMillisecond(self) -> None:
        """When all numbers behind one beginning are used, the next one is taken."""
        make = Ulids(lambda: 5)
        first = make()
        make._number = (1 << 25) - 2
        ids = [first, make(), make(), make()]
        self.assertEqual(ids, sorted(set(ids)))
        self.assertEqual((ids[1][-5:], ids[1][:-5] < ids[2][:-5]), ("ZZZZZ", True))

    def test_nextBeginningCarriesOver(self) -> None:
        """The next beginning carries over."""
        self.assertEqual([ulids._following(head) for head in ("00A", "00Z", "0ZZ", "09")], ["00B", "010", "100", "0A"])

    def test_idAt(self) -> None:
        """A place in a journal has an id of its own, which looks like a ULID and is always the same."""
        ids = [idAt(journal, offset) for journal in ("aa", "bb") for offset in (1, 2, 1 << 60)]
        self.assertEqual(len(set(ids)), 6)
        self.assertEqual(ids[0], idAt("aa", 1))
        self.assertTrue(all(str(ULID.from_str(id)) == id and isId(id) for id in ids))
