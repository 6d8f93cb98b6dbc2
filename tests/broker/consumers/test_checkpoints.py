"""Snapshots, and queues out of snapshots and what came after."""

from array import array
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.broker.consumers.checkpoints import assumeDelivered
from fleximq.broker.consumers.polled_subscriptions import DROPPED_EXPIRED
from fleximq.broker.queues.last_deliveries import DEAD_LETTERS_REFUSED
from fleximq.broker.queues.queue_state import QueueState
from fleximq.errors import NotFound, NotKept, SubscriptionFailed
from fleximq.interfaces import IRecoveredState
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import (
    GroupProgress,
    QueueAcknowledged,
    QueueClosed,
    QueueDelivered,
    QueueOpened,
    StateRecord,
)
from tests.broker.restarts import Restarts, payloads


class RestartCase(SynchronousTestCase):
    """A broker that can be killed."""

    rules: dict[str, Any] = {}
    limits: dict[str, int] = {}

    def setUp(self) -> None:
        self.world = Restarts(self.limits, **self.rules)

    def open(self, topic: str = "t", qos: int = 1, owner: str | None = None) -> int:
        return self.world.broker.openSubscription(self.world.me, owner, topic, qos).id

    def put(self, *names: str, topic: str = "t", ids: bool = False) -> None:
        """Publish and commit."""
        self.world.publish(topic, *names, ids=ids)
        self.world.commit()

    def poll(self, id: int, number: int = 100, owner: str | None = None) -> str:
        return payloads(self.world.poll(id, number, owner))

    def consume(self, topic: str = "q", number: int = 100) -> str:
        return payloads(self.world.consume(topic, number))

    def tearDown(self) -> None:
        self.assertEqual(self.world.errors, [])


