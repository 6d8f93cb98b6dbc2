"""Queues in the journal: what they read back, what they note, and what they do when something is lost."""

from collections.abc import Callable
from typing import Any

from zope.interface.verify import verifyObject

from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.envelope import ConnectedClient, Envelope, LastDelivery, MessageSource, QueueDelivery
from fleximq.broker.queues import expiry
from fleximq.broker.queues.bounds import DROPPED, FULL
from fleximq.broker.queues.delivery_limit import DEAD_LETTERS
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.broker.queues.last_deliveries import DEAD_LETTERS_REFUSED
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_reader import LOST
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.broker.queues.recorder import Recorder
from fleximq.broker.topics.topic_table import Topic
from fleximq.interfaces import ISubscriber
from fleximq.values.death_reason import DeathReason
from fleximq.values.message_cost import OVERHEAD
from fleximq.values.state_records import QueueAcknowledged, QueueDelivered
from tests.broker.parts import turn
from tests.broker.queueing import RETRY, QueueCase, messages, names, only
from tests.journal_records import published
from tests.slow_journal import SlowJournal

#: Of messages of one letter, so few are in memory.
NEAR = 10
MEMORY = 2 * NEAR * 257


class KeptCase(QueueCase):
    """A queue in a journal that reads back when it is told to."""

    #: The seconds by which the system clock is ahead of the queue's.
    ahead = 0

    def make(self, journal: SlowJournal | None = None, **settings: Any) -> Queue:
        self.journal = journal or SlowJournal()
        self.buried: list[tuple[str, str]] = []
        self.kept: list[Callable[[str | None], None]] = []
        self.noting = StateLog(self.journal, self.world.deadlines, self.deadLetter, self.wall)
        self.topic = Topic("t")
        chosen = {"queueLog": self.noting, "memory": MEMORY, "key": "s:1", "dropsOldest": False}
        return super().make(**{**chosen, **settings})

    @property
    def recorder(self) -> Recorder:
        """The queue's recorder."""
        assert self.queue.recorder is not None
        return self.queue.recorder

    def deadLetter(self, queue: Queue, delivery: LastDelivery, kept: Callable[[str | None], None]) -> None:
        """Remember a dead letter, and whom to tell."""
        self.buried.append((queue.name, names([delivery])))
        self.kept.append(kept)

    def wall(self) -> int:
        """Return the microseconds of the system clock."""
        return round((self.world.deadlines.seconds() + self.ahead) * 1_000_000)

    def put(self, names: str, qos: int = 1) -> None:
        """Put messages in as a broker does: what is kept, behind its commit."""
        body = messages(names, qos)
        envelope = Envelope(self.topic, ConnectedClient(1000, "blipmq", "b"), MessageSource(), qos)

        def deliver(offset: int, reason: str | None) -> None:
            placed = envelope._replace(offset=offset)
            self.queue.deliver(QUEUED.render(placed, body, len(body)), len(body))

        if qos:
            self.journal.append(*published(envelope, body), deliver)
            self.journal.commit()
        else:
            deliver(0, None)

    def takeAll(self, number: int, holder: object = None) -> str:
        """Take as many, letting the journal answer whenever the queue waits for it."""
        taken: list[QueueDelivery] = []
        while len(taken) < number:
            some = self.queue.takeMany(holder, number - len(taken))
            taken += some
            if not some:
                if not self.queue.preparing:
                    break
                self.journal.answer()
        return names(taken)

    def restoredFrom(self, state: QueueState, **settings: Any) -> Queue:
        """Return a queue with this state, on the same journal."""
        queue = self.make(journal=self.journal, **settings)
        assert queue.recorder is not None
        queue.recorder.restore(state)
        return queue

    def notes(self) -> list[Any]:
        """Return what was noted since the last call, arrays as lists and without times."""
        self.noting.flush()
        noted, self.journal.notes = self.journal.notes, []
        return [
            (note.count, list(note.again)) if isinstance(note, QueueDelivered) else list(note.offsets)
            for note in noted
            if isinstance(note, QueueDelivered | QueueAcknowledged)
        ]


ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class FarTests(KeptCase):
    """Of a long queue only the head is in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.journal.patient = True

    def test_subscriber(self) -> None:
        verifyObject(ISubscriber, self.queue)

    def test_memory(self) -> None:
        for letter in ALPHABET:
            self.put(letter)
        self.assertEqual((self.queue.stored.depth, self.queue.stored.size), (26, NEAR * 257))

    def test_first(self) -> None:
        """A look shows the messages in memory, and nothing where the next one must be read first."""
        for letter in ALPHABET:
            self.put(letter)
        shown = [message for message, _ in self.queue.stored.first(26)]
        self.assertEqual(names(shown), ALPHABET[:NEAR])
        self.assertEqual(self.queue.stored.depth, 26)
        self.queue.takeMany(None, NEAR)
        self.assertEqual((self.queue.preparing, self.queue.stored.first(26)), (True, []))
        self.queue.whenPrepared(lambda: shown.append(self.queue.stored.first(1)[0][0]))
        self.journal.answer()
        self.assertEqual(names(shown[-1:]), ALPHABET[NEAR])

    def test_orderAndTags(self) -> None:
        for letter in ALPHABET:
            self.put(letter)
        self.assertEqual(self.takeAll(30), ALPHABET)
        self.assertEqual(
            (self.queue.stored.lastTag, self.queue.stored.depth, len(self.queue.stored.flying)), (26, 0, 26)
        )

    def test_oneByOne(self) -> None:
        for letter in ALPHABET:
            self.put(letter)
        taken = ""
        while len(taken) < 26:
            if self.queue.preparing:
                self.journal.answer()
            taken += self.take(1)
        self.assertEqual(taken, ALPHABET)

    def test_readInTime(self) -> None:
        """Before the head is used up, what follows is asked for, once."""
        for letter in ALPHABET:
            self.put(letter)
        self.take(NEAR // 2 - 1)
        self.assertEqual(self.journal.asked, 0)
        self.take(1)
        self.assertEqual(self.journal.asked, 1)
        self.take(2)
        self.assertEqual((self.journal.asked, self.queue.preparing), (1, False))

    def test_whenPrepared(self) -> None:
        for letter in ALPHABET:
            self.put(letter)
        self.queue.takeMany(None, NEAR)
        called: list[str] = []
        self.queue.whenPrepared(lambda: called.append(self.take(1)))
        self.assertEqual((called, self.queue.preparing, self.journal.asked), ([], True, 1))
        self.journal.answer()
        self.assertEqual((called, self.queue.preparing), (["k"], False))

    def test_whoWaitsIsWoken(self) -> None:
        for letter in ALPHABET:
            self.put(letter)
        self.queue.takeMany(None, NEAR)
        called: list[str] = []
        self.queue.whenReady(lambda: called.append(self.take(1)))
        self.journal.answer()
        self.assertEqual(called, ["k"])

    def test_whoWaitsIsWokenByWhatReturns(self) -> None:
        """What is hidden and only in the journal is read when its time is over, and while something else is read."""
        for letter in ALPHABET:
            self.put(letter)
        self.takeAll(26)
        called: list[str] = []
        self.queue.whenReady(lambda: called.append(self.take(1)))
        self.put("A")
        self.assertEqual(called, ["A"])
        self.queue.whenReady(lambda: called.append(self.take(1)))
        self.advance(RETRY)
        while self.journal.asked:
            self.journal.answer()
        self.assertEqual(called, ["A", "a"])

    def test_returnedWhileSomethingIsRead(self) -> None:
        """What returned is read as soon as the journal is free again, and who waits gets it."""
        for letter in ALPHABET:
            self.put(letter)
        self.takeAll(26, "x")
        for tag in range(1, 26):
            self.queue.acknowledge(tag)
        for letter in ALPHABET:
            self.put(letter.upper())
        self.queue.takeMany("y", NEAR // 2)
        self.assertEqual(self.journal.asked, 1)
        called: list[str] = []
        self.queue.whenReady(lambda: called.append(self.take(1)))
        self.queue.release("x")
        while self.journal.asked:
            self.journal.answer()
        self.assertEqual(called, ["z"])

    def test_returnedWhileFarIsRead(self) -> None:
        for letter in ALPHABET:
            self.put(letter)
        self.queue = self.restoredWith(self.queue)
        called: list[str] = []
        only(self.queue.takeMany(None, 1))
        self.queue.whenReady(lambda: called.append(self.take(1)))
        while self.journal.asked:
            self.journal.answer()
        self.assertEqual(called, ["a"])

    def restoredWith(self, before: Queue) -> Queue:
        """Return a queue that knows of another what the journal does."""
        state = QueueState("q:t", "t", 1, 1, None, 27)
        self.recorder.writeInto(state)
        return self.restoredFrom(state)

    def test_answeredAtOnce(self) -> None:
        """A journal that answers before it returns leaves nobody waiting."""
        self.journal.patient = False
        for letter in ALPHABET:
            self.put(letter)
        taken = "".join(self.take(1) for _ in range(26))
        self.assertEqual(taken, ALPHABET)

    def test_portions(self) -> None:
        """What is read is bounded, and read until the head is full."""
        self.queue = self.make(memory=1 << 20, maxMessages=100_000)
        self.journal.patient = False
        for _ in range(20):
            self.put("x" * 2500)
        self.assertLess(self.queue.stored.size, (1 << 19) + 1)
        self.assertEqual(len(self.takeAll(50_000)), 50_000)

    def test_closedMeanwhile(self) -> None:
        for letter in ALPHABET:
            self.put(letter)
        self.queue.takeMany(None, NEAR)
        self.assertEqual(self.queue.close(), 26)
        self.journal.answer()
        self.assertEqual((self.queue.stored.depth, self.queue.stored.size, self.notes()), (0, 0, []))

    def test_whatIsHandedOutTakesLittle(self) -> None:
        self.put(ALPHABET)
        self.takeAll(26, "x")
        self.queue.release("x")
        self.assertEqual(self.takeAll(26), ALPHABET)
        self.assertLess(self.queue.stored.size, MEMORY + 26 * 300)

    def test_returnedInOrder(self) -> None:
        """What returned while others are read back comes in its place."""
        for letter in ALPHABET:
            self.put(letter)
        self.takeAll(26, "x")
        self.queue.takeMany("y", 1)
        self.queue.release("x")
        self.assertEqual(self.takeAll(5, "y"), "abcde")
        self.queue.release("y")
        self.assertEqual(self.takeAll(26), ALPHABET)

    def test_acknowledgedWhileRead(self) -> None:
        self.put(ALPHABET)
        self.queue = self.restored(range(1, 27))
        self.queue.takeMany("x", 1)
        self.assertTrue(self.queue.acknowledge(2))
        self.assertEqual(self.takeAll(26), ALPHABET.replace("b", ""))

    def restored(self, offsets: range) -> Queue:
        state = QueueState("s:1", "t", 1, 1, None, offsets.stop, lastTag=len(offsets))
        state.handed = {offset: tag for tag, offset in enumerate(offsets, 1)}
        return self.restoredFrom(state)


class BoundTests(KeptCase):
    """The bound is the number of messages; bytes count only for what is not in the journal."""

    def test_number(self) -> None:
        self.queue = self.make(maxMessages=26, maxBytes=100)
        self.put(ALPHABET[:25])
        self.assertEqual([self.queue.bounds.admits(number, 1 << 30) for number in (1, 2)], [None, FULL])
        self.assertEqual([self.queue.bounds.admitsAlone(number, 1 << 30) for number in (26, 27)], [None, FULL])

    def test_dropsOldest(self) -> None:
        self.queue = self.make(maxMessages=5, dropsOldest=True)
        for letter in "abcdefg":
            self.put(letter)
        self.assertEqual((self.takeAll(9), self.world.counts[DROPPED]), ("cdefg", 2))
        self.assertEqual(self.notes(), [(7, []), [1, 2]])

    def test_dropsWhatReturned(self) -> None:
        self.queue = self.make(maxMessages=3, dropsOldest=True)
        self.put("abc")
        self.queue.takeMany("x", 2)
        self.queue.release("x")
        self.put("de")
        self.assertEqual((self.takeAll(9), self.notes()), ("cde", [(5, []), [1, 2]]))

    def test_dropsWhatIsFar(self) -> None:
        self.queue = self.make(maxMessages=15, dropsOldest=True)
        self.journal.patient = True
        self.put(ALPHABET[:NEAR])
        self.put(ALPHABET[NEAR:])
        self.assertEqual(self.takeAll(20), ALPHABET[-15:])

    def test_droppedWhileRead(self) -> None:
        self.queue = self.make(maxMessages=10, dropsOldest=True)
        self.journal.patient = True
        self.put("abcdefghij")
        self.put("klmno")
        self.assertEqual((names(self.queue.takeMany("x", 5)), self.journal.asked), ("fghij", 1))
        self.put("pqrst")
        self.assertEqual((self.takeAll(20), self.world.counts[DROPPED]), ("pqrst", 10))

    def test_unkeptBytes(self) -> None:
        self.queue = self.make(maxBytes=3 * 257, dropsOldest=True)
        self.put(ALPHABET[: NEAR + 1])
        for letter in "ABCDE":
            self.put(letter, qos=0)
        self.assertEqual(self.world.counts[DROPPED], NEAR + 3)
        self.assertEqual(self.takeAll(30), "CDE")


class UnkeptTests(KeptCase):
    """What is not in the journal stands in its place as long as the process lives."""

    def test_order(self) -> None:
        for letter in "aBcDeFgHiJkLmNoPq":
            self.put(letter, qos=int(letter.islower()))
        self.assertEqual(self.takeAll(20, "x"), "aBcDeFgHiJkLmNoPq")
        self.queue.release("x")
        self.assertEqual(self.takeAll(20), "aBcDeFgHiJkLmNoPq")

    def test_notCounted(self) -> None:
        """In the journal's arrival numbers it is not there."""
        for letter in "aBcD":
            self.put(letter, qos=int(letter.islower()))
        self.takeAll(3)
        self.queue.acknowledge(2)
        self.queue.acknowledge(3)
        self.assertEqual(self.notes(), [(2, []), [2]])


