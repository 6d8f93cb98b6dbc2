"""Passes of retention on their own thread, beside a reader on its own."""

from threading import get_ident
from types import SimpleNamespace
from typing import Any

from fleximq.journal.retention import cleaner_thread
from fleximq.journal.retention.cleaner_thread import CleanerThread
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace
from tests.journal.journal_case import FakeKeeper, JournalCase


class CleanerTests(JournalCase):
    """A journal of which nothing is durable, so that all may go but what a queue needs."""

    def setUp(self) -> None:
        super().setUp()
        self.needed: dict[str, int] = {}
        self.threads: list[int] = []
        queues = FakeKeeper()
        self.patch(queues, "needed", lambda: self.needed)
        segments, reader = self.journal.segments, self.journal.reader
        self.cleaner = CleanerThread(self.context(), segments, reader, RetentionPolicy(self.durable), queues)
        self.addCleanup(self.cleaner.stop)

    def durable(self, topic: str) -> bool:
        """Nothing is; remember which thread asks."""
        self.threads.append(get_ident())
        return False

    def roll(self) -> None:
        """Begin a new segment."""
        self.journal._rollAt = 0
        self.kept(b"x", "x")

    def cleaned(self) -> FreedSpace:
        """Do a pass and return what it did."""
        freed: list[FreedSpace] = []
        self.assertTrue(self.cleaner.clean(freed.append))
        self.pump(lambda: bool(freed))
        return freed[0]

    def test_pass(self) -> None:
        """What has expired goes, on another thread; then another pass can be begun."""
        self.kept(b"abc")
        self.roll()
        self.assertEqual(self.cleaned().removed, 1)
        self.assertEqual([topic for _, topic, _ in self.records()], ["x"])
        self.assertNotIn(get_ident(), self.threads)
        self.assertEqual(self.cleaned(), FreedSpace())

    def test_needed(self) -> None:
        """The queues are asked when a pass begins."""
        self.kept(b"abc")
        self.roll()
        self.needed["a"] = 1
        self.assertEqual(self.cleaned(), FreedSpace())
        self.needed.clear()
        self.assertEqual(self.cleaned().removed, 1)

    def test_laterSegments(self) -> None:
        """What is sealed while a pass begins is left to the next one: a new queue may need what is in it."""
        self.kept(b"abc")
        work: list[Any] = []
        self.patch(
            cleaner_thread, "Thread", lambda target, **ignored: SimpleNamespace(start=lambda: work.append(target))
        )
        self.cleaner.clean()
        self.roll()
        self.cleaner._thread = None
        work[0]()
        self.assertEqual(len(self.records()), 4)

    def test_oneAtATime(self) -> None:
        """While a pass goes on, no other one is begun; after it one more follows, for segments completed meanwhile."""
        self.kept(b"abc")
        self.roll()
        freed: list[FreedSpace] = []
        self.assertTrue(self.cleaner.clean(freed.append))
        self.assertFalse(self.cleaner.clean(freed.append))
        self.kept(b"def")
        self.roll()
        self.pump(lambda: bool(freed))
        self.pump(lambda: self.cleaner._thread is None)
        self.assertEqual((len(freed), self.records()[0][0]), (1, 8))

    def test_stopped(self) -> None:
        """After a stop no pass is begun, and none goes on."""
        self.kept(b"abc")
        self.roll()
        self.cleaner.clean()
        self.assertTrue(self.cleaner.stop())
        self.assertFalse(self.cleaner.clean())

    def test_readBefore(self) -> None:
        """What a reader had in memory of what has gone is forgotten."""
        self.kept(b"abc")
        self.roll()
        self.assertEqual(len(self.records()), 4)
        self.cleaned()
        found: list[Any] = []
        self.journal.fetch([1, 2, 3], 100, found.append)
        self.pump(lambda: bool(found))
        self.assertEqual(found, [[]])

    def test_failure(self) -> None:
        """What fails is told, and the pass has ended."""
        self.kept(b"abc")
        self.roll()
        self.files.fail("remove")
        self.assertEqual(self.cleaned(), FreedSpace())
        self.pump(lambda: bool(self.log))
        self.assertEqual(self.log, ["what has expired could not be taken out of the journal: input/output error"])
        self.files.heal()
        self.assertEqual(self.cleaned().removed, 1)