class SubscriptionTests(RestartCase):
    """A subscription of QoS1 comes back with its id, its owner and its messages."""

    def test_pending(self) -> None:
        id = self.open(owner="me")
        self.put("a", "b", "c")
        self.world.kill()
        self.assertEqual([each.tag for each in self.world.poll(id, 9, "me")], [1, 2, 3])

    def test_owner(self) -> None:
        id = self.open(owner="me")
        self.put("a")
        self.world.kill()
        self.assertRaises(NotFound, self.world.broker.subscription, self.world.me, "you", id)

    def test_inFlightFirst(self) -> None:
        """With their tags, and one attempt more."""
        id = self.open()
        self.put("a", "b", "c")
        self.world.poll(id, 2)
        self.world.commit()
        self.world.kill()
        self.assertEqual([each.tag for each in self.world.poll(id, 9)], [1, 2, 3])
        deliveries = self.world.broker.polledSubscriptions.find(id, None).queue.stored.delivered()
        self.assertEqual([(each.tag, each.attempts) for each in deliveries], [(1, 2), (2, 2), (3, 1)])

    def test_acknowledged(self) -> None:
        id = self.open()
        self.put("a", "b", "c")
        self.world.poll(id, 3)
        self.world.broker.polledSubscriptions.find(id, None).acknowledge([2])
        self.world.commit()
        for _ in range(2):
            self.world.kill()
            self.assertEqual(self.poll(id), "a c")

    def test_goesOn(self) -> None:
        """Tags go on where they were, over a snapshot as well."""
        id = self.open()
        self.put("a", "b")
        self.world.poll(id, 1)
        self.world.journal.roll(self.world.broker)
        self.world.kill()
        self.put("c")
        self.assertEqual(
            [(each.tag, each.message.payload) for each in self.world.poll(id, 9)], [(1, b"a"), (2, b"b"), (3, b"c")]
        )

    def test_openedBehindWhatItGets(self) -> None:
        """What was on its way to the disk when it was opened stands before the note, and belongs to it."""
        self.open(topic="t")
        self.world.publish("t", "early")
        id = self.open(topic="t")
        self.world.publish("t", "late")
        self.world.commit()
        self.assertIsInstance(self.world.journal.log[-1], QueueOpened)
        self.world.kill()
        self.assertEqual(self.poll(id), "early late")

    def test_nothingOlder(self) -> None:
        self.open()
        self.put("old")
        id = self.open()
        self.put("new")
        self.world.kill()
        self.assertEqual(self.poll(id), "new")

    def test_topicsAmongOthers(self) -> None:
        one, other = self.open("t"), self.open("u")
        for name in "abcd":
            self.world.publish("t" if name in "ac" else "u", name)
        self.world.commit()
        self.world.kill()
        self.assertEqual((self.poll(one), self.poll(other)), ("a c", "b d"))

    def test_qos0IsNotTracked(self) -> None:
        """A durable topic records what is published with QoS0 too; the subscription only hears it."""
        self.world = Restarts(durable=("t",))
        id = self.open()
        self.world.publish("t", "zero", qos=0)
        self.put("one")
        self.world.kill()
        self.assertEqual([(each.tag, each.message.payload) for each in self.world.poll(id, 9)], [(1, b"one")])

    def test_topicStaysDurable(self) -> None:
        id = self.open()
        self.world.commit()
        self.world.kill()
        self.put("a")
        self.world.kill()
        self.assertEqual(self.poll(id), "a")

    def test_snapshotTwice(self) -> None:
        id = self.open()
        self.put("a", "b")
        self.world.poll(id, 1)
        for _ in range(3):
            self.world.journal.roll(self.world.broker)
            self.world.kill()
        self.assertEqual(self.poll(id), "a b")

    def test_replayedFromFurtherBack(self) -> None:
        """What the snapshot knows already changes nothing."""
        id = self.open()
        self.put("a", "b", "c")
        self.world.poll(id, 2)
        self.world.broker.polledSubscriptions.find(id, None).acknowledge([1])
        self.world.commit()
        self.world.journal.roll(self.world.broker)
        self.put("d")
        self.world.poll(id, 1)
        self.world.commit()
        packed, _ = self.world.journal.checkpoint
        self.world.journal.checkpoint = packed, 0
        self.world.kill()
        deliveries = self.world.poll(id, 9)
        self.assertEqual([(each.tag, each.message.payload) for each in deliveries], [(2, b"b"), (3, b"c"), (4, b"d")])

    def test_qos0DoesNotSurvive(self) -> None:
        """And its id is nobody else's afterwards."""
        zero = self.open(qos=0)
        self.put("a")
        self.world.kill()
        self.assertRaises(NotFound, self.world.broker.subscription, self.world.me, None, zero)
        self.assertGreater(self.open(), zero)

    def test_readOnly(self) -> None:
        self.world.journal.readOnly = "disk full"
        self.assertRaises(SubscriptionFailed, self.open)
        self.assertGreater(self.open(qos=0), 0)

    def test_notInSystem(self) -> None:
        self.open("$sys/clients/joined")
        self.assertEqual([note for note in self.world.journal.notes if note.key.startswith("s:")], [])


