"""Ages of messages that are only looked at now and then."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.web.queue_survey import NOTES, QueueAges, QueueSurveyor
from tests.broker.parts import makeBroker, text
from tests.slow_journal import SlowJournal


class FakeQueue:
    """So many messages came, and this one is the oldest that waits."""

    def __init__(self) -> None:
        self.arrived = 0
        self.oldest: int | None = None
        self.stored = self


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


class StoredTests(SynchronousTestCase):
    """The topics with the oldest stored messages."""

    def test_asManyAsAreWantedOfThoseThatMayBeSeenOldestFirst(self) -> None:
        """As many as are wanted, of those that may be seen, oldest first."""
        clock, journal = Clock(), SlowJournal()
        broker = makeBroker(clock, journal=journal, durable=("#",))
        publisher = broker.join("any")
        for second, topic in enumerate(("b", "secret", "a", "c", "b")):
            journal.now = second * 1_000_000
            broker.publish(Envelope(broker.topicFor(publisher, topic), publisher, MessageSource()), text("x"), 1)
        journal.commit()
        clock.advance(10)
        survey = Deferred.fromCoroutine(QueueSurveyor(broker, clock).survey(2, lambda topic: topic != "secret"))
        self.assertEqual(self.successResultOf(survey).oldest, [("b", 10.0), ("a", 8.0)])
