"""The volatile journal says yes at once."""

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.errors import NotKept
from fleximq.interfaces import IJournal
from fleximq.journal.memory_journal import MemoryJournal
from tests.journal.at_once import published


class MemoryJournalTests(SynchronousTestCase):
    """It has the interface of the one on disk."""

    def test_interface(self) -> None:
        """It is a journal."""
        verifyObject(IJournal, MemoryJournal())

    def test_committed(self) -> None:
        """A run is committed, without a reason to refuse it, before the call returns."""
        said: list[tuple[int, str | None]] = []
        MemoryJournal().append(*published([b"body"]), lambda *told: said.append(told))
        self.assertEqual(said, [(0, None)])

    def test_safe(self) -> None:
        """Everything is safe at once."""
        said: list[int] = []
        journal = MemoryJournal()
        journal.append(*published([b"body"]), lambda offset, reason: None)
        journal.whenCommitted(lambda: said.append(1))
        self.assertEqual(said, [1])

    def test_nothing(self) -> None:
        """What is read back is nothing, and nothing can be staged."""
        journal = MemoryJournal()
        said: list[object] = []
        journal.appendState("a note")
        journal.fetch([1], 10, said.append)
        journal.read(1, lambda topic: True, 10, lambda batches, end: said.append((list(batches), end)))
        journal.offsetAt(0, said.append)
        journal.readBytes(0, 10, lambda position, data, end: said.append((position, data, end)))
        journal.stage("q", 1, "p", [], lambda token, reason: said.append((token, reason)))
        journal.reopen(said.append)
        self.assertEqual(said, [[], ([], 1), 1, (0, b"", 0), (None, "there is no journal"), None])
        self.assertEqual((journal.bounds(), journal.health()["state"]), ({}, "ok"))
        self.assertRaises(NotKept, journal.commitStaged, "q", 1, [], lambda offset, reason: None)