class GraceTests(RestartCase):
    """An abandoned subscription ends, over restarts as well."""

    rules = {"durableGrace": 1000.0}

    def gone(self, id: int) -> bool:
        return all(each.id != id for each in self.world.broker.polledSubscriptions)

    def leave(self) -> None:
        self.world.broker.leave(self.world.me, "test")

    def test_notWhileConnected(self) -> None:
        id = self.open()
        self.world.clock.advance(2000)
        self.assertFalse(self.gone(id))

    def test_atItsTime(self) -> None:
        id = self.open()
        self.leave()
        self.world.clock.advance(999)
        self.assertFalse(self.gone(id))
        self.world.clock.advance(1)
        self.assertTrue(self.gone(id))
        self.assertIn(QueueClosed(f"s:{id}"), self.world.journal.notes)

    def test_overARestart(self) -> None:
        id = self.open()
        self.leave()
        self.world.clock.advance(400)
        self.world.journal.roll(self.world.broker)
        self.world.clock.advance(300)
        self.world.kill()
        self.world.clock.advance(299)
        self.assertFalse(self.gone(id))
        self.world.clock.advance(1)
        self.assertTrue(self.gone(id))

    def test_usedAfterTheSnapshot(self) -> None:
        """When exactly is not known, so the time begins anew."""
        id = self.open()
        self.put("a")
        self.leave()
        self.world.journal.roll(self.world.broker)
        self.world.clock.advance(900)
        self.world.me = self.world.broker.join("blipmq")
        self.world.poll(id, 1)
        self.world.commit()
        self.world.kill()
        self.world.clock.advance(999)
        self.assertFalse(self.gone(id))

    def test_closedIsGone(self) -> None:
        id = self.open()
        self.put("a")
        self.leave()
        self.world.clock.advance(1000)
        self.world.commit()
        self.world.kill()
        self.assertTrue(self.gone(id))
        self.assertEqual(self.world.broker.checkpointer.needed(), {})

    def test_freesThoseWhoPublish(self) -> None:
        """A full one refuses until it is gone."""
        self.world = Restarts({"queueMessages": 2}, **self.rules)
        self.open()
        self.put("a", "b")
        self.leave()
        self.world.me = self.world.broker.join("blipmq")
        self.assertRaises(NotKept, self.put, "c")
        self.world.clock.advance(1000)
        self.put("c")

    def test_qos0AsBefore(self) -> None:
        id = self.open(qos=0)
        self.leave()
        self.world.clock.advance(60)
        self.assertTrue(self.gone(id))


