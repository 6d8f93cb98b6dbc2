"""Durable schedules: stored, published once, cancelled, and restored after a restart."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope
from fleximq.broker.schedules import messages_in_journal, schedules
from fleximq.broker.schedules.schedule_header import SCHEDULES
from fleximq.broker.schedules.schedules import RETRY
from fleximq.errors import NotRecorded, TooManyRequests
from tests.broker.parts import Collector, ask
from tests.broker.schedules.durable import SOURCE, Life, batch


class SlowLife(Life):
    """A broker whose journal needs some turns to begin, as after a change of owner in a cluster."""

    def beforeBegin(self) -> None:
        """Let a minute pass."""
        for _ in range(60):
            self.clock.advance(1)


class DurableTests(SynchronousTestCase):
    """Messages for the durable topic "t"."""

    def setUp(self) -> None:
        """Begin."""
        self.life = Life()

    def test_confirmedAfterTheCommit(self) -> None:
        """Not before it."""
        told = self.life.schedule(self.life.now() + 1000, b"a", b"b")
        self.assertEqual(told, [])
        self.life.commit()
        self.assertEqual((told, self.life.waitingIds()), ([(None, [0, 1])], [1, 2]))

    def test_publishedAtTheDueTimeAndStored(self) -> None:
        """In the order of due times; subscribers get them after their commit."""
        now = self.life.now()
        for after, payload in ((20, b"b"), (10, b"a"), (30, b"c")):
            self.life.schedule(now + after, payload)
        self.life.commit()
        self.life.clock.advance(0.02)
        self.assertEqual(self.life.seen.payloads(), [])
        self.life.commit()
        self.assertEqual(self.life.seen.payloads(), [b"a", b"b"])
        self.life.clock.advance(1)
        self.life.commit()
        self.assertEqual(self.life.published(), [b"a", b"b", b"c"])
        self.assertEqual(len(self.life.broker.schedules), 0)

    def test_repeatedIdIsConfirmedAndNotScheduledAgain(self) -> None:
        """While it waits, after a kill, and after its time."""
        at = self.life.now() + 5000
        told = [self.life.schedule(at, b"a", message_id="m") for _ in range(2)]
        self.life.commit()
        self.assertEqual((told, self.life.waitingIds()), ([[(None, [0])], [(None, [0])]], [1]))
        for _ in range(2):
            self.life = self.life.killed()
            self.life.schedule(at, b"a", message_id="m")
            self.life.schedule(at, b"b", message_id="n")
            self.life.commit()
        self.assertEqual(len(self.life.waitingIds()), 2)
        self.life.finish(10)
        self.life = self.life.killed()
        self.life.schedule(at, b"a", message_id="m")
        self.life.finish(10)
        self.assertEqual(self.life.published(), [b"a", b"b"])

    def test_repeatedIdForAQueueThatIsToBeMade(self) -> None:
        """Is not scheduled again either, nor after a kill: only its envelope says that it is durable."""
        for _ in range(2):
            for _ in range(2):
                envelope = Envelope(self.life.broker.topicFor(self.life.me, "q"), self.life.me, SOURCE, durable=True)
                run = batch("q", {"message_id": "m", "queue": True}, b"a")
                self.life.broker.schedule(envelope, run, 1, self.life.now() + 5000, None, ["m"])
            self.life.commit()
            self.assertEqual(len(self.life.waitingIds()), 1)
            self.life = self.life.killed()

    def test_nothingIsPublishedBeforeTheJournalStoresIt(self) -> None:
        """It would be refused, and be late when the journal begins."""
        self.life = SlowLife()
        self.life.schedule(self.life.now() + 1000, b"a")
        self.life.commit()
        self.life = self.life.killed()
        self.life.clock.advance(0)
        self.life.commit()
        self.assertEqual(self.life.published(), [b"a"])

    def test_refusedIdIsScheduledWhenItIsRepeated(self) -> None:
        """It was not stored."""
        group = self.life.journal.opened.group
        group.readOnly = "the disk is full"
        with self.assertRaises(NotRecorded):
            self.life.schedule(self.life.now() + 10, b"a", message_id="m")
        group.readOnly = None
        self.life.schedule(self.life.now() + 10, b"a", message_id="m")
        self.life.commit()
        self.life.finish()
        self.assertEqual(self.life.published(), [b"a"])

    def test_subscribersNeverSeeTheWaitingRecords(self) -> None:
        """Not even those of all topics of the broker."""
        seen = Collector()
        self.life.broker.subscribe(self.life.me, seen, "$sys/#")
        self.life.schedule(self.life.now() + 10, b"a")
        self.life.commit()
        self.life.finish()
        self.assertEqual(seen.payloads(), [])
        self.assertFalse(self.life.broker.topics.isDurable(SCHEDULES))

    def test_restoredAfterAKill(self) -> None:
        """Those of the snapshot and those after it; each is published once."""
        for number in range(5):
            self.life.schedule(self.life.now() + 1000 + number, b"%d" % number)
        self.life.commit()
        self.life.journal.opened.roll()
        self.life.commit()
        for number in range(5, 9):
            self.life.schedule(self.life.now() + 1000 + number, b"%d" % number)
        self.life.commit()
        self.life.clock.advance(1.002)
        self.life.commit()
        life = self.life.killed()
        self.assertEqual(len(life.waitingIds()), 6)
        life.finish()
        self.assertEqual(life.published(), [b"%d" % number for number in range(9)])
        self.assertEqual(life.killed().waitingIds(), [])

    def test_dueDuringTheRestart(self) -> None:
        """It is published at once."""
        self.life.schedule(self.life.now() + 1000, b"a")
        self.life.commit()
        self.life.clock.advance(0.5)
        self.life.broker.stop()
        self.life.clock.advance(50)
        life = self.life.killed()
        life.clock.advance(0)
        life.commit()
        self.assertEqual(life.seen.payloads(), [b"a"])

    def test_allAreFoundHoweverLargeTheyAre(self) -> None:
        """A list reads more than once if the messages do not fit into one read."""
        self.patch(messages_in_journal, "_CHUNK", 1)
        for payload in (b"a", b"b", b"c"):
            self.life.schedule(self.life.now() + 1000, payload)
            self.life.commit()
        found: list[Any] = []
        self.life.broker.schedules.find([3, 1, 2], found.extend)
        self.life.commit()
        self.assertEqual([each.number for each in found], [3, 1, 2])

    def test_cancelledForGood(self) -> None:
        """Also after a restart; twice cancels nothing."""
        self.life.schedule(self.life.now() + 1000, b"a", b"b")
        self.life.commit()
        said: list[Any] = []
        for _ in range(2):
            self.life.broker.schedules.cancel(self.life.me, 1, said.append)
        self.assertEqual(said, [True, False])
        self.life.commit()
        life = self.life.killed()
        life.finish()
        self.assertEqual(life.published(), [b"b"])

    def test_unknownIdsCancelNothing(self) -> None:
        """Nor those of other records."""
        self.life.schedule(self.life.now(), b"a")
        self.life.commit()
        self.life.finish()
        said: list[Any] = []
        for number in (1, 2, 3, 1 << 51, 1 << 52, (1 << 53) - 1):
            self.life.broker.schedules.cancel(self.life.me, number, said.append)
        self.assertEqual(said, [False] * 6)

    def test_publicationIsInTheHeaderOfTheRecord(self) -> None:
        """With the publisher's other keys, and its publisher."""
        due = self.life.now() + 10
        self.life.schedule(due, b"a", deliver_in=10, key="k")
        self.life.commit()
        self.life.finish()
        [found] = [each for each in self.life.journal.everything() if "t" in each.topics]
        mine = found.only("t".__eq__)
        self.assertEqual(mine.publishers[mine.publisherOf[0]], (self.life.me.id, self.life.me.name))
        self.assertIn(b"schedule", mine.headers[0])
        self.assertNotIn(b"deliver_in", mine.headers[0])
        self.assertEqual(mine.messages()[0].payload, b"a")

    def test_readOnlyJournalRefusesNewOnes(self) -> None:
        """And publishes waiting ones when it stores again."""
        self.life.schedule(self.life.now() + 10, b"a")
        self.life.commit()
        group = self.life.journal.opened.group
        group.readOnly = "the disk is full"
        with self.assertRaises(NotRecorded):
            self.life.schedule(self.life.now() + 10, b"b")
        self.life.clock.advance(1)
        self.life.clock.advance(RETRY)
        group.readOnly = None
        self.life.clock.advance(RETRY)
        self.life.commit()
        self.assertEqual(self.life.seen.payloads(), [b"a"])
        self.assertEqual(len(self.life.broker.schedules), 0)

    def test_moreThanIsReadAtOnce(self) -> None:
        """In the order of due times, also if they were stored in another order."""
        self.patch(messages_in_journal, "_CHUNK", 3000)
        self.patch(schedules, "BATCH", 4)
        for step in (1, 7):
            self.life = Life()
            now = self.life.now()
            for number in range(30):
                self.life.schedule(now + number * step % 30, b"%03d" % (number * step % 30) + bytes(500))
                self.life.commit()  # a frame each
            self.life.finish()
            found = [payload[:3] for payload in self.life.seen.payloads()]
            self.assertEqual(found, [b"%03d" % number for number in range(30)])
            self.assertEqual(len(self.life.broker.schedules), 0)

    def test_queuesGetTheHead(self) -> None:
        """With priority, key and expiry, as of any other publication."""
        self.life.schedule(self.life.now() + 10, b"a", queue=True, priority=7, key="k", expires_in=90_000)
        self.life.commit()
        self.life.clock.advance(1)
        self.life.commit()
        delivery = self.life.broker.consume(self.life.me, "t")
        assert delivery is not None and delivery.message.head is not None
        head = delivery.message.head
        self.assertEqual((head.topic, head.priority, head.key, head.expires), ("t", 7, "k", 90_000))

    def test_limitsCountThoseBeforeARestart(self) -> None:
        """Of each principal."""
        self.life.me.principal = "ann"
        self.life.schedule(self.life.now() + 1000, b"a", b"b", b"c")
        self.life.commit()
        self.life.clock.advance(0)
        life = self.life.killed()
        owners = life.broker.schedules.owners
        owners.mostEach = 3
        with self.assertRaises(TooManyRequests):
            owners.claim("ann", 1)
        life.finish()
        self.assertEqual(owners.name(owners.claim("ann", 3)), "ann")

    def test_waitingRecordsCannotBeReplayed(self) -> None:
        """No path shows them to a subscriber."""
        answers: list[Any] = []
        ask(self.life.broker, self.life.me, "/broker/topics", None, answers.append)
        self.assertNotIn(SCHEDULES, str(answers))
