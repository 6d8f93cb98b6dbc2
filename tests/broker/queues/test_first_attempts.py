"""When first deliveries ended."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.first_attempts import FirstAttempts
from tests.broker.queueing import message


class FirstAttemptsTests(SynchronousTestCase):
    """Times of messages that are delivered again."""

    def setUp(self) -> None:
        """Begin with a queue that has all messages."""
        self.here = set(range(10_000))
        self.firsts = FirstAttempts(self.here.__contains__)

    def end(self, tag: int, attempts: int, now: float) -> None:
        """Let a delivery end."""
        self.firsts.ended([QueueDelivery(tag, message(), attempts)], now)

    def test_theFirstDeliveryCounts(self) -> None:
        """Later ones do not change the time; it is told once."""
        self.end(1, 1, 5.0)
        self.end(1, 2, 6.0)
        self.assertEqual([self.firsts.take(1), self.firsts.take(1), self.firsts.take(2)], [5.0, None, None])

    def test_messagesThatHaveLeftAreForgotten(self) -> None:
        """So that acknowledgements need not tell it; those that are here stay."""
        for tag in range(10_000):
            self.end(tag, 1, float(tag))
            self.here -= {tag - 50}
        self.assertLess(len(self.firsts), 300)
        self.assertEqual(self.firsts.take(9_990), 9_990.0)