class WorkQueueTests(RestartCase):
    """A topic's queue comes back with what was consumed and not acknowledged."""

    def setUp(self) -> None:
        super().setUp()
        self.consume()
        self.put("a", "b", "c", topic="q", ids=True)

    def test_pending(self) -> None:
        self.world.kill()
        self.assertEqual(self.consume(), "a b c")

    def test_hiddenStillHidden(self) -> None:
        self.world.consume("q", 1)
        self.world.commit()
        self.world.clock.advance(20)
        self.world.kill()
        self.assertEqual(self.consume(), "b c")
        self.world.clock.advance(10)
        self.assertEqual(self.consume(), "a")

    def test_hiddenInASnapshot(self) -> None:
        self.world.consume("q", 1)
        self.world.clock.advance(5)
        self.world.journal.roll(self.world.broker)
        self.world.clock.advance(15)
        self.world.kill()
        self.assertEqual(self.consume(), "b c")
        self.world.clock.advance(10)
        self.assertEqual([(each.tag, each.attempts) for each in self.world.consume("q", 1)], [(1, 2)])

    def test_clockSet(self) -> None:
        """A step of the system clock neither ends nor lengthens the hidden time, nor is it taken for age."""
        for step in 7200.0, -3600.0:
            self.setUp()
            self.world.consume("q", 1)
            self.world.step += step
            self.assertEqual(self.consume(), "b c")
            self.world.clock.advance(29)
            self.assertEqual(self.consume(), "")
            self.world.clock.advance(1)
            self.assertEqual(self.consume()[:1], "a")

    def test_clockSetWhileDown(self) -> None:
        """Hidden times in the journal are those of the system clock, and never longer than the redelivery time."""
        for step, first in (-3600.0, "b c"), (7200.0, "a b c"):
            self.setUp()
            self.world.consume("q", 1)
            self.world.commit()
            self.world.step += step
            self.world.kill()
            self.assertEqual(self.consume(), first)
            self.world.clock.advance(29)
            self.assertEqual(self.consume(), "")
            self.world.clock.advance(1)
            self.assertEqual(self.consume()[:1], "a")

    def test_acknowledgeById(self) -> None:
        self.world.consume("q", 2)
        self.world.commit()
        self.world.kill()
        self.world.broker.acknowledgeMessages(["b"])
        self.world.clock.advance(30)
        self.assertEqual(self.consume(), "a c")

    def test_acknowledgedBeforeIdsAreKnown(self) -> None:
        self.world.consume("q", 2)
        self.world.commit()
        self.world.kill(patient=True)
        self.world.broker.acknowledgeMessages(["b"])
        self.world.settle()
        self.world.clock.advance(30)
        self.assertEqual(self.consume(), "a c")

    def test_confirmedLater(self) -> None:
        """Nobody is told that such an acknowledgement is safe before it was taken."""
        self.world.consume("q", 2)
        self.world.commit()
        self.world.kill(patient=True)
        told: list[str] = []
        self.world.broker.acknowledgeMessages(["b"], self.world.me)
        self.world.broker.whenCommitted(lambda: told.append("safe"), self.world.me)
        self.assertEqual((told, self.world.journal.notes), ([], []))
        while self.world.journal.asked:
            self.world.journal.answer()
        self.assertEqual((told, len(self.world.journal.notes)), (["safe"], 1))

    def test_manyIds(self) -> None:
        names = [str(number) for number in range(9000)]
        self.put(*names, topic="q", ids=True)
        self.world.consume("q", 9003)
        self.world.commit()
        self.world.kill(patient=True)
        for name in names[1:]:
            self.world.broker.acknowledgeMessages([name])
        self.world.settle()
        self.world.clock.advance(30)
        self.assertEqual(self.consume(), "a b c 0")

    def test_idIsLost(self) -> None:
        self.world.consume("q", 2)
        self.world.commit()
        self.world.journal.lose(1)
        self.world.kill()
        self.world.broker.acknowledgeMessages(["b"])
        self.world.clock.advance(30)
        self.assertEqual(self.consume(), "c")

    def test_consumed(self) -> None:
        """A queue that was ever consumed refuses when it is full, after a restart too."""
        self.world.kill()
        queue = self.world.broker.queues.get("q")
        assert queue is not None
        self.assertTrue(queue.everConsumed)

    def test_notConsumed(self) -> None:
        self.world.broker.expectReplies(self.world.me, "r")
        self.world.commit()
        self.world.kill()
        queue = self.world.broker.queues.get("r")
        assert queue is not None
        self.assertFalse(queue.everConsumed)

    def test_messagesDoNotExpire(self) -> None:
        for _ in range(2):
            self.world.clock.advance(10_000)
            self.world.journal.roll(self.world.broker)
            self.world.kill()
        self.assertEqual(self.consume(), "a b c")

    def test_repliesExpire(self) -> None:
        """A reply queue is one after a restart too, from the log and from a snapshot."""
        self.world.broker.expectReplies(self.world.me, "r")
        self.put("x", topic="r", ids=True)
        self.world.kill()
        self.world.clock.advance(1800)
        self.world.journal.roll(self.world.broker)
        self.world.kill()
        self.assertIsNotNone(self.world.broker.queues.get("r"))
        self.world.clock.advance(1800)
        self.assertIsNone(self.world.broker.queues.get("r"))

    def test_expiry(self) -> None:
        """The clock of a queue that nobody consumes does not begin anew."""
        self.world = Restarts(queueExpiry=3600.0)
        self.consume()
        self.world.clock.advance(3000)
        self.world.journal.roll(self.world.broker)
        self.world.kill()
        self.world.clock.advance(599)
        self.assertIsNotNone(self.world.broker.queues.get("q"))
        self.world.clock.advance(1)
        self.assertIsNone(self.world.broker.queues.get("q"))
        self.world.commit()
        self.world.kill()
        self.assertIsNone(self.world.broker.queues.get("q"))

    def test_durableDoesNotExpire(self) -> None:
        self.world = Restarts(durable=("q.#",))
        self.consume("q.x")
        self.world.clock.advance(10_000)
        self.assertIsNotNone(self.world.broker.queues.get("q.x"))

    def test_unkeptIsGone(self) -> None:
        self.world.publish("q", "zero", qos=0)
        self.world.kill()
        self.assertEqual(self.consume(), "a b c")

    def test_unkeptWasConsumed(self) -> None:
        """It does not count among what was handed out, in a snapshot or in a note."""
        self.consume()
        for each in "abc":
            self.world.broker.acknowledgeMessages([each])
        self.world.publish("q", "zero", qos=0)
        self.world.consume("q", 1)
        self.put("d", "e", topic="q", ids=True)
        self.world.consume("q", 1)
        self.world.journal.roll(self.world.broker)
        self.put("f", topic="q", ids=True)
        self.world.consume("q", 1)
        self.world.commit()
        self.world.kill()
        self.assertEqual(self.consume(), "f")
        self.world.clock.advance(30)
        self.assertEqual(self.consume(), "d e f")

    def test_dueWhileDead(self) -> None:
        self.world.consume("q", 1)
        self.world.commit()
        self.world.broker.stop()
        self.world.clock.advance(31)
        self.world.kill()
        self.assertEqual(self.consume(), "a b c")


