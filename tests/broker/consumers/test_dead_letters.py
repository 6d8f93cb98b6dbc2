"""Dead letters, and acknowledgements that arrive after the last delivery's time."""

from functools import partial
from typing import Any, ClassVar

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers import dead_letters
from fleximq.broker.consumers.letter_filter import LetterFilter, deathOf
from fleximq.broker.envelope import QueueDelivery
from fleximq.values.death import Death, storyOf
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message
from tests.broker.consumers.consuming import Worker
from tests.broker.parts import Friend, makeBroker
from tests.broker.restarts import Restarts, payloads
from tests.nightly import repetitions

RETRY = 4.0
DELIVERIES = 3
RULES: dict[str, Any] = {"redelivery": RETRY, "maxDeliveries": DELIVERIES}


class Volatile(Restarts):
    """A broker without a journal, used as one with a journal is."""

    def begin(self) -> None:
        self.broker = makeBroker(self.clock, None, self.errors.append, **self._rules)
        self.me = self.broker.join("minimq")

    def commit(self) -> None:
        """Do nothing."""


class LateCase(SynchronousTestCase):
    """Three deliveries of four seconds each, in a broker of each kind."""

    kinds: ClassVar[tuple[type[Restarts], ...]] = (Restarts, Volatile)

    def start(self, kind: type[Restarts], **rules: Any) -> None:
        self.world = kind(**{**RULES, **rules})
        self.addCleanup(lambda: self.assertEqual(self.world.errors, []))
        self.world.consume("t", 1)

    def put(self, *names: str) -> None:
        self.world.publish("t", *names, ids=True)
        self.world.commit()

    def attempt(self, seconds: float = RETRY) -> str:
        """Deliver the messages, and let their time pass; return those that were delivered."""
        found = payloads(self.world.consume("t", 9))
        self.wait(seconds)
        return found

    def die(self) -> None:
        for _ in range(DELIVERIES):
            self.attempt()

    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.world.commit()
        self.world.commit()

    def acknowledge(self, *ids: str) -> None:
        self.world.broker.acknowledgeMessages(ids, self.world.me)
        self.world.commit()

    def letters(self) -> str:
        self.world.commit()
        return payloads(self.world.consume("$dead/t", 9))


