"""Expired messages over the broker: they free their place at once, whether consumers are present or not."""

from collections.abc import Callable
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.queues.bounds import DROPPED, FULL
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.errors import NotKept
from fleximq.values.message import Content, Message
from tests.broker.parts import makeBroker
from tests.broker.restarts import Restarts, payloads

#: Messages of a full queue, and seconds after which they expire.
FULL_QUEUE, AGE = 10, 2.0


class Volatile(Restarts):
    """A broker without a journal, used as one with a journal is."""

    def begin(self) -> None:
        """Start a broker without a journal."""
        self.broker = makeBroker(self.clock, None, self.errors.append, **self._rules)
        self.me = self.broker.join("minimq")

    def commit(self) -> None:
        """Do nothing: all is delivered."""


class RoomCase(SynchronousTestCase):
    """Queues of at most ten messages that live two seconds."""

    kinds: ClassVar[tuple[type[Restarts], ...]] = (Restarts, Volatile)

    def start(self, kind: type[Restarts]) -> None:
        """Start a broker with a work queue that was consumed, and a subscription whose client has left."""
        self.world = kind({"queueMessages": FULL_QUEUE}, timesToLive=(("#", AGE),), durableGrace=3600.0, grace=3600.0)
        self.addCleanup(lambda: self.assertEqual(self.world.errors, []))
        self.world.consume("jobs", 1)
        self.subscriptionId = self.world.broker.openSubscription(self.world.me, "key", "orders", 1).id
        self.world.broker.polledSubscriptions.leave(self.world.me)
        self.world.commit()

    def produce(self, count: int = 1) -> str:
        """Produce messages one by one as MiniMQ does; return the reason of the last refusal, "" without one."""
        return self._sent("jobs", self.world.broker.produce, count)

    def publish(self, count: int = 1) -> str:
        """Publish messages one by one as BlipMQ does with QoS 1; return the reason of the last refusal."""
        return self._sent("orders", self.world.broker.publish, count)

    def _sent(self, topic: str, send: Callable[..., Any], count: int) -> str:
        reason = ""
        for number in range(count):
            broker, me = self.world.broker, self.world.me
            self.world.journal.now = broker.microseconds()
            envelope = Envelope(broker.topicFor(me, topic), me, MessageSource(), 1, True)
            try:
                send(envelope, [Message(b"%d" % number, Content.TEXT, 1, f"{number}")], 1)
            except NotKept as error:
                reason = error.reason
            self.world.commit()
        return reason


class RoomTests(RoomCase):
    """No consumer is needed for it."""

    def test_aQueueIsFull(self) -> None:
        """Messages that have not expired refuse publishers: the other tests find the bound reached."""
        for kind in self.kinds:
            self.start(kind)
            self.assertEqual([self.produce(10), self.produce(), self.publish(10), self.publish()], ["", FULL, "", FULL])

    def test_aFullWorkQueueOfExpiredMessagesAdmitsAsMany(self) -> None:
        """Without a turn of the reactor in between, and again and again."""
        for kind in self.kinds:
            self.start(kind)
            for _ in range(3):
                self.assertEqual((self.produce(10), self.produce()), ("", FULL))
                self.world.clock.rightNow += AGE
            self.assertEqual(self.world.broker.counts.events[DROPPED], 0)

    def test_anAbsentSubscriberWithExpiredMessagesBlocksNoPublisher(self) -> None:
        """The publishers of its topic, of any dialect, are admitted, and it gets the new messages later."""
        for kind in self.kinds:
            self.start(kind)
            for _ in range(3):
                self.assertEqual((self.publish(10), self.publish()), ("", FULL))
                self.world.clock.rightNow += AGE
            self.publish(2)
            self.assertEqual(payloads(self.world.poll(self.subscriptionId, 20, "key")), "0 1")

    def test_aRunOfMoreThanOneMessageIsAdmitted(self) -> None:
        """A run as large as the queue takes the place of all expired messages at once."""
        self.start(Restarts)
        self.publish(10)
        self.world.clock.rightNow += AGE
        self.world.publish("orders", *"abcdefghij")
        self.world.commit()
        self.assertEqual(payloads(self.world.poll(self.subscriptionId, 20, "key")), "a b c d e f g h i j")

    def test_messagesThatReturnFromALostConsumerFreeTheirPlaceToo(self) -> None:
        """A subscriber that polled all of them and left blocks no publisher after their time."""
        for kind in self.kinds:
            self.start(kind)
            self.publish(10)
            self.world.poll(self.subscriptionId, 10, "key")
            self.world.clock.rightNow += AGE
            self.assertEqual(self.publish(), FULL)
            self.world.broker.polledSubscriptions.leave(self.world.me)
            self.assertEqual(self.publish(10), "")


class RestartTests(RoomCase):
    """The ages of messages survive the broker."""

    def test_expiredMessagesAdmitOthersAfterARestart(self) -> None:
        """Whether they expired before, meanwhile or afterwards, and however the broker ended."""
        for before, after in ((AGE, 0.0), (0.0, AGE), (AGE / 2, AGE / 2)):
            for clean in (False, True):
                self.start(Restarts)
                self.assertEqual((self.produce(10), self.publish(10)), ("", ""))
                self.world.clock.rightNow += before
                self.world.kill(clean=clean)
                self.assertEqual((self.produce(), self.publish()), (FULL, FULL) if after else ("", ""))
                self.world.clock.rightNow += after
                self.world.settle()
                rest = 10 if after else 9
                self.assertEqual((self.produce(rest), self.publish(rest)), ("", ""), (before, after, clean))
                self.assertEqual((self.produce(), self.publish()), (FULL, FULL))

    def test_expiredMessagesAreCounted(self) -> None:
        """Each once, over a restart."""
        self.start(Restarts)
        self.publish(10)
        self.world.kill()
        self.world.clock.advance(AGE)
        self.assertEqual(self.world.broker.counts.events[EXPIRED], 10)
