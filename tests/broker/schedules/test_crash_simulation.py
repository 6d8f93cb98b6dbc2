"""Power losses at moments of many loads of schedules; and that they are noticed if the broker forgets its proofs."""

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.schedules.messages_in_journal import MessagesInJournal
from fleximq.broker.schedules.repeats import Repeats
from fleximq.values.records import StoredBatch
from tests.broker.power_losses import Broken
from tests.broker.schedules.crash_simulation import explore
from tests.nightly import repetitions


class CrashTests(SynchronousTestCase):
    """Points of random loads."""

    def test_eachScheduleFiresOnce(self) -> None:
        """At whatever moment the power goes."""
        points: Counter[str] = Counter()
        for seed in range(repetitions(300, 10_000)):
            explore(seed, points, repetitions(5, 12))
        self.assertGreater(min(points.values()), 100)


class NoticedTests(SynchronousTestCase):
    """Brokers that forget what they should know."""

    def breaks(self, first: int = 0) -> bool:
        """Return whether one of some loads, from this seed on, breaks a promise."""
        try:
            for seed in range(first, first + 20):
                explore(seed, Counter(), 12)
        except Broken:
            return True
        return False

    def test_publicationsThatProveNothing(self) -> None:
        """Messages would be published twice."""

        def forget(messages: MessagesInJournal, due: int, number: int) -> None:
            pass

        self.patch(MessagesInJournal, "forget", forget)
        self.assertTrue(self.breaks())

    def test_messagesBeingPublishedAtTheSnapshot(self) -> None:
        """Messages would be lost."""
        complete = MessagesInJournal.snapshot

        def snapshot(messages: MessagesInJournal) -> dict[str, Any]:
            return {**complete(messages), "firing": []}

        self.patch(MessagesInJournal, "snapshot", snapshot)
        self.assertTrue(self.breaks(200))  # few loads begin a segment at such a moment

    def test_recordsAfterTheSnapshot(self) -> None:
        """Messages would be lost."""

        def stored(messages: MessagesInJournal, batch: StoredBatch) -> None:
            pass

        self.patch(MessagesInJournal, "stored", stored)
        self.assertTrue(self.breaks())

    def test_recurringOnes(self) -> None:
        """Due times would be published twice."""

        def fired(repeats: Repeats, name: str, due: int) -> None:
            pass

        self.patch(Repeats, "fired", fired)
        self.assertTrue(self.breaks())