class NoteTests(KeptCase):
    """The journal is told once a turn."""

    def setUp(self) -> None:
        super().setUp()
        self.put("abcdef")

    def test_inItsOwnTurn(self) -> None:
        self.take(2)
        self.queue.acknowledge(1)
        self.assertEqual(self.journal.notes, [])
        self.advance(0)
        self.assertEqual([type(note) for note in self.journal.notes], [QueueDelivered, QueueAcknowledged])
        self.assertEqual(self.journal.notes[0].time, round(RETRY * 1_000_000))

    def test_handedOut(self) -> None:
        self.take(2)
        self.assertEqual(self.notes(), [(2, [])])
        self.assertEqual(self.notes(), [])

    def test_again(self) -> None:
        self.take(2, "x")
        self.queue.release("x")
        self.take(1)
        self.assertEqual(self.notes(), [(2, [1])])

    def test_acknowledged(self) -> None:
        self.take(3)
        self.notes()
        for tag in (3, 1, 9):
            self.queue.acknowledge(tag)
        self.assertEqual(self.notes(), [[3, 1]])

    def test_used(self) -> None:
        self.recorder.use()
        self.assertEqual(self.notes(), [(0, [])])

    def test_lowest(self) -> None:
        self.assertEqual(self.recorder.lowest(), 1)
        self.take(3)
        self.queue.acknowledge(1)
        self.assertEqual(self.recorder.lowest(), 2)
        for tag in (2, 3):
            self.queue.acknowledge(tag)
        self.assertEqual(self.recorder.lowest(), 4)
        self.take(3)
        for tag in (4, 5, 6):
            self.queue.acknowledge(tag)
        self.assertEqual(self.recorder.lowest(), 0)


