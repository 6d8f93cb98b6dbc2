"""What waits while a transaction is read back: in order, and not more than there is memory for."""

from fleximq.broker.publishing.transactions import OVERLOAD_BYTES
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import OVERHEAD
from tests.broker.parts import text
from tests.broker.publishing.test_publication_paths import DurableCase
from tests.journal_records import published


class WaitingTests(DurableCase):
    """Publications behind a transaction that takes its time."""

    def setUp(self) -> None:
        """Commit a transaction that is being read back; Bob takes all."""
        super().setUp()
        self.open(durable=("t",))
        self.taker = self.subscribe(self.bob, "t")
        self.journal.patient = True
        self.transactions = self.broker.transactions
        self.transact("q", "0")

    def transact(self, query: str, *contents: str) -> None:
        """Commit a transaction."""
        tokens: list[str] = []
        run = [published(self.envelope(), text(*contents))]
        self.journal.stage(query, 1, "p", run, lambda token, reason: tokens.append(str(token)))
        self.journal.commit()
        self.transactions.commit(query, 1, tokens, lambda offset, reason: None)
        self.journal.commit()

    def send(self, size: int) -> None:
        """Publish a run of one message that takes so many bytes while it waits."""
        body = [Message(bytes(size - 2 * OVERHEAD), Content.BYTES)]
        self.broker.publish(self.envelope(), body, 1)
        self.journal.commit()

    def test_crowded(self) -> None:
        """Nobody publishes beyond the bound, until the transaction was brought."""
        said: list[str] = []
        self.assertFalse(self.broker.overloaded)
        self.send(OVERLOAD_BYTES)
        self.assertEqual((self.transactions.waitingBytes, self.broker.overloaded), (OVERLOAD_BYTES, False))
        self.broker.whenRelieved(lambda: said.append("room"))
        self.publish("x")
        self.journal.commit()
        self.assertTrue(self.broker.overloaded)
        self.broker.whenRelieved(lambda: said.append(f"{len(self.taker.messages)} of 3"))
        self.assertEqual(said, ["room"])
        self.journal.answer()
        self.assertEqual((said, self.transactions.waitingBytes, self.broker.overloaded), (["room", "3 of 3"], 0, False))

    def test_emptyOnes(self) -> None:
        """Runs of nothing count as well, for what they take."""
        self.publish("")
        self.journal.commit()
        self.assertEqual(self.transactions.waitingBytes, 2 * OVERHEAD)

    def test_nextTransaction(self) -> None:
        """Where the next transaction follows, there is room as soon as what stood before it was brought."""
        said: list[int] = []
        self.send(OVERLOAD_BYTES + 1)
        self.broker.whenRelieved(lambda: said.append(self.transactions.waitingBytes))
        self.transact("r", "1")
        self.send(1000)
        self.journal.answer()
        self.assertEqual((said, self.broker.hasPendingPublications(self.alice)), ([1000], True))
        self.journal.answer()
        self.assertEqual((self.transactions.waitingBytes, len(self.taker.messages)), (0, 4))

    def test_stillCrowded(self) -> None:
        """There is none while more than the bound stands behind the next transaction."""
        said: list[int] = []
        self.transact("r", "1")
        self.send(OVERLOAD_BYTES + 1)
        self.broker.whenRelieved(lambda: said.append(1))
        self.journal.answer()
        self.assertEqual(said, [])
        self.journal.answer()
        self.assertEqual(said, [1])

    def test_publishers(self) -> None:
        """Whoever has published something that waits is under way, though it is on disk; nobody else is."""
        self.assertFalse(self.broker.hasPendingPublications(self.alice))
        self.publish("a")
        self.journal.commit()
        self.assertEqual(
            (self.broker.arePublicationsDecided(self.alice), self.broker.hasPendingPublications(self.alice)),
            (True, True),
        )
        self.assertFalse(self.broker.hasPendingPublications(self.bob))
        self.journal.answer()
        self.assertFalse(self.broker.hasPendingPublications(self.alice))
