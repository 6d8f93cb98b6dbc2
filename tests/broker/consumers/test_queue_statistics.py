"""Ages and rates of messages that are only looked at now and then."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers import queue_statistics
from fleximq.broker.consumers.queue_statistics import NOTES, QueueAges, QueueRates
from fleximq.broker.envelope import Envelope, MessageSource
from tests.broker.parts import makeBroker, text
from tests.broker.restarts import Restarts


class FakeQueue:
    """So many messages came, and this one is the oldest that waits."""

    def __init__(self) -> None:
        self.arrived = 0
        self.oldest: int | None = None
        self.stored = self
        self.recorder = None


class AgesTests(SynchronousTestCase):
    """One queue, seen at times."""

    def setUp(self) -> None:
        """A queue that nobody has seen."""
        self.queue = FakeQueue()
        self.ages = QueueAges()

    def look(self, now: float, arrived: int, oldest: int | None) -> float:
        """Return the age that is found."""
        self.queue.arrived, self.queue.oldest = arrived, oldest
        return self.ages.ageOfOldest(self.queue, now)  # type: ignore[arg-type]

    def test_firstLook(self) -> None:
        """Nothing is known of what came before the first look."""
        self.assertEqual(self.look(10, 5, 1), 0)

    def test_messageGrowsOlderWhateverComesBehindIt(self) -> None:
        """A message grows older, whatever comes behind it."""
        self.look(0, 1, 1)
        self.assertEqual([self.look(10, 50, 1), self.look(20, 90, 1)], [10, 20])

    def test_whenItIsGoneNextOneHasItsOwnAgeAtLeast(self) -> None:
        """When it is gone, the next one has its own age, at least."""
        self.look(0, 1, 1)
        self.look(10, 2, 1)
        self.assertEqual(self.look(20, 3, 2), 10)

    def test_whatComesAfterTimeWithoutMessagesIsYoung(self) -> None:
        """What comes after a time without messages is young."""
        self.look(0, 1, 1)
        self.assertEqual((self.look(10, 1, None), self.look(20, 2, 2)), (0, 0))

    def test_manyLooks(self) -> None:
        """However often one looks, little is remembered, and the oldest message's age is right."""
        for now in range(1000):
            age = self.look(now, now + 1, 1)
        self.assertEqual(age, 999)
        self.assertLessEqual(len(self.ages._notes[self.queue]), NOTES + 1)  # type: ignore[index]

    def test_restored(self) -> None:
        """A message that waits again and has a number from before is not younger than the first look."""
        self.look(0, 10, 10)
        self.assertEqual(self.look(5, 12, 3), 5)


class RestartTests(SynchronousTestCase):
    """A durable queue of a broker that was started again."""

    def setUp(self) -> None:
        """Three messages, ten seconds one after the other, and a restart ten seconds later."""
        self.life = Restarts(durable=("jobs",))
        self.life.consume("jobs", 1)
        for name in "abc":
            self.publish(name)
            self.life.clock.advance(10)
        self.life.kill(patient=True)

    def publish(self, name: str) -> None:
        """Store a message now."""
        self.life.journal.now = round((self.life.clock.seconds() + self.life.step) * 1e6)
        self.life.publish("jobs", name, ids=True)
        self.life.commit()

    def look(self, queue: str = "jobs") -> float:
        """Return the age of the oldest message."""
        [lane] = [each for each in self.life.broker.queues.get(queue).lanes if each.stored.all]  # type: ignore[union-attr]
        return self.life.broker.queueAges.ageOfOldest(lane, self.life.clock.seconds())

    def test_ageFromTheJournal(self) -> None:
        """A message from before the start has the age of its record, once a look has read it."""
        self.assertEqual(self.look(), 0)
        self.life.settle()
        self.assertEqual(self.look(), 30)
        self.life.clock.advance(5)
        self.assertEqual((self.look(), self.life.journal.asked), (35, 0))

    def test_theNextOnes(self) -> None:
        """The next one has the age of the one before until it was read; one that came since the start has its own."""
        self.look()
        self.life.settle()
        self.life.consume("jobs", 1)
        self.assertEqual(self.look(), 30)
        self.life.settle()
        self.assertEqual(self.look(), 20)
        self.publish("d")
        self.look()
        self.life.consume("jobs", 2)
        self.life.clock.advance(3)
        self.assertEqual(self.look(), 3)

    def test_fewAreReadAtATime(self) -> None:
        """Many queues are read in portions, one with each look."""
        self.patch(queue_statistics, "READS", 0)
        before = self.life.journal.asked
        self.assertEqual((self.look(), self.life.journal.asked - before), (0, 0))
        self.patch(queue_statistics, "READS", 1)
        self.assertEqual((self.look(), self.life.journal.asked - before), (0, 1))

    def test_lost(self) -> None:
        """A message that the journal lost counts from the first look."""
        self.life.journal.records.clear()
        self.look()
        self.life.settle()
        self.life.clock.advance(2)
        self.assertEqual(self.look(), 2)


class RatesTests(SynchronousTestCase):
    """The rates of one queue."""

    def setUp(self) -> None:
        """A queue with two messages."""
        self.clock = Clock()
        self.broker = makeBroker(self.clock)
        self.client = self.broker.join("any")
        self.rates = QueueRates()
        self.produce(2)

    def produce(self, number: int) -> None:
        """Add messages."""
        envelope = Envelope(self.broker.topicFor(self.client, "jobs"), self.client, MessageSource())
        self.broker.produce(envelope, text(*["x"] * number), number)

    def look(self) -> tuple[float, float]:
        """Return the rates now."""
        queue = self.broker.queues.get("jobs")
        assert queue is not None
        return self.rates.rates(queue, self.clock.seconds())

    def test_firstLookHasNoRates(self) -> None:
        """There is nothing to compare it with."""
        self.assertEqual(self.look(), (0, 0))

    def test_ratesAreAveragesSinceAnEarlierLook(self) -> None:
        """Messages that arrived, and messages that were acknowledged, in a second."""
        self.look()
        self.produce(18)
        self.clock.advance(10)
        self.assertEqual(self.look(), (1.8, 0))
        [delivery] = self.broker.consumeMany(self.client, "jobs", 1)
        self.broker.acknowledgeMessages([delivery.message.message_id or ""])
        self.clock.advance(10)
        self.assertEqual(self.look(), (0, 0.1))

    def test_looksInQuickSuccessionCompareWithAnOlderOne(self) -> None:
        """Rates do not jump with the number of observers."""
        self.look()
        self.clock.advance(10)
        self.look()
        self.produce(10)
        self.clock.advance(0.1)
        self.assertEqual(self.look()[0], 10 / 10.1)