class LostTests(KeptCase):
    """What the journal does not give back is passed over and counted."""

    def setUp(self) -> None:
        super().setUp()
        self.journal.patient = True
        for letter in ALPHABET:
            self.put(letter)

    def lost(self, *letters: str) -> str:
        self.journal.lose(*(ALPHABET.index(letter) + 1 for letter in letters))
        return self.takeAll(30)

    def test_inTheMiddle(self) -> None:
        self.assertEqual(self.lost("m", "q"), ALPHABET.replace("m", "").replace("q", ""))
        self.assertEqual((self.world.counts[LOST], self.queue.stored.lastTag), (2, 26))
        self.assertEqual(self.notes(), [(26, []), [13, 17]])

    def test_atTheEnds(self) -> None:
        self.assertEqual(self.lost("k", "y", "z"), ALPHABET.replace("k", "")[:-2])
        self.assertEqual((self.queue.stored.depth, self.queue.preparing), (0, False))

    def test_all(self) -> None:
        self.assertEqual(self.lost(*ALPHABET[NEAR:]), ALPHABET[:NEAR])
        self.assertEqual((self.queue.stored.depth, self.queue.preparing, self.world.counts[LOST]), (0, False, 16))

    def test_tagsStay(self) -> None:
        self.journal.lose(11)
        self.queue.takeMany(None, NEAR)
        while self.queue.preparing:
            self.journal.answer()
        self.assertEqual([each.tag for each in self.queue.takeMany(None, 2)], [12, 13])

    def test_whatReturned(self) -> None:
        self.takeAll(26, "x")
        self.queue.release("x")
        self.journal.lose(25, 26)
        self.assertEqual(self.takeAll(30, "x"), ALPHABET[:-2])
        self.assertEqual(self.world.counts[LOST], 2)


