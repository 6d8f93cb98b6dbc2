"""When first deliveries ended, and who had the last ones."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.attempt_notes import AttemptNotes
from tests.broker.queueing import message


class AttemptNotesTests(SynchronousTestCase):
    """Times of messages that are delivered again."""

    def setUp(self) -> None:
        """Begin with a queue that has all messages."""
        self.here = set(range(10_000))
        self.notes = AttemptNotes(self.here.__contains__)

    def end(self, tag: int, attempts: int, now: float) -> None:
        """Let a delivery end."""
        self.notes.ended([QueueDelivery(tag, message(), attempts)], now)

    def test_theFirstDeliveryCounts(self) -> None:
        """Later ones do not change the time; it is told once."""
        self.end(1, 1, 5.0)
        self.end(1, 2, 6.0)
        self.assertEqual([self.notes.take(tag)[0] for tag in (1, 1, 2)], [5.0, None, None])

    def test_theLastConsumerIsToldOnce(self) -> None:
        """Without one it has no name."""
        self.notes.last([1, 2], "me")
        self.notes.last([2], "you")
        self.assertEqual([self.notes.take(tag)[1] for tag in (1, 2, 2)], ["me", "you", ""])

    def test_messagesThatHaveLeftAreForgotten(self) -> None:
        """So that acknowledgements need not tell it; those that are here stay."""
        for tag in range(10_000):
            self.end(tag, 1, float(tag))
            self.notes.last([tag], "me")
            self.here -= {tag - 50}
        self.assertLess(len(self.notes), 500)
        self.assertEqual(self.notes.take(9_990), (9_990.0, "me"))
