"""Those who watch the journal."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.broker.observers import RecordWatchers
from fleximq.interfaces import IRecordWatcher


@implementer(IRecordWatcher)
class Watcher:
    """Remembers, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.error = error

    def appended(self, envelope: Any, body: Any, count: int) -> None:
        """See IRecordWatcher."""
        self._tell("appended", envelope, body, count)

    def decided(self, envelope: Any, body: Any, count: int, reason: str | None) -> None:
        """See IRecordWatcher."""
        self._tell("decided", envelope, body, count, reason)

    def _tell(self, *event: Any) -> None:
        self.told.append(event)
        if self.error is not None:
            raise self.error


class WatchersTests(SynchronousTestCase):
    """One list of them."""

    def setUp(self) -> None:
        """Nobody watches."""
        self.errors: list[Exception] = []
        self.watchers = RecordWatchers(self.errors.append)

    def test_interface(self) -> None:
        """The test's own watcher is one."""
        verifyObject(IRecordWatcher, Watcher())

    def test_empty(self) -> None:
        """None is present while nobody watches."""
        watcher = Watcher()
        self.assertFalse(self.watchers.present)
        self.watchers.add(watcher)
        self.assertTrue(self.watchers.present)
        self.watchers.remove(watcher)
        self.assertFalse(self.watchers.present)

    def test_broken(self) -> None:
        """What one raises hurts no other."""
        error = ValueError("why")
        broken, good = Watcher(error), Watcher()
        self.watchers.add(broken)
        self.watchers.add(good)
        self.watchers.appended("e", "b", 2)
        self.watchers.decided("e", "b", 2, None)
        self.assertEqual(good.told, [("appended", "e", "b", 2), ("decided", "e", "b", 2, None)])
        self.assertEqual(self.errors, [error, error])