class DeadTests(KeptCase):
    """A dead letter is kept before the message is gone."""

    def die(self, letters: str) -> None:
        self.put(letters)
        for _ in range(3):
            self.takeAll(len(letters), "x")
            self.queue.release("x")

    def test_kept(self) -> None:
        self.die("ab")
        self.notes()
        self.assertEqual((self.buried, self.queue.stored.depth, self.notes()), ([("t", "a"), ("t", "b")], 0, []))
        self.kept[0](None)
        self.assertEqual((self.notes(), self.world.counts[DEAD_LETTERS[DeathReason.ATTEMPTS]]), ([[1]], 1))

    def test_refused(self) -> None:
        """It comes again, and is tried again when it dies once more."""
        self.die("ab")
        self.kept[0]("disk full")
        self.assertEqual((self.take(2, "x"), self.world.counts[DEAD_LETTERS_REFUSED]), ("a-", 1))
        self.notes()
        self.queue.release("x")
        self.assertEqual(([name for _, name in self.buried], self.notes()), (["a", "b", "a"], []))

    def test_counts(self) -> None:
        """What is on its way to the dead letters still counts."""
        self.queue = self.make(maxMessages=2)
        self.die("ab")
        self.assertEqual(self.queue.bounds.admits(1, 0), FULL)
        self.kept[0](None)
        self.assertEqual(self.queue.bounds.admits(1, 0), None)

    def test_lowest(self) -> None:
        self.die("ab")
        self.assertEqual(self.recorder.lowest(), 1)

    def test_readBack(self) -> None:
        self.journal.patient = True
        self.put(ALPHABET)
        for _ in range(3):
            self.takeAll(26, "x")
            self.queue.release("x")
        while self.journal.asked:
            self.journal.answer()
        self.assertEqual("".join(sorted(name for _, name in self.buried)), ALPHABET)

    def test_lost(self) -> None:
        self.journal.patient = True
        self.put(ALPHABET)
        for _ in range(3):
            self.takeAll(26, "x")
            if _ == 2:
                self.journal.lose(25, 26)
            self.queue.release("x")
        while self.journal.asked:
            self.journal.answer()
        self.assertEqual("".join(sorted(name for _, name in self.buried)), ALPHABET[:-2])
        self.assertEqual(self.world.counts[LOST], 2)


