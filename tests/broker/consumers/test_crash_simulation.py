"""Power losses at moments of many loads of a queue; and that they are noticed if the broker forgets its records."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.queues.key_order import KeyOrder
from fleximq.broker.queues.offset_ranges import OffsetRanges
from fleximq.broker.queues.queue_recorder import QueueRecorder
from fleximq.broker.queues.queue_state import QueueState
from tests.broker.consumers.crash_simulation import explore
from tests.broker.power_losses import Broken
from tests.nightly import repetitions


class CrashTests(SynchronousTestCase):
    """Points of random loads."""

    def test_eachJobIsDeliveredUntilItIsSettled(self) -> None:
        """At whatever moment the power goes."""
        points: Counter[str] = Counter()
        for seed in range(repetitions(300, 10_000)):
            explore(seed, points, repetitions(5, 12))
        self.assertGreater(min(points.values()), 100)


class NoticedTests(SynchronousTestCase):
    """Brokers that forget what they should know."""

    def breaks(self, words: str) -> None:
        """Check that one of some loads breaks a promise, with these words."""
        with self.assertRaisesRegex(Broken, words):
            for seed in range(60):
                explore(seed, Counter(), 12)

    def test_acknowledgementsInTheJournal(self) -> None:
        """Settled jobs would be delivered again."""

        def acknowledged(state: QueueState, offsets: Sequence[int]) -> None:
            pass

        self.patch(QueueState, "acknowledged", acknowledged)
        self.breaks("though settling it was confirmed")

    def test_waitingJobsAtTheSnapshot(self) -> None:
        """Jobs would be lost."""
        complete = QueueRecorder.writeInto

        def writeInto(recorder: QueueRecorder, state: QueueState) -> None:
            complete(recorder, state)
            state.onDisk = OffsetRanges()

        self.patch(QueueRecorder, "writeInto", writeInto)
        self.breaks("neither delivered nor a dead letter")

    def test_recordsAfterTheSnapshot(self) -> None:
        """Jobs would be lost."""

        def arrive(state: QueueState, *arguments: Any) -> None:
            pass

        self.patch(QueueState, "arrive", arrive)
        self.breaks("neither delivered nor a dead letter")

    def test_keys(self) -> None:
        """Jobs of a key would be delivered in any order."""

        def admits(order: KeyOrder, tag: int, key: object) -> bool:
            return True

        self.patch(KeyOrder, "admits", admits)
        self.breaks("jobs of the key")
