"""Retention of the records of schedules: those that wait stay, ended ones go."""

from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.schedules.schedule_header import SCHEDULES
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import SegmentRemoval
from tests.broker.schedules.durable import Life

RULES = RetentionPolicy(durable=lambda topic: False)


class RetentionTests(SynchronousTestCase):
    """A journal of small segments whose records are needed only by schedules; of five messages, one still waits."""

    def setUp(self) -> None:
        """Begin."""
        self.life = Life(segmentBytes=1 << 14)
        for number in range(200):
            far = 3_000_000 + number if number % 5 == 0 else 10
            self.life.schedule(self.life.now() + far, b"%03d" % number + bytes(400))
            self.life.commit()
        self.kept = [b"%03d" % number for number in range(0, 200, 5)]
        self.life.clock.advance(1)
        self.life.commit()
        self.roll()

    def roll(self) -> None:
        """Begin a segment."""
        self.life.journal.opened.roll()
        self.life.commit()

    def clean(self) -> None:
        """Remove what has expired, twice: what is joined was rewritten before."""
        for _ in range(2):
            segments = self.life.journal.segments
            removal = SegmentRemoval(self.life.disk, "/disk/journal", segments, RULES, self.exclusively)
            removal.clean(self.life.broker.checkpointer.needed(), frozenset(), int(self.life.wall() * 1_000_000))

    def exclusively(self, work: Callable[[], None]) -> None:
        """Do it between two readings."""
        work()
        self.life.journal.opened.reader.forgetNow()

    def stored(self, topic: str) -> list[bytes]:
        """Return the beginnings of the payloads of a topic's records in the journal."""
        mine = (each.only(topic.__eq__) for each in self.life.journal.everything())
        return [payload[:3] for each in mine for payload in each.payloads]

    def test_onlyThoseThatWaitStay(self) -> None:
        """And they are published after a restart."""
        size = self.life.journal.segments.bytes
        self.clean()
        self.assertEqual(self.stored(SCHEDULES), self.kept)
        self.assertEqual(self.stored("t"), [])
        self.assertLess(self.life.journal.segments.bytes, size // 2)
        life = self.life = self.life.killed()
        life.finish(8000)
        self.assertEqual([payload[:3] for payload in life.seen.payloads()], self.kept)

    def test_cancelledOnesGo(self) -> None:
        """And those that were published meanwhile."""
        for number in self.life.waitingIds()[5:]:
            self.life.broker.schedules.cancel(self.life.me, number, lambda found: None)
        self.life.commit()
        self.roll()
        self.clean()
        self.assertEqual(self.stored(SCHEDULES), self.kept[:5])
        self.life.finish(8000)
        self.roll()
        self.clean()
        self.assertEqual(self.stored(SCHEDULES), [])
        self.assertLessEqual(len(self.life.journal.segments), 2)

    def test_thoseThatAreBeingPublishedStay(self) -> None:
        """Until their commit."""
        self.life.clock.advance(8000)
        self.assertEqual(len(self.life.broker.schedules.inJournal.firing), len(self.kept))
        self.assertEqual(len(self.life.broker.schedules.inJournal.needed()), len(self.kept))