class RetryTests(KeptCase):
    """Messages that wait for a retry while the broker restarts."""

    def test_delaysEndWhenTheyShould(self) -> None:
        """A delay longer than the redelivery ends at its time after a restart too; other deliveries return at once."""
        self.queue = self.make(key="q:t")
        self.put("ab")
        self.queue.takeMany("x", 2, lease=0)
        self.queue.retryMany([1], 10 * RETRY)
        state = QueueState("q:t", "t", 1, 0, None, self.journal.end)
        self.recorder.writeInto(state)
        self.queue.close()
        self.queue = self.restoredFrom(QueueState.load(state.dump()), key="q:t")
        self.advance(9 * RETRY)
        self.assertEqual(self.takeAll(2), "b")
        self.advance(RETRY)
        self.assertEqual(self.takeAll(2)[:1], "a")


class TimeToLiveTests(KeptCase):
    """What is too old is noted as done with, and keeps its tag."""

    def setUp(self) -> None:
        super().setUp()
        self.queue = self.make(timeToLive=100.0)

    def test_expires(self) -> None:
        self.put("ab")
        self.advance(50)
        self.put("c")
        self.advance(49)
        self.assertEqual(self.take(1, "x"), "a")
        self.queue.release("x")
        self.advance(1)
        self.assertEqual([each.tag for each in self.queue.takeMany(None, 5)], [3])
        self.assertEqual((self.notes()[-3:], self.world.counts[EXPIRED]), ([(2, []), [1, 2], (3, [])], 2))

    def test_full(self) -> None:
        """Expired messages give way to new ones before anything is refused or dropped."""
        self.queue = self.make(timeToLive=0.5, maxMessages=3)
        self.put("abc")
        self.assertEqual(self.queue.bounds.admits(1, 1), FULL)
        self.advance(0.5)
        self.assertEqual(
            (self.queue.bounds.admits(3, 1), self.queue.stored.depth, self.world.counts), (None, 0, {EXPIRED: 3})
        )

    def test_withoutConsumer(self) -> None:
        """They leave memory and journal at their time, which does not count as a use of the queue."""
        self.put("ab")
        self.advance(50)
        self.put("c")
        self.advance(50)
        self.noting.flush()
        self.assertEqual(
            (self.queue.stored.depth, self.recorder.lowest(), self.notes()[-2:]), (1, 3, [(2, []), [1, 2]])
        )
        self.assertEqual([each.time for each in self.journal.notes if isinstance(each, QueueDelivered)], [])

    def test_overARestart(self) -> None:
        self.put("ab")
        self.advance(60)
        self.put("c")
        self.restart(self.queue)
        self.advance(40)
        self.assertEqual((self.takeAll(3), self.queue.stored.lastTag), ("c", 3))

    def restart(self, queue: Queue) -> None:
        """Replace ``queue`` by one with its state and with a time to live."""
        state = QueueState("s:1", "t", 1, 1, None, 0)
        self.recorder.writeInto(state)
        queue.close()
        self.queue = self.restoredFrom(state, timeToLive=100.0)

    def test_newOption(self) -> None:
        """Where messages have not expired before a restart, those of then live from the restart on."""
        plain = self.queue = self.make()
        self.put("ab")
        self.advance(60)
        self.restart(plain)
        self.advance(99)
        self.assertEqual(self.queue.stored.depth, 2)
        self.advance(1)
        self.assertEqual((self.queue.stored.depth, self.world.counts[EXPIRED]), (0, 2))

    def test_clockSetBack(self) -> None:
        """If the system clock was set back over a restart, no message lives longer than a new one."""
        self.put("ab")
        self.ahead = -3600
        self.restart(self.queue)
        self.put("c")
        self.advance(100)
        self.assertEqual((self.queue.stored.depth, self.world.counts[EXPIRED]), (0, 3))

    def test_manyWithGaps(self) -> None:
        """Withdrawn messages count in a slice, and do not end the search."""
        self.patch(expiry, "SLICE", 2)
        self.put("abcde")
        self.queue.withdraw(2, 2, lambda message: True)
        self.world.clock.rightNow += 100
        left = [self.queue.stored.depth for _ in range(4) if turn(self.world.clock)]
        self.assertEqual((left, self.world.counts[EXPIRED]), ([3, 1, 0, 0], 4))


