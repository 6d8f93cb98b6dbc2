"""What messages count against the bounds of queues."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content, Message
from fleximq.values.message_cost import OVERHEAD, cost, costOf, measure
from fleximq.values.publication_head import Head


def message(size: int, head: Head | None = None) -> Message:
    """Return a message with a payload of so many bytes."""
    return Message(bytes(size), Content.MESSAGEPACK, head=head)


class CostTests(SynchronousTestCase):
    """Payload, ids, long headers and the overhead."""

    def test_aLongHeaderCosts(self) -> None:
        """One over the overhead costs its bytes, for each message that has it; a shorter one nothing."""
        short, long = Head("t", bytes(OVERHEAD)), Head("t", bytes(OVERHEAD + 1))
        self.assertEqual(costOf(message(10, short)), 10 + OVERHEAD)
        self.assertEqual(costOf(message(10, long)), 10 + OVERHEAD + OVERHEAD + 1)
        mixed = [message(1), message(1, long), message(1, long), message(1, short), message(1)]
        self.assertEqual(cost(mixed), sum(map(costOf, mixed)))
        self.assertEqual(measure(mixed), (5, cost(mixed)))

    def test_measuringEndsAtTheBound(self) -> None:
        """With the message that reaches it."""
        long = Head("t", bytes(1000))
        self.assertEqual(measure([message(0, long)] * 3, 1000), (1, 1000 + OVERHEAD))