class LateTests(LateCase):
    """The acknowledgement of a consumer that needed more time counts."""

    def test_nextAttempt(self) -> None:
        """It settles a message that another consumer has by now."""
        for kind in self.kinds:
            self.start(kind)
            self.put("a")
            self.attempt()
            self.attempt(1.0)
            self.acknowledge("a")
            self.wait(100)
            self.assertEqual((self.attempt(), self.letters()), ("", ""))

    def test_deadLetter(self) -> None:
        """A job of 14 seconds on three workers that all acknowledge it, 14, 18 and 22 seconds after its arrival."""
        for kind in self.kinds:
            self.start(kind)
            self.put("a")
            self.assertEqual([self.attempt() for _ in range(DELIVERIES)], ["a"] * 3)
            self.wait(2)
            queue = self.world.broker.queues.get("$dead/t")
            assert queue is not None
            self.assertEqual(queue.depth, 1)
            for _ in range(DELIVERIES):
                self.acknowledge("a")
                self.assertEqual((queue.depth, queue.size, len(self.world.broker.queues._ids)), (0, 0, 0))
                self.wait(4)
            self.assertEqual((self.attempt(), self.letters()), ("", ""))

    def test_onlyItsOwn(self) -> None:
        """Letters before and after it stay, in their order."""
        for kind in self.kinds:
            self.start(kind)
            self.put(*"abcde")
            self.die()
            self.acknowledge("d", "b")
            self.assertEqual(self.letters(), "a c e")

    def test_subscription(self) -> None:
        """The same by the tag of a BlipMQ subscription."""
        for kind in self.kinds:
            self.start(kind)
            id = self.world.broker.openSubscription(self.world.me, None, "s", 1).id
            self.world.publish("s", "a", "b", "c")
            self.world.commit()
            for _ in range(DELIVERIES):
                self.world.poll(id, 9)
                self.wait(RETRY)
            self.assertEqual(self.world.broker.polledSubscriptions.find(id, None).acknowledge([2, 9]), [9])
            self.assertEqual(self.world.broker.polledSubscriptions.find(id, None).acknowledge([2]), [2])
            self.world.commit()
            self.assertEqual(payloads(self.world.consume("$dead/s", 9)), "a c")
            self.assertEqual(self.world.broker.polledSubscriptions.find(id, None).acknowledge([1]), [1])

    def test_returned(self) -> None:
        """A letter that an operator has returned is an ordinary message again."""
        for kind in self.kinds:
            self.start(kind)
            self.put("a")
            self.die()
            self.world.broker.admin.returnDeadLetters("t", 9, lambda number, reason: None)
            self.wait(0)
            self.acknowledge("a")
            self.assertEqual(self.attempt(), "a")

    def test_bound(self) -> None:
        """Only of the latest letters, so that no more ids are remembered."""
        self.patch(dead_letters, "LATE", 2)
        for kind in self.kinds:
            self.start(kind)
            self.put(*"abcd")
            self.die()
            self.assertEqual(len(self.world.broker.queues._ids), 2)
            self.acknowledge(*"abcd")
            self.assertEqual((self.letters(), len(self.world.broker.deadLetters._late)), ("a b", 0))

    def test_found(self) -> None:
        """Each is found at once, in whatever order they are acknowledged and although others were taken."""
        names = [f"{number:03}" for number in range(60)]
        looks: list[Message] = []
        content = dead_letters._contentOf

        def look(message: Message) -> int:
            looks.append(message)
            return content(message)

        self.patch(dead_letters, "_contentOf", look)
        for order in (names, names[::-1], [*names[20:40], *names[:20], *names[40:]]):
            self.start(Volatile)
            self.put(*names)
            for _ in range(DELIVERIES):
                self.world.consume("t", 60)
                self.wait(RETRY)
            looks.clear()
            taken = payloads(self.world.consume("$dead/t", 2)).split()
            for name in order[:30]:
                self.acknowledge(name)
            self.world.publish("t", "z")
            self.acknowledge(*order[30:])
            self.assertLess(len(looks), 60)
            queue = self.world.broker.queues.get("$dead/t")
            assert queue is not None
            self.assertEqual((queue.depth, len(taken)), (0, 2))

    def test_expiry(self) -> None:
        """A removed letter does not let a younger one expire earlier."""
        for kind in self.kinds:
            self.start(kind, timesToLive=(("$dead/t", 20.0),))
            self.put("a", "b")
            self.die()
            self.put("c")
            self.die()
            self.acknowledge("a")
            self.wait(7)
            queue = self.world.broker.queues.get("$dead/t")
            assert queue is not None
            self.assertEqual(queue.depth, 2)
            self.wait(1)
            self.assertEqual(queue.depth, 1)
            self.assertEqual(self.letters(), "c")


