"""What waits while a transaction is read back: in order, and not more than there is memory for."""

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope
from fleximq.broker.publishing import transactions as module
from fleximq.broker.publishing.transactions import IN_ROW, OVERLOAD_BYTES
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import OVERHEAD
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import Worker
from tests.broker.parts import Collector, text
from tests.broker.publishing.test_publication_paths import DurableCase
from tests.broker.schedules.durable import SOURCE, Life, batch
from tests.journal.at_once import published as records
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


class CheckpointTests(SynchronousTestCase):
    """A queue that waits for a transaction which is read back, and a checkpoint of the journal meanwhile."""

    def setUp(self) -> None:
        """Commit a transaction of two messages and publish one, which wait for their delivery."""
        self.life = Life()
        self.life.broker.defineQueue(self.life.me, QueueDefinition("w"))
        reader: Any = self.life.journal.opened.reader
        self.reader = reader
        self.reader.patient = True
        #: Why records could not be staged, or None, in order.
        self.said: list[str | None] = []
        self.transact()
        self.life.commit()

    def transact(self, number: int = 1) -> None:
        """Commit a transaction as soon as it is staged, and publish a message; neither is on disk yet."""
        runs = [records([b"1", b"2"], topic="w")]
        transactions = self.life.broker.transactions

        def staged(token: str | None, reason: str | None) -> None:
            self.said.append(reason)
            if token is not None:
                transactions.commit("q", number, [token], lambda offset, reason: None)

        transactions.stage("q", number, "p", runs, staged)
        self.life.commit()
        self.publish()

    def publish(self) -> None:
        """Publish a message to the queue."""
        envelope = Envelope(self.life.broker.topicFor(self.life.me, "w"), self.life.me, SOURCE, durable=True)
        self.life.broker.publish(envelope, batch("w", {}, b"3"), 1)

    def restarted(self) -> list[bytes]:
        """Return the messages of the queue after a restart."""
        life = self.life.killed()
        worker = Worker(life.broker).consume("w", 1000)
        life.finish()
        return [each.message.payload for each in worker.got]

    def test_newSegment(self) -> None:
        """A segment begins when they are delivered: until then its checkpoint would lack them."""
        segments = len(self.life.journal.segments)
        self.life.journal.opened.roll()
        self.life.commit()
        self.assertEqual(len(self.life.journal.segments), segments)
        self.assertEqual(self.restarted(), [b"1", b"2", b"3"])
        self.reader.answer()
        self.life.journal.opened.roll()
        self.life.commit()
        self.assertEqual(len(self.life.journal.segments), segments + 1)
        self.assertEqual(self.restarted(), [b"1", b"2", b"3"])

    def test_readNoFurther(self) -> None:
        """Where many records follow the transaction, they are not read with it: so it takes no longer."""
        sizes: list[int] = []
        read = self.reader._read

        def counted(*arguments: Any) -> Any:
            batches, offset = read(*arguments)
            sizes.append(sum(map(len, batches)))
            return batches, offset

        self.patch(self.reader, "_read", counted)
        self.reader.answer()
        self.transact(2)
        for _ in range(100):
            self.publish()
            self.life.commit()
        self.reader.answer()
        self.assertEqual((sum(sizes), self.life.broker.transactions.reading), (4, False))

    def test_withoutPause(self) -> None:
        """Where each transaction is committed before the previous one is delivered, a segment begins all the same."""
        segments = len(self.life.journal.segments)
        self.life.journal.opened.roll()
        for number in range(2, 3 * IN_ROW):
            self.transact(number)
            self.life.commit()
            self.reader.answer()
        self.assertEqual(len(self.life.journal.segments), segments + 1)
        self.reader.patient = False
        self.reader.answer()
        self.life.commit()
        self.assertEqual(Counter(self.restarted()), Counter([b"1", b"2", b"3"] * number))

    def test_stagingDoesNotWaitForEver(self) -> None:
        """Records do not wait for more than a number of transactions, though these never pause."""
        self.patch(module, "MOST_IN_ROW", 2 * IN_ROW)
        transactions = self.life.broker.transactions
        for number in range(2, IN_ROW + 2):
            self.transact(number)
        self.assertEqual(self.said, [None] * IN_ROW)
        for number in range(IN_ROW - 1):
            transactions.commit(f"r{number}", 1, [], lambda offset, reason: None)
            self.life.commit()
        self.assertEqual((self.said, transactions.lags), ([None] * IN_ROW, True))
        transactions.commit("s", 1, [], lambda offset, reason: None)
        self.life.commit()
        self.assertEqual((self.said, transactions.lags), ([None] * (IN_ROW + 1), True))

    def test_abort(self) -> None:
        """Records that wait are not staged after their batch was aborted; those of another batch are."""
        transactions = self.life.broker.transactions
        for number in range(2, IN_ROW + 3):
            self.transact(number)
        transactions.abort("q", IN_ROW + 1)
        self.assertEqual(self.said, [None] * IN_ROW + ["the batch was aborted"])
        self.reader.patient = False
        self.reader.answer()
        self.assertEqual(self.life.journal.stagedTopics("q", IN_ROW + 1), set())
        self.life.commit()
        self.assertEqual(self.said, [None] * IN_ROW + ["the batch was aborted", None])

    def test_failingStaging(self) -> None:
        """An exception while waiting records are staged is reported, and their client learns of it."""
        for number in range(2, IN_ROW + 2):
            self.transact(number)

        def failing(*arguments: Any) -> None:
            raise ValueError("no")

        self.patch(self.life.journal.opened.staging, "stage", failing)
        self.reader.patient = False
        self.reader.answer()
        self.assertEqual((self.said[-1], list(map(str, self.life.errors))), ("no", ["no"]))

    def test_stagingRefused(self) -> None:
        """Waiting records are refused if the journal is read-only when their turn comes."""
        for number in range(2, IN_ROW + 2):
            self.transact(number)
        self.assertEqual(self.said, [None] * IN_ROW)
        self.life.journal.opened.group.refuse("the disk is full")
        self.reader.patient = False
        self.reader.answer()
        self.assertEqual(self.said, [None] * IN_ROW + ["the disk is full"])

    def test_close(self) -> None:
        """A journal that is closed before gets no last checkpoint."""
        self.life.journal.close()
        self.assertEqual(self.restarted(), [b"1", b"2", b"3"])

    def test_segmentWhileDelivered(self) -> None:
        """A delivery that begins a commit, such as that of a dead letter, begins no segment while others wait."""
        self.publish()
        self.life.commit()
        segments = len(self.life.journal.segments)
        self.life.broker.subscribe(self.life.me, Rolling(self.life), "w")
        self.reader.answer()
        self.life.commit()
        self.assertEqual(self.restarted(), [b"1", b"2", b"3", b"3"])
        self.assertGreater(len(self.life.journal.segments), segments)

    def test_failingSubscriber(self) -> None:
        """A subscriber that fails does not end the delivery of what waits."""
        self.life.broker.subscribe(self.life.me, Failing(), "w")
        self.reader.answer()
        self.assertEqual(list(map(str, self.life.errors)), ["no"] * 2)
        self.assertFalse(self.life.broker.checkpointer.lags())
        self.life.commit()
        self.life.errors.clear()
        self.assertEqual(self.restarted(), [b"1", b"2", b"3"])


class Failing(Collector):
    """A subscriber that raises an exception."""

    def deliver(self, rendered: Any, count: int) -> None:
        """See :class:`fleximq.interfaces.ISubscriber`."""
        raise ValueError("no")


class Rolling(Collector):
    """A subscriber that lets the journal begin a segment after the transaction."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def deliver(self, rendered: Any, count: int) -> None:
        """See :class:`fleximq.interfaces.ISubscriber`."""
        if count == 1:
            self._life.journal.opened.roll()
