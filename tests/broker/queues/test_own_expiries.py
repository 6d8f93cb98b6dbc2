"""Messages with a time of their own expire wherever they wait, over the broker."""

from typing import Any, ClassVar

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.queues import own_expiries
from fleximq.broker.queues.bounds import FULL
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.errors import NotKept
from fleximq.values.message import Content, Message
from fleximq.values.publication_head import headOf
from tests.broker.parts import makeBroker, turn
from tests.broker.restarts import Restarts, payloads


class Volatile(Restarts):
    """A broker without a journal, used as one with a journal is."""

    def begin(self) -> None:
        """Start a broker without a journal."""
        self.broker = makeBroker(self.clock, None, self.errors.append, **self._rules)
        self.me = self.broker.join("minimq")

    def commit(self) -> None:
        """Do nothing: all is delivered."""


class ExpiryCase(SynchronousTestCase):
    """A work queue in memory and on disk; only the first messages of the latter are in memory."""

    kinds: ClassVar[tuple[type[Restarts], ...]] = (Restarts, Volatile)

    def start(self, kind: type[Restarts], messages: int = 100, **rules: Any) -> None:
        """Start a broker."""
        self.world = kind({"queueMemory": 1200, "queueMessages": messages}, redelivery=30.0, **rules)
        self.addCleanup(lambda: self.assertEqual(self.world.errors, []))
        self.world.consume("t", 1)

    def put(self, names: str, seconds: float = 0.0, topic: str = "t") -> None:
        """Publish messages that expire after so many seconds, 0: never."""
        broker = self.world.broker
        publisher = ConnectedClient(1000, "fleximq", "fleximq-1000")
        fields = {"expires_in": round(seconds * 1000)} if seconds else {"x": 1}
        head = headOf(topic, msgpack.packb(fields), 1000)
        envelope = Envelope(broker.topicFor(self.world.me, topic), publisher, MessageSource(), 1, True)
        self.world.journal.now = broker.microseconds()
        body = [Message(name.encode(), Content.BYTES, 1, name, head=head) for name in names]
        broker.produce(envelope, body, len(body))
        self.world.commit()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.world.clock.advance(seconds)
        self.world.commit()

    def rest(self, number: int = 50) -> str:
        """Take all that can be taken."""
        return payloads(self.world.consume("t", number))

    @property
    def depth(self) -> int:
        """How many wait."""
        queue = self.world.broker.queues.get("t")
        assert queue is not None
        return queue.depth

    @property
    def expired(self) -> int:
        """How many have expired."""
        return self.world.broker.counts.events[EXPIRED]


