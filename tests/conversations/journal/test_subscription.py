"""A BlipMQ subscription with much in it survives a crash."""

from tests.conversations.clients import Delivery
from tests.conversations.journal.journaled import JournalCase

PENDING, IN_FLIGHT = 1000, 10


class SubscriptionTests(JournalCase):
    """1,000 messages wait, 10 are handed out."""

    def fill(self) -> int:
        """Fill a subscription, and return its id."""
        client = self.blip()
        subscription = client.subscribe("t")
        for number in range(1, PENDING + IN_FLIGHT + 1):
            client.publish("t", b"%d" % number)
        self.assertEqual(client.barrier(), [])
        for number in range(1, IN_FLIGHT + 1):
            self.assertEqual(client.poll(subscription).tag, number)
        return subscription

    def test_messagesSurviveCrashInOrder(self) -> None:
        """All are there under its id: those in flight first, each with its tag, then the others in order."""
        subscription = self.fill()
        self.restart()
        client = self.blip()
        got = [client.poll(subscription) for _ in range(PENDING + IN_FLIGHT)]
        self.assertEqual(
            got, [Delivery(number, 1, "t", b"%d" % number) for number in range(1, PENDING + IN_FLIGHT + 1)]
        )
        self.assertIsNone(client.poll(subscription))

    def test_messagesSurviveSecondCrash(self) -> None:
        """So are they after a second crash, without those that were acknowledged in between."""
        subscription = self.fill()
        self.restart()
        client = self.blip()
        gone = [client.poll(subscription).tag for _ in range(20)][::2]
        for tag in gone:
            client.ack(tag, subscription)
        self.assertEqual(client.barrier(), [])
        self.restart()
        client = self.blip()
        tags = [client.poll(subscription).tag for _ in range(PENDING)]
        self.assertEqual(tags, [tag for tag in range(1, PENDING + IN_FLIGHT + 1) if tag not in gone])
        self.assertIsNone(client.poll(subscription))
