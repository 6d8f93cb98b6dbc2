"""Purges and dead letters on queues that the journal keeps; those in memory are tried by way of the API."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers.queue_admin import QueueAdmin
from fleximq.broker.consumers.queue_transfer import MAX_READS
from fleximq.broker.deadlines import Deadlines


class SlowQueue:
    """Gives messages only in the portions that were read back.

    :param portions: how many messages can be taken after each reading.
    """

    def __init__(self, *portions: int) -> None:
        self.portions = list(portions)
        self.depth = sum(portions)
        self.here = 0
        self.readings = 0
        self.waiting: list[Any] = []

    @property
    def preparing(self) -> bool:
        """Whether the next one is not here."""
        return not self.here and self.depth > 0

    def whenPrepared(self, call: Any) -> None:
        """Wait for a portion."""
        self.readings += 1
        self.waiting.append(call)

    def load(self) -> None:
        """Read a portion back."""
        if self.portions:
            self.here += self.portions.pop(0)
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()

    def discard(self, number: int) -> int:
        """Throw away what is here."""
        gone = min(number, self.here)
        self.here -= gone
        self.depth -= gone
        return gone


class PurgeTests(SynchronousTestCase):
    """Messages that have to be read first."""

    def setUp(self) -> None:
        """An operator."""
        self.clock = Clock()
        none: Any = None
        self.admin = QueueAdmin(none, none, none, none, none, Deadlines(self.clock))
        self.done: list[tuple[int, str | None]] = []

    def purge(self, queue: SlowQueue, loads: int) -> None:
        """Purge a queue that is read back so often."""
        purged: Any = queue
        self.admin.purge(purged, lambda gone, reason: self.done.append((gone, reason)))
        for _ in range(loads):
            queue.load()
            for _ in range(10):
                self.clock.advance(0)

    def test_portions(self) -> None:
        """It goes on as portions come, in turns of their own."""
        queue = SlowQueue(2500, 10)
        self.purge(queue, 2)
        self.assertEqual((self.done, queue.depth), ([(2510, None)], 0))

    def test_notYet(self) -> None:
        """It is not done before all were read."""
        self.purge(SlowQueue(5, 5), 1)
        self.assertEqual(self.done, [])

    def test_unreadable(self) -> None:
        """Where nothing comes back for long enough, it says so."""
        queue = SlowQueue(5)
        queue.depth = 7
        self.purge(queue, MAX_READS + 2)
        self.assertEqual(self.done, [(5, "the rest cannot be read")])

    def test_empty(self) -> None:
        """An empty queue is purged at once."""
        self.purge(SlowQueue(), 0)
        self.assertEqual(self.done, [(0, None)])
