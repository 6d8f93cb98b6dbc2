"""The volatile journal says yes at once."""

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.interfaces import IJournal
from fleximq.journal.memory import MemoryJournal


class MemoryJournalTests(SynchronousTestCase):
    """It has the interface of the one on disk."""

    def test_interface(self) -> None:
        """It is a journal."""
        verifyObject(IJournal, MemoryJournal())

    def test_committed(self) -> None:
        """A run is committed, without a reason to refuse it, before the call returns."""
        said: list[str | None] = []
        MemoryJournal().append(None, b"body", 3, said.append)
        self.assertEqual(said, [None])

    def test_safe(self) -> None:
        """Everything is safe at once."""
        said: list[int] = []
        journal = MemoryJournal()
        journal.append(None, b"body", 3, lambda reason: None)
        journal.whenSafe(lambda: said.append(1))
        self.assertEqual(said, [1])

    def test_acknowledged(self) -> None:
        """An acknowledgement changes nothing."""
        self.assertIsNone(MemoryJournal().acknowledged("queue", [1, 2]))  # type: ignore[func-returns-value]
