"""Ages of messages that are only looked at now and then."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.web.queue_survey import NOTES, QueueAges


class FakeQueue:
    """So many messages came, and this one is the oldest that waits."""

    def __init__(self) -> None:
        self.arrived = 0
        self.oldest: int | None = None


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

    def test_grows(self) -> None:
        """A message grows older, whatever comes behind it."""
        self.look(0, 1, 1)
        self.assertEqual([self.look(10, 50, 1), self.look(20, 90, 1)], [10, 20])

    def test_taken(self) -> None:
        """When it is gone, the next one has its own age, at least."""
        self.look(0, 1, 1)
        self.look(10, 2, 1)
        self.assertEqual(self.look(20, 3, 2), 10)

    def test_empty(self) -> None:
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