class OwnExpiriesTests(ExpiryCase):
    """In the middle of a queue."""

    def test_theyExpireBetweenOthers(self) -> None:
        """At the beginning, in the middle and at the end, in memory and on disk; the others keep their order."""
        for kind in self.kinds:
            self.start(kind)
            for name in "abcdefghijklmnopqrst":
                self.put(name, 5.0 if name in "abfgmnopqt" else 0.0)
            self.assertEqual(self.depth, 20)
            self.advance(5)
            self.assertEqual((self.depth, self.expired), (10, 10))
            self.assertEqual(self.rest(), "c d e h i j k l r s")

    def test_eachAtItsTime(self) -> None:
        """Not before it, although a later message expires earlier."""
        for kind in self.kinds:
            self.start(kind)
            self.put("ab", 9.0)
            self.put("cd", 3.0)
            self.put("ef", 6.0)
            found = []
            for _ in range(3):
                self.advance(3)
                found.append(self.depth)
            self.assertEqual((found, self.expired), ([4, 2, 0], 6))

    def test_theyFreeTheirPlaceAtOnce(self) -> None:
        """A full queue admits as many as have expired, without a turn of the reactor in between."""
        for kind in self.kinds:
            self.start(kind, 10)
            self.put("abc")
            self.put("defg", 2.0)
            self.put("hij")
            self.assertEqual(self.assertRaises(NotKept, self.put, "k").reason, FULL)
            self.world.clock.rightNow += 2
            self.put("klmn")
            self.assertRaises(NotKept, self.put, "o")
            self.assertEqual(self.rest(), "a b c h i j k l m n")

    def test_aConsumerGetsNoExpiredMessage(self) -> None:
        """Although no timer ran since its time was over."""
        for kind in self.kinds:
            self.start(kind)
            self.put("a", 2.0)
            self.put("b")
            self.world.clock.rightNow += 2
            self.assertEqual(self.rest(), "b")

    def test_manyExpireInSlices(self) -> None:
        """Of a run with one time a slice in each turn."""
        self.patch(own_expiries, "SLICE", 2)
        self.start(Volatile)
        self.patch(own_expiries.OwnExpiries.expire, "__defaults__", (2,))
        self.put("abcde", 2.0)
        self.world.clock.rightNow += 2
        found = [self.depth for _ in range(3) if turn(self.world.clock)]
        self.assertEqual(found, [3, 1, 0])

    def test_deliveriesExpireWhenTheyReturn(self) -> None:
        """One in flight is its consumer's, who may acknowledge it; if it returns, it has expired."""
        for kind in self.kinds:
            self.start(kind)
            self.put("ab", 2.0)
            self.put("c")
            self.assertEqual(self.rest(2), "a b")
            self.advance(2)
            self.assertEqual(self.expired, 0)
            self.world.broker.acknowledgeMessages(["a"])
            self.advance(30)
            self.assertEqual((self.expired, self.rest()), (1, "c"))

    def test_returnedOnesExpireAtTheirTime(self) -> None:
        """Messages that wait for another delivery."""
        for kind in self.kinds:
            self.start(kind)
            self.put("ab", 40.0)
            self.rest(2)
            self.advance(30)
            self.assertEqual(self.depth, 2)
            self.advance(10)
            self.assertEqual((self.depth, self.expired), (0, 2))

    def test_restart(self) -> None:
        """Their times survive a crash, from the log and from a snapshot, wherever the messages are."""
        self.start(Restarts)
        for name in "abcdefghijklmnopqrst":
            self.put(name, 10.0 if name in "abfgmnopqt" else 0.0)
        self.rest(2)
        self.world.commit()
        for _ in range(3):
            self.world.kill()
            self.world.settle()
            self.advance(3)
            self.assertEqual(self.expired, 0)
        self.advance(1)
        self.assertEqual(self.expired, 8)
        self.advance(30)
        self.assertEqual(self.rest(), "c d e h i j k l r s")

    def test_timesThatPassWhileTheBrokerIsDown(self) -> None:
        """They have expired when it starts."""
        self.start(Restarts)
        self.put("ab", 10.0)
        self.put("c")
        self.world.clock.rightNow += 10
        self.world.kill(clean=True)
        self.world.settle()
        self.assertEqual((self.rest(), self.expired), ("c", 2))

    def test_expiredMessagesDoNotReturnAfterARestart(self) -> None:
        """What has expired is recorded."""
        self.start(Restarts)
        self.put("a", 2.0)
        self.put("b")
        self.put("c", 2.0)
        self.put("d")
        self.advance(2)
        self.world.step -= 3600
        self.world.kill()
        self.world.settle()
        self.assertEqual(self.rest(), "b d")

    def test_deadLettersDoNotExpire(self) -> None:
        """Those of messages with a time, live and after a restart."""
        for kind in self.kinds:
            self.start(kind, maxDeliveries=1)
            self.put("a", 40.0)
            self.rest()
            self.advance(30)
            self.advance(100)
            if kind is Restarts:
                self.world.kill()
                self.world.settle()
                self.advance(100)
            self.assertEqual(payloads(self.world.consume("$dead/t", 9)), "a")

    def test_expiredMessagesDieWhereTheQueueSaysSo(self) -> None:
        """Each becomes a dead letter with the reason, from memory, from disk, and of those that returned."""
        for kind in self.kinds:
            self.start(kind)
            queue = self.world.broker.queues.get("t")
            assert queue is not None
            queue.queue.expiredDie = True
            self.put("abcdefghij", 40.0)
            self.put("k")
            self.rest(1)
            self.advance(40)
            self.world.settle()
            self.world.commit()
            self.world.commit()
            self.assertEqual((self.rest(), self.expired), ("k", 10))
            letters = sorted(payloads(self.world.consume("$dead/t", 20)).split())
            self.assertEqual(letters, [*"abcdefghij"])
            self.assertEqual(self.world.broker.counts.events["dead letters: expired"], 10)

    def test_theSameByTheTimeToLiveOfATopic(self) -> None:
        """Messages that are too old by --message-ttl die as well, in memory, on disk and returned."""
        for kind in self.kinds:
            self.start(kind, timesToLive=(("t", 40.0),))
            queue = self.world.broker.queues.get("t")
            assert queue is not None
            queue.queue.expiredDie = True
            self.put("abcdefghij")
            self.rest(1)
            self.advance(20)
            self.put("k")
            self.advance(20)
            self.world.settle()
            self.world.commit()
            self.world.commit()
            letters = sorted(payloads(self.world.consume("$dead/t", 20)).split())
            self.assertEqual((self.rest(), self.expired, letters), ("k", 10, [*"abcdefghij"]))
            self.assertEqual(
                (queue.queue.stored.depth, self.world.broker.counts.events["dead letters: expired"]), (0, 10)
            )
