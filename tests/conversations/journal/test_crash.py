"""Kills at random moments lose no confirmed message: 3 kills, in the nightly run 100.

``python -m tests.conversations.journal.crash_loop`` takes any number.
"""

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.journal.crash_load import Sent
from tests.conversations.journal.crash_loop import Count, CrashLoop, report
from tests.nightly import nightly, repetitions


class CrashTests(SynchronousTestCase):
    """The loop of kills."""

    def assertNothingLost(self, kills: int, fsync: str) -> None:
        """Run the loop, and check its report."""
        loop = CrashLoop(os.path.abspath(self.mktemp()), fsync)
        counts = loop.run(kills)
        said = report(kills, counts, loop.ledger.faults, 0)
        self.assertEqual(loop.ledger.faults, [], said)
        for count in counts.values():
            self.assertEqual((count.lost, count.duplicated), (0, 0), said)
            self.assertGreater(count.confirmed, kills, said)

    def test_killLosesNothingWithSync(self) -> None:
        """With a sync before each confirmation."""
        self.assertNothingLost(repetitions(3, 100), "always")

    @nightly
    def test_killLosesNothingWithoutSync(self) -> None:
        """Without: a process that dies takes nothing with it that the system has."""
        self.assertNothingLost(3, "never")


class CountTests(SynchronousTestCase):
    """That the loop sees what is wrong, on made-up ledgers."""

    def setUp(self) -> None:
        """Three messages of each dialect, confirmed in the first round; a second round followed."""
        self.loop = CrashLoop("nowhere")
        ledger = self.ledger = self.loop.ledger
        for sender in ("flexi-0", "blip-0", "mini-0"):
            messages = [Sent(sender, number) for number in range(1, 4)]
            ledger.sent[sender] = 3
            ledger.confirm(messages)
        ledger.round = 1
        self.loop.kept = [Sent("flexi-0", number) for number in range(1, 4)]
        for number in range(1, 4):
            ledger.tags[number] = Sent("blip-0", number)
            ledger.deliver(Sent("blip-0", number))
            ledger.deliver(Sent("mini-0", number))

    def test_completeLedgerHasNoFault(self) -> None:
        """All is there."""
        counts = self.loop._count()
        self.assertEqual(counts, dict.fromkeys(("flexi", "blip", "mini"), Count(3, 0, 0, 3, 0, 0)))
        self.assertEqual(self.ledger.faults, [])

    def test_whatIsNotThereIsCountedWhoeverCarriedIt(self) -> None:
        """What is not there is counted, whoever carried it."""
        del self.loop.kept[1], self.ledger.seen[Sent("blip-0", 2)], self.ledger.seen[Sent("mini-0", 2)]
        self.assertEqual([count.lost for count in self.loop._count().values()], [1, 1, 1])

    def test_whatWasKeptTwiceIsCounted(self) -> None:
        """What was kept twice is counted; it is out of order as well."""
        self.loop.kept.append(Sent("flexi-0", 3))
        self.ledger.tags[4] = Sent("blip-0", 3)
        counts = self.loop._count()
        self.assertEqual([counts["flexi"].duplicated, counts["blip"].duplicated], [1, 1])
        self.assertEqual(len(self.ledger.faults), 2)

    def test_anotherOrderThanSendersIsFault(self) -> None:
        """Another order than the sender's is a fault."""
        self.loop.kept.reverse()
        self.loop._count()
        self.assertEqual(self.ledger.faults[0], "FlexiMQ: flexi-0:2 came behind flexi-0:3")

    def test_messageThatNobodySentIsFault(self) -> None:
        """So is what nobody sent, and what was finished and comes again."""
        self.loop.kept.append(Sent("flexi-0", 4))
        self.ledger.deliver(Sent("mini-0", 9))
        self.ledger.finished.add(Sent("blip-0", 1))
        self.ledger.deliver(Sent("blip-0", 1))
        self.loop._count()
        self.assertEqual(
            sorted(self.ledger.faults),
            [
                "blip-0:1 came again, although its acknowledgement was confirmed",
                "flexi-0:4 was never sent",
                "mini-0:9 was never sent",
            ],
        )