class PlainTimeToLiveTests(QueueCase):
    """Without a journal messages expire as well."""

    def test_expires(self) -> None:
        self.queue = self.make(timeToLive=100.0)
        self.put("abc")
        self.take(1, "x")
        self.advance(20)
        self.put("d")
        self.queue.release("x")
        self.advance(80)
        self.assertEqual((self.take(9), self.world.counts[EXPIRED]), ("d--------", 3))

    def test_full(self) -> None:
        """Expired messages give way to new ones before anything is refused or dropped."""
        for dropsOldest in (True, False):
            self.queue = self.make(timeToLive=0.5, maxMessages=3, dropsOldest=dropsOldest)
            self.put("abc")
            self.advance(0.5)
            self.assertIsNone(self.queue.bounds.admits(1, 1))
            self.put("d")
            self.assertEqual(
                (names([each for each, _ in self.queue.stored.first(5)]), self.world.counts), ("d", {EXPIRED: 3})
            )
            self.world.counts.clear()
            self.queue.close()

    def test_overfull(self) -> None:
        """A publication that asked nobody drops the expired messages first."""
        self.queue = self.make(timeToLive=0.5, maxMessages=3)
        self.put("abc")
        self.advance(0.5)
        self.put("de")
        self.assertEqual((self.queue.stored.depth, self.world.counts), (2, {EXPIRED: 3}))

    def test_withoutConsumer(self) -> None:
        """They are dropped at their time, and those in flight when they return."""
        self.queue = self.make(timeToLive=10.0)
        self.put("abc")
        self.take(1, "x")
        self.advance(9.875)
        self.assertEqual((self.queue.stored.depth, self.world.counts[EXPIRED]), (2, 0))
        self.advance(0.125)
        self.assertEqual(
            (self.queue.stored.depth, len(self.queue.stored.flying), self.world.counts[EXPIRED]), (0, 1, 2)
        )
        self.queue.release("x")
        self.assertEqual((self.queue.stored.depth, self.queue.stored.size, self.world.counts[EXPIRED]), (0, 0, 3))
        self.assertEqual(len(self.world.deadlines), 1)

    def test_manyAtOnce(self) -> None:
        """Many are dropped in slices."""
        self.patch(expiry, "SLICE", 2)
        self.queue = self.make(timeToLive=10.0)
        self.put("abcde")
        self.world.clock.rightNow += 10
        left = [self.queue.stored.depth for _ in range(4) if turn(self.world.clock)]
        self.assertEqual((left, len(self.world.deadlines)), ([3, 1, 0], 0))

    def test_closed(self) -> None:
        self.queue = self.make(timeToLive=10.0)
        self.put("a")
        self.queue.close()
        self.assertEqual(len(self.world.deadlines), 0)

    def test_dropped(self) -> None:
        """What was dropped does not let younger messages expire."""
        self.queue = self.make(timeToLive=100.0, maxMessages=2)
        self.put("ab")
        self.advance(50)
        self.put("cd")
        self.advance(50)
        self.assertEqual(self.take(3), "cd-")