class DeadLetterTests(RestartCase):
    """Dead letters are in the journal before the message is gone."""

    rules = {"maxDeliveries": 2, "redelivery": 30.0}

    def die(self, id: int) -> None:
        for _ in range(2):
            self.world.poll(id, 9)
            self.world.clock.advance(30)

    def test_kept(self) -> None:
        id = self.open()
        self.put("a", "b")
        self.die(id)
        self.world.commit()
        self.world.commit()
        self.world.kill()
        self.assertEqual((self.consume("$dead/t"), self.poll(id)), ("a b", ""))

    def test_killedBefore(self) -> None:
        id = self.open()
        self.put("a", "b")
        self.die(id)
        self.world.kill()
        self.assertEqual(self.poll(id), "a b")

    def test_refused(self) -> None:
        id = self.open()
        self.put("a")
        self.world.poll(id, 9)
        self.world.clock.advance(30)
        self.world.poll(id, 9)
        self.world.journal.readOnly = "disk full"
        self.world.clock.advance(30)
        self.assertEqual(self.poll(id), "a")

    def test_refusedLater(self) -> None:
        id = self.open()
        self.put("a")
        self.die(id)
        self.assertEqual(self.poll(id), "")
        self.world.journal.commit("disk full")
        self.assertEqual((self.poll(id), self.consume("$dead/t")), ("a", ""))
        self.assertIn(DEAD_LETTERS_REFUSED, self.world.broker.counts.events)


class NeededTests(RestartCase):
    """What retention may not take."""

    def test_needed(self) -> None:
        one = self.open("t")
        self.open("t")
        self.put("a", "b")
        self.consume("q")
        self.put("c", topic="q")
        self.assertEqual(self.world.broker.checkpointer.needed(), {"t": 1, "q": 3})
        self.world.poll(one, 2)
        for tag in (1, 2):
            self.world.broker.polledSubscriptions.find(one, None).acknowledge([tag])
        self.assertEqual(self.world.broker.checkpointer.needed(), {"t": 1, "q": 3})

    def test_nothing(self) -> None:
        """Where a queue needs nothing yet, that is all from the end on."""
        one = self.open("t")
        self.put("a")
        self.world.poll(one, 1)
        self.world.broker.polledSubscriptions.find(one, None).acknowledge([1])
        self.assertEqual(self.world.broker.checkpointer.needed(), {"t": 2})


@implementer(IRecoveredState)
class _Notes:
    """A journal that was closed in order, with only these notes."""

    snapshot = None
    clean = True

    def __init__(self, *notes: StateRecord) -> None:
        self._notes = notes

    def replay(self, batches: Callable[[StoredBatch], None], notes: Callable[[StateRecord], None]) -> None:
        for note in self._notes:
            notes(note)


