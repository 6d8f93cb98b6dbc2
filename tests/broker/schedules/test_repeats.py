"""Recurring schedules: which due times are published after a pause of the process, and after restarts."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.schedules.repeat import LATE, Repeat
from fleximq.broker.schedules.repeats import MOST_REPEATS
from fleximq.broker.schedules.schedules import LOOK, RETRY
from fleximq.errors import NoCapacity
from fleximq.values.occurrences import CatchUp
from fleximq.values.records import QOS1
from fleximq.values.state_records import RepeatDefined
from tests.broker.schedules.durable import Life, duesOf


class RepeatTests(SynchronousTestCase):
    """A schedule of every second for the durable topic "t"."""

    def setUp(self) -> None:
        """Begin."""
        self.life = Life()
        self.start = self.life.now()

    def define(self, catchUp: CatchUp = CatchUp.NONE, **others: Any) -> None:
        """Define it, and wait for the commit."""
        now = self.life.now()
        fields = {"name": "r", "topic": "t", "every": 1000, "payload": b"x", **others}
        self.life.broker.schedules.repeats.define(
            Repeat(content=QOS1, publisher=(1, "fleximq-1", 1), start=now, since=now, catchUp=catchUp, **fields)
        )
        self.life.commit()

    def dues(self) -> list[int]:
        """Return the due times of all publications, in seconds after the start."""
        return [(due - self.start) // 1000 for due in duesOf(self.life.journal.everything())]

    def wait(self, seconds: float, steps: int = 1) -> None:
        """Let time pass, with commits."""
        for _ in range(steps):
            self.life.clock.advance(seconds / steps)
            for _ in range(40):
                self.life.commit()
                self.life.clock.advance(0)

    def test_onTime(self) -> None:
        """Each due time once."""
        self.define()
        self.wait(5, 10)
        self.assertEqual(self.dues(), [1, 2, 3, 4, 5])

    def missed(self, catchUp: CatchUp) -> list[int]:
        """Return the due times that are published after a stop from 1 to 31.5 seconds, of every 15 seconds."""
        self.define(catchUp, every=15_000)
        self.wait(1)
        self.life.broker.stop()
        self.life.clock.advance(LATE / 1000 + 30.5)
        self.life = self.life.killed()
        self.wait(0)
        return self.dues()

    def test_missedOnesAreSkipped(self) -> None:
        """The next due time follows."""
        self.assertEqual(self.missed(CatchUp.NONE), [])
        self.wait(10)
        self.assertEqual(self.dues(), [45])

    def test_lastOfTheMissedOnes(self) -> None:
        """The others are skipped."""
        self.assertEqual(self.missed(CatchUp.LAST), [30])

    def test_allMissedOnes(self) -> None:
        """In order."""
        self.assertEqual(self.missed(CatchUp.ALL), [15, 30])

    def test_restartPublishesNoneTwice(self) -> None:
        """Whether the snapshot or the later log has the publication."""
        self.define(CatchUp.ALL)
        for _ in range(3):
            self.wait(1.5)
            self.life.journal.opened.roll()
            self.wait(0)
            self.life = self.life.killed()
            self.wait(0)
        dues = self.dues()
        self.assertEqual(dues, sorted(set(dues)))
        self.assertEqual(dues, list(range(1, dues[-1] + 1)))

    def test_sameDefinitionContinues(self) -> None:
        """So programs may define it at each start."""
        self.define()
        self.wait(0.7)
        self.define()
        self.wait(0.3)
        self.assertEqual(self.dues(), [1])

    def test_otherDefinitionReplaces(self) -> None:
        """From now on."""
        self.define()
        self.wait(0.7)
        self.define(every=2000)
        self.wait(1)
        self.assertEqual(self.dues(), [])
        self.wait(1)
        self.assertEqual(len(self.dues()), 1)

    def test_clockSetBackRepeatsNothing(self) -> None:
        """And one that is set forward is a pause."""
        self.define()
        self.wait(3, 3)
        self.life.ahead -= 2
        self.wait(2, 2)
        self.assertEqual(self.dues(), [1, 2, 3])
        self.life.ahead += 3600
        self.wait(LOOK)
        self.assertEqual(len(self.dues()), 4)

    def test_refusedOnesAreTriedAgain(self) -> None:
        """While the journal stores nothing."""
        self.define(CatchUp.ALL)
        group = self.life.journal.opened.group
        group.readOnly = "the disk is full"
        self.life.clock.advance(1)
        group.readOnly = None
        self.wait(RETRY)
        self.assertEqual(self.dues()[0], 1)

    def test_refusedOneIsNotMissed(self) -> None:
        """However long the journal stores nothing; the next due time takes its place."""
        self.define(every=60_000)
        group = self.life.journal.opened.group
        group.readOnly = "the disk is full"
        self.life.clock.pump([1] * 100)
        group.readOnly = None
        self.wait(RETRY)
        self.assertEqual(self.dues(), [60])
        group.readOnly = "the disk is full"
        self.life.clock.pump([1] * 100)
        group.readOnly = None
        self.wait(RETRY)
        self.assertEqual(self.dues(), [60, 180])

    def test_notMoreThanTheMaximum(self) -> None:
        """Others are refused."""
        repeats = self.life.broker.schedules.repeats
        self.define()
        dumped = repeats.snapshot()[0][0]
        for number in range(MOST_REPEATS - 1):
            repeats.noted(RepeatDefined(f"{number}", {**dumped, "name": f"{number}"}))
        with self.assertRaises(NoCapacity):
            self.define(name="other")

    def test_removedForGood(self) -> None:
        """Also after a restart."""
        self.define()
        self.life.commit()
        self.assertTrue(self.life.broker.schedules.repeats.remove("r"))
        self.life.commit()
        self.life = self.life.killed()
        self.wait(5)
        self.assertEqual((self.dues(), len(self.life.broker.schedules.repeats)), ([], 0))

    def test_withoutItsLibraryItWaits(self) -> None:
        """A broker that cannot compute its times starts, and keeps the definition."""
        repeats = self.life.broker.schedules.repeats
        self.define()
        dumped = {**repeats.snapshot()[0][0], "every": None, "cron": "no expression"}
        repeats.noted(RepeatDefined("r", dumped))
        self.assertEqual(len(self.life.errors), 1)
        self.wait(5)
        self.assertEqual((self.dues(), repeats.snapshot()[0][0]["cron"]), ([], "no expression"))