class ManyTests(LateCase):
    """Many messages that die together: their letters are published in several turns."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(dead_letters, "AT_ONCE", 2)

    def reject(self, *names: str) -> None:
        """Put messages into the queue, and reject all of them by one settlement."""
        self.put(*names)
        self.worker = Worker(self.world.broker).consume("t", 100)
        self.world.broker.settle(self.worker.client, "t", rejects=[(each.tag, "no") for each in self.worker.got])

    def published(self) -> int:
        queue = self.world.broker.queues.get("$dead/t")
        return 0 if queue is None else queue.queue.stored.arrived

    def test_someInEachTurnAndInOrder(self) -> None:
        for kind in self.kinds:
            self.start(kind)
            made: list[str | None] = []
            self.world.broker.deadLetters.onDeadLetter = partial(_remember, made)
            self.reject(*"abcde")
            self.assertEqual(made, ["a", "b"])
            self.wait(0)
            self.assertEqual((self.letters(), made), ("a b c d e", [*"abcde"]))
            self.assertEqual(self.world.broker.queues.existing("t").queue.stored.all, 0)

    def test_thoseThatWaitAreAcknowledgedLate(self) -> None:
        for kind in self.kinds:
            self.start(kind)
            self.put(*"abcd")
            self.world.consume("t", 9)
            queue = self.world.broker.queues.existing("t").queue
            queue.rejectMany([1, 2, 3, 4], ["no"] * 4)
            self.acknowledge("d")
            self.wait(0)
            self.assertEqual(self.letters(), "a b c")

    def test_theSettlementIsStoredWhenAllLettersAre(self) -> None:
        self.start(Restarts)
        self.reject(*"abcde")
        told: list[str | None] = []
        self.world.broker.whenStored(told.append, self.worker.client)
        self.world.commit()
        self.assertEqual((told, self.published()), ([], 2))
        self.wait(0)
        self.wait(0)
        self.assertEqual((told, self.published()), ([None], 5))

    def test_aKillBetweenTheTurnsLosesNone(self) -> None:
        """Messages whose letters were not published return; others may be there twice."""
        self.start(Restarts)
        self.reject(*"abcd")
        self.world.commit()
        self.world.kill()
        self.wait(100)
        self.assertEqual({*f"{self.letters()} {self.attempt()}".split()}, {*"abcd"})

    def test_oneThatFails(self) -> None:
        """Its message returns, now or in a later turn, and the others are published."""
        self.start(Restarts)

        def fail(death: Death, messageId: str | None) -> None:
            if messageId in ("a", "c"):
                raise ValueError("no spade")

        self.world.broker.deadLetters.onDeadLetter = fail
        self.reject(*"abcd")
        self.wait(0)
        self.world.broker.stopConsuming(self.worker.client, "t")
        self.assertEqual((self.letters(), self.attempt()), ("b d", "a c"))
        self.assertEqual([str(error) for error in self.world.errors][:2], ["no spade"] * 2)
        self.world.errors.clear()


def _remember(made: list[str | None], death: Death, messageId: str | None) -> None:
    made.append(messageId)


class StoryTests(LateCase):
    """The header of a dead letter says why its message died, and what was before."""

    def story(self, topic: str = "$dead/t") -> Death:
        """Return the story of the only dead letter."""
        self.world.commit()
        [delivery] = self.world.consume(topic, 9)
        assert delivery.message.head is not None
        found = storyOf(delivery.message.head.pairs)
        assert found is not None
        return found

    def test_attemptsAndTimes(self) -> None:
        """The first time is that of the end of the first delivery, the last that of the death."""
        for kind in self.kinds:
            self.start(kind)
            self.put("a")
            self.die()
            last = self.world.broker.microseconds() // 1000
            first = last - round(2 * RETRY * 1000)
            me = self.world.me.name
            self.assertEqual(self.story(), Death("t", DeathReason.ATTEMPTS, 3, first, last, me, topic="t"))

    def test_theConsumerWithTheLastAttempt(self) -> None:
        """It is named although it left; also if it had the only one."""
        for kind in self.kinds:
            for most in (1, 2):
                self.start(kind, maxDeliveries=most)
                self.put("a")
                for _ in range(most):
                    worker = Worker(self.world.broker).consume("t", 1)
                    self.world.broker.stopConsuming(worker.client, "t")
                    self.wait(0)
                self.assertEqual(self.story().consumer, worker.client.name)

    def test_rejectedByAConsumer(self) -> None:
        """The name of the consumer and its words are in the story, those at most 4 KiB."""
        for kind in self.kinds:
            self.start(kind)
            self.put("a")
            got: list[QueueDelivery] = []
            self.world.broker.consumeFrom(self.world.me, "t", got.extend, lambda error: None)
            self.world.broker.settle(self.world.me, "t", rejects=[(got[0].tag, "no " + "\u20ac" * 5000)])
            story = self.story()
            self.assertEqual(
                (story.reason, story.attempts, story.consumer), (DeathReason.REJECTED, 1, self.world.me.name)
            )
            self.assertEqual((story.words[:4], len(story.words.encode())), ("no \u20ac", 4095))

    def test_subscription(self) -> None:
        """The story of a message of a BlipMQ subscription names the subscription."""
        for kind in self.kinds:
            self.start(kind)
            id = self.world.broker.openSubscription(self.world.me, None, "s", 1).id
            self.world.publish("s", "a")
            self.world.commit()
            for _ in range(DELIVERIES):
                self.world.poll(id, 9)
                self.wait(RETRY)
            story = self.story("$dead/s")
            self.assertEqual((story.queue, story.subscription, story.consumer), ("s", id, self.world.me.name))

    def test_restart(self) -> None:
        """It is stored with the letter, with the header of its publisher before it."""
        self.start(Restarts)
        self.put("a")
        self.die()
        self.world.kill()
        self.world.settle()
        [delivery] = self.world.consume("$dead/t", 9)
        assert delivery.message.head is not None
        pairs = msgpack.unpackb(delivery.message.head.pairs)
        self.assertEqual([*pairs], ["message_id", "death"])
        story = pairs["death"]
        self.assertEqual((pairs["message_id"], story["reason"], story["attempts"]), ("a", "attempts", 3))


class ReturnTests(LateCase):
    """Returned letters go into the queue in which their messages died, and nowhere else."""

    def returnLetters(self, name: str = "t", **conditions: Any) -> int:
        """Return the letters of a queue; return how many."""
        done: list[tuple[int, str | None]] = []
        wanted = LetterFilter(**conditions)
        self.world.broker.admin.returnDeadLetters(name, 99, lambda *found: done.append(found), wanted)
        self.wait(0)
        self.wait(0)
        [(number, reason)] = done
        self.assertIsNone(reason)
        return number

    def test_theyAreAsIfNeverDelivered(self) -> None:
        """Their attempts are counted from the beginning, without the story and with the id as before."""
        for kind in self.kinds:
            self.start(kind)
            self.put("a", "b")
            self.die()
            self.assertEqual(self.returnLetters(), 2)
            found = self.world.consume("t", 9)
            self.assertEqual(payloads(found), "a b")
            self.assertEqual([(each.attempts, each.message.message_id) for each in found], [(1, "a"), (1, "b")])
            head = found[0].message.head
            assert head is not None
            self.assertEqual((head.topic, storyOf(head.pairs)), ("t", None))
            self.assertEqual(self.letters(), "")

    def test_noOtherSubscriberGetsThemAgain(self) -> None:
        """Neither subscribers of the topic nor other queues."""
        for kind in self.kinds:
            self.start(kind)
            taker = Friend()
            self.world.broker.subscribe(self.world.broker.join("fleximq", taker), taker, "#")
            other = self.world.broker.openSubscription(self.world.me, None, "t", 1)
            self.put("a")
            self.die()
            self.assertEqual(payloads(self.world.poll(other.id, 9)), "a")
            self.returnLetters()
            self.assertEqual((taker.payloads(), payloads(self.world.poll(other.id, 9))), ([b"a"], ""))
            self.assertEqual(self.attempt(), "a")

    def test_backToTheSubscription(self) -> None:
        """A letter of a BlipMQ subscription goes back to it; if it is gone, to its topic."""
        for kind in self.kinds:
            self.start(kind, grace=5.0, durableGrace=5.0)
            ids = [self.world.broker.openSubscription(self.world.me, None, "s", 1).id for _ in range(2)]
            self.world.publish("s", "a")
            self.world.commit()
            self.assertEqual(payloads(self.world.poll(ids[1], 9)), "a")
            self.world.broker.subscription(self.world.me, None, ids[1]).acknowledge([1])
            for _ in range(DELIVERIES):
                self.world.poll(ids[0], 9)
                self.wait(RETRY)
            self.returnLetters("s")
            self.assertEqual([payloads(self.world.poll(id, 9)) for id in ids], ["a", ""])

    def test_restart(self) -> None:
        """They are in the queue after a crash, once, and in the same order."""
        self.start(Restarts)
        self.put("a", "b", "c")
        self.die()
        self.returnLetters()
        for _ in range(2):
            self.world.kill()
            self.world.settle()
            self.assertEqual(self.letters(), "")
        self.world.clock.advance(100)
        self.assertEqual(payloads(self.world.consume("t", 9)), "a b c")

    def test_restartOfASubscription(self) -> None:
        """The same with a subscription."""
        self.start(Restarts)
        id = self.world.broker.openSubscription(self.world.me, None, "s", 1).id
        self.world.publish("s", "a")
        self.world.commit()
        for _ in range(DELIVERIES):
            self.world.poll(id, 9)
            self.wait(RETRY)
        self.returnLetters("s")
        self.world.kill()
        self.world.settle()
        self.assertEqual(payloads(self.world.poll(id, 9)), "a")

    def test_aReturnedLetterDiesAgainWithItsTopic(self) -> None:
        """Its new story has the topic to which it was published."""
        self.start(Restarts)
        self.put("a")
        self.die()
        self.returnLetters()
        self.die()
        [letter] = self.world.consume("$dead/t", 9)
        death = deathOf(letter.message)
        assert death is not None
        self.assertEqual((death.topic, death.attempts), ("t", 3))

    def test_conditions(self) -> None:
        """Only those that fulfil them are returned; the others stay, in order."""
        for kind in self.kinds:
            self.start(kind)
            self.put(*"abcd")
            self.die()
            now = self.world.broker.microseconds() // 1000
            self.assertEqual(self.returnLetters(ids=frozenset("bx")), 1)
            self.assertEqual(self.returnLetters(reason=DeathReason.REJECTED), 0)
            self.assertEqual(self.returnLetters(consumer="none"), 0)
            self.assertEqual(self.returnLetters(words="no"), 0)
            self.assertEqual((self.returnLetters(before=now), self.returnLetters(after=now + 1)), (0, 0))
            self.assertEqual(payloads(self.world.consume("t", 9)), "b")
            self.assertEqual(self.returnLetters(after=now, before=now + 1, reason=DeathReason.ATTEMPTS), 3)
            self.assertEqual(self.letters(), "")


class StoredTests(LateCase):
    """A letter of a durable queue is withdrawn in the journal."""

    def setUp(self) -> None:
        self.start(Restarts, limits={"queueMemory": 1200})

    def start(self, kind: type[Restarts], **more: Any) -> None:
        self.world = Restarts(more["limits"], **RULES)
        self.addCleanup(lambda: self.assertEqual(self.world.errors, []))
        self.world.consume("t", 1)

    def test_restart(self) -> None:
        """It does not return, whether it was in memory or only on disk; nor from a snapshot."""
        self.put(*"abcdefghi")
        self.die()
        self.acknowledge("b", "h", "e")
        for roll in (False, True):
            if roll:
                self.world.journal.roll(self.world.broker)
            self.world.kill()
        self.assertEqual(self.letters(), "a c d f g i")

    def test_whileItIsRead(self) -> None:
        self.put(*"abcdefghi")
        self.die()
        self.world.journal.patient = True
        taken = payloads(list(self.world.broker.consumeMany(self.world.me, "$dead/t", 9)))
        self.assertTrue(self.world.journal.asked)
        self.acknowledge("e", "g")
        self.assertEqual(f"{taken} {self.letters()}", "a b c d f h i")

    def test_beforeItsCommit(self) -> None:
        """The message is acknowledged in its queue at once, and the letter removed on its arrival."""
        self.put("a", "b")
        for _ in range(DELIVERIES):
            self.world.consume("t", 9)
            self.world.clock.advance(RETRY)
        self.world.broker.acknowledgeMessages(["a"], self.world.me)
        self.world.commit()
        self.world.commit()
        self.assertEqual(self.letters(), "b")
        self.world.kill()
        self.wait(100)
        self.assertEqual((self.letters(), self.attempt()), ("b", ""))

    def test_refused(self) -> None:
        """If the letter cannot be stored, the acknowledged message does not return either."""
        self.put("a")
        for _ in range(DELIVERIES):
            self.world.consume("t", 9)
            self.world.clock.advance(RETRY)
        self.world.broker.acknowledgeMessages(["a"], self.world.me)
        self.world.journal.commit("disk full")
        self.wait(100)
        self.assertEqual((self.attempt(), self.letters()), ("", ""))


class LateMachine(RuleBasedStateMachine):
    """One work queue of a broker, and plain lists of its messages and dead letters."""

    kind: type[Restarts] = Volatile

    def __init__(self) -> None:
        super().__init__()
        self.world = self.kind({"queueMemory": 3000}, **RULES)
        self.world.consume("t", 1)
        self.commit()
        self.number = 0
        #: Id -> number of deliveries, and until when it is hidden, oldest first.
        self.messages: dict[str, tuple[int, float]] = {}
        self.letters: list[str] = []
        self.ackable: set[str] = set()

    def commit(self) -> None:
        self.world.commit()
        self.world.commit()

    @rule(count=st.integers(1, 4))
    def produce(self, count: int) -> None:
        names = [str(self.number + place) for place in range(count)]
        self.number += count
        self.world.publish("t", *names, ids=True)
        self.commit()
        self.messages |= dict.fromkeys(names, (0, 0.0))

    @rule(number=st.integers(1, 4))
    def consume(self, number: int) -> None:
        now = self.world.clock.seconds()
        expected = [id for id, (_, due) in self.messages.items() if due <= now][:number]
        assert payloads(self.world.consume("t", number)).split() == expected
        for id in expected:
            self.messages[id] = self.messages[id][0] + 1, now + RETRY
        self.commit()

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.letTimePass(seconds)

    def letTimePass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.clock.advance(1)
            self.commit()
            now = self.world.clock.seconds()
            for id, (attempts, due) in list(self.messages.items()):
                if attempts >= DELIVERIES and due <= now:
                    del self.messages[id]
                    self.letters.append(id)
                    self.ackable.add(id)

    @rule(back=st.integers(1, 12))
    def acknowledge(self, back: int) -> None:
        id = str(self.number - back)
        self.world.broker.acknowledgeMessages([id], self.world.me)
        self.commit()
        if id in self.ackable:
            self.letters.remove(id)
            self.ackable.remove(id)
        elif self.messages.get(id, (0, 0))[0]:
            del self.messages[id]

    @rule()
    def takeLetter(self) -> None:
        """An operator takes the oldest letter, and acknowledges it."""
        expected, self.letters = self.letters[:1], self.letters[1:]
        assert payloads(self.world.consume("$dead/t", 1)).split() == expected
        self.world.broker.acknowledgeMessages(expected, self.world.me)
        self.ackable -= set(expected)
        self.commit()

    @invariant()
    def looksAlike(self) -> None:
        queue, letters = (self.world.broker.queues.get(name) for name in ("t", "$dead/t"))
        assert queue is not None
        assert queue.queue.stored.all == len(self.messages)
        assert (letters.queue.stored.all if letters is not None else 0) == len(self.letters)
        assert self.world.errors == []


class LateRestartMachine(LateMachine):
    """The same with a journal, and restarts, after which letters can no longer be withdrawn."""

    kind = Restarts

    @rule(roll=st.booleans())
    def restart(self, roll: bool) -> None:
        if roll:
            self.world.journal.roll(self.world.broker)
        self.world.kill(clean=True)
        self.world.settle()
        self.ackable.clear()
        # A restart rounds the time at which a message returns: among those of one moment it would come last.
        self.letTimePass(1)


class LateModelTests(SynchronousTestCase):
    """A broker and the model side by side, through many random lives."""

    def compare(self, machine: type[LateMachine]) -> None:
        some = settings(max_examples=repetitions(40, 500), stateful_step_count=40, deadline=None)
        run_state_machine_as_test(machine, settings=some)

    def test_volatile(self) -> None:
        self.compare(LateMachine)

    def test_durable(self) -> None:
        self.compare(LateRestartMachine)