class NoteTests(RestartCase):
    """Notes of queues that nobody knows change nothing."""

    def test_unknown(self) -> None:
        notes = QueueClosed("s:9"), QueueDelivered("s:9", 1, array("Q")), QueueAcknowledged("q:x", array("Q", [1]))
        self.world.broker.checkpointer.restore(_Notes(*notes))
        self.assertEqual((len(self.world.broker.polledSubscriptions), len(self.world.broker.queues)), (0, 0))

    def test_closedAndOpenedAgain(self) -> None:
        opened = QueueOpened("q:x", "x", 1, 0, None, 1)
        self.world.broker.checkpointer.restore(_Notes(opened, QueueClosed("q:x"), opened._replace(offset=5)))
        self.assertEqual(len(self.world.broker.queues), 1)

    def test_expiredCount(self) -> None:
        """An expired subscription takes its messages with it, counted."""
        self.world = Restarts(durableGrace=10.0)
        self.open()
        self.put("a", "b")
        self.world.broker.leave(self.world.me, "test")
        self.world.clock.advance(10)
        self.assertEqual(self.world.broker.counts.events[DROPPED_EXPIRED], 2)


class PresumedTests(RestartCase):
    """What was handed out in the last moment, of which no note was written."""

    def kill(self) -> None:
        """Lose what was noted since the last commit."""
        self.world.journal.pending.clear()
        self.world.kill()

    def test_tag(self) -> None:
        """It can be acknowledged by its tag; what is not comes again, as if for the first time."""
        id = self.open()
        self.put(*"abc")
        self.poll(id, 2)
        self.kill()
        self.assertEqual(self.world.broker.polledSubscriptions.find(id, None).acknowledge([1]), [])
        self.assertEqual([tuple(each[::2]) for each in self.world.poll(id, 9)], [(2, 1), (3, 1)])

    def test_id(self) -> None:
        """It can be acknowledged by its id."""
        self.consume()
        self.put(*"abc", topic="q", ids=True)
        self.consume(number=2)
        self.kill()
        self.world.settle()
        self.world.broker.acknowledgeMessages(["b"])
        self.assertEqual(self.consume(), "a c")

    def test_clean(self) -> None:
        """After an orderly stop nothing is presumed."""
        id = self.open()
        self.put(*"abc")
        self.world.kill(clean=True)
        self.assertEqual(self.world.broker.polledSubscriptions.find(id, None).acknowledge([1]), [1])
        self.assertEqual(self.poll(id), "a b c")

    def test_bounds(self) -> None:
        """Only so many of a queue, and those queues first that were used last."""
        states = [QueueState(f"s:{used}", "t", 1, used, None, 1, used=used) for used in (5, 0, 9)]
        for state in states:
            state.arrive(range(1, 11))
        assumeDelivered(states, 100, ofOne=4, inAll=6)
        self.assertEqual([state.lastTag for state in states], [0, 4, 2])


class GroupTests(RestartCase):
    """Consumer groups outlive the broker."""

    def reached(self, *words: GroupProgress) -> None:
        """Let groups say how far they are, and let it be on disk."""
        self.world.broker.groups.reached(list(words))
        self.world.commit()

    def groups(self) -> list[GroupProgress]:
        """Return the groups that the broker knows."""
        return list(self.world.broker.groups)

    def test_notes(self) -> None:
        """By what was noted."""
        self.reached(GroupProgress("a", 5, 1, 2), GroupProgress("b", 6, 1))
        self.world.broker.groups.forget("b")
        self.world.commit()
        self.world.kill()
        self.assertEqual(self.groups(), [GroupProgress("a", 5, 1, 2)])

    def test_snapshot(self) -> None:
        """By a snapshot, and what was noted behind it."""
        self.reached(GroupProgress("a", 5, 1), GroupProgress("b", 6, 1), GroupProgress("c", 7, 1))
        self.world.journal.roll(self.world.broker)
        self.reached(GroupProgress("b", 9, 2))
        self.world.broker.groups.forget("c")
        self.world.commit()
        self.world.kill()
        self.assertEqual(self.groups(), [GroupProgress("a", 5, 1), GroupProgress("b", 9, 2)])

    def test_nothingIsKept(self) -> None:
        """Nothing is kept for a group; retention is only told where it is."""
        self.reached(GroupProgress("a", 5, 1))
        self.assertEqual(self.world.broker.checkpointer.needed(), {})
        self.assertEqual(self.world.broker.checkpointer.reading(), {"a": 5})