class ManyExpiredTests(QueueCase):
    """Many messages that are too old are dropped in slices, whoever meets them, and none of them is delivered."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(expiry, "SLICE", 2)
        self.queue = self.make(timeToLive=10.0)

    def expired(self, names: str) -> None:
        """Deliver messages, and let their time pass unnoticed."""
        self.put(names)
        self.world.clock.rightNow += 10

    def test_aConsumerDropsOneSliceOfTheExpiredMessagesAndGetsNone(self) -> None:
        self.expired("abcde")
        self.put("f")
        self.assertEqual((self.take(1), self.queue.stored.depth, self.queue.preparing), ("-", 4, True))

    def test_moreConsumersInTheSameTurnDropNone(self) -> None:
        self.expired("abcde")
        self.put("f")
        self.assertEqual((self.take(3), self.queue.stored.depth), ("---", 4))

    def test_aConsumerThatWaitsGetsTheFirstMessageThatIsNotTooOld(self) -> None:
        self.expired("abcde")
        self.put("f")
        self.take(1)
        got: list[str] = []
        self.queue.whenPrepared(lambda: got.append(self.take(1)))
        steps = [(self.queue.stored.depth, "".join(got)) for _ in range(3) if turn(self.world.clock)]
        self.assertEqual((steps, self.world.counts[EXPIRED]), ([(2, ""), (0, "f")], 5))

    def test_aWaitingConsumerIsWokenAfterTheLastSlice(self) -> None:
        self.expired("abcde")
        self.put("f")
        got: list[str] = []
        self.queue.whenReady(lambda: got.append(self.take(1)))
        self.queue.takeMany(None, 0)
        for _ in range(3):
            turn(self.world.clock)
        self.assertEqual(got, ["f"])

    def test_aFullQueueDropsAboutAsManyAsArrive(self) -> None:
        """And one slice in each turn; the publication is admitted nevertheless."""
        self.queue = self.make(timeToLive=10.0, maxMessages=20)
        self.expired("abcdefghijklmnopqrst")
        self.assertEqual((self.queue.bounds.admits(1, 0), self.queue.stored.depth), (None, 14))
        self.put("A")
        self.assertEqual((self.queue.stored.depth, self.world.counts[DROPPED]), (15, 0))

    def heavy(self, dropsOldest: bool) -> None:
        """Fill a queue, and deliver a quarter, which weighs more from then on; the others expire unnoticed."""
        self.queue = self.make(timeToLive=10.0, maxBytes=40 * (OVERHEAD + 1), dropsOldest=dropsOldest)
        self.put("a" * 40)
        self.queue.takeMany("x", 10)
        self.world.clock.rightNow += 10

    def test_aPublicationIsNotRefusedBecauseOfExpiredMessages(self) -> None:
        """Although it takes more of them than a slice has; those that it does not take leave in later turns."""
        self.heavy(dropsOldest=False)
        self.assertIsNone(self.queue.bounds.admits(1, 1))
        self.assertLess(0, self.queue.stored.depth)

    def test_aFullQueueDropsExpiredMessagesBeforeOthers(self) -> None:
        self.heavy(dropsOldest=True)
        self.put("A")
        self.assertEqual(self.world.counts[DROPPED], 0)

    def test_aPublisherWithAShareIsNotRefusedWhileExpiredMessagesAreDropped(self) -> None:
        self.expired("abcdefgh")
        self.queue.takeMany("x", 1)
        before = self.queue.stored.depth
        self.assertFalse(self.queue.bounds.isHeavier(2 * (OVERHEAD + 1)))
        self.assertEqual((before, self.queue.stored.depth), (6, 2))

    def test_deliveriesThatReturnedExpireInSlicesToo(self) -> None:
        self.put("abcde")
        self.queue.takeMany("x", 5)
        self.world.clock.rightNow += 10
        self.queue.release("x")
        self.assertEqual((len(self.queue.stored.returned), self.take(1)), (3, "-"))
        turn(self.world.clock)
        self.assertEqual(len(self.queue.stored.returned), 1)
