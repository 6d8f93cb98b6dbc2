"""Restarts of named queues with priorities, and of those that are ordered by keys."""

from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.values.message import Content, Message
from fleximq.values.publication_head import headOf
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import Worker
from tests.broker.restarts import Restarts


class LaneRestartTests(SynchronousTestCase):
    """A broker that is killed; its journal begins with a snapshot each time."""

    def setUp(self) -> None:
        self.world = Restarts()
        self.world.broker.queues.ensure("t")

    def put(self, names: str, **header: Any) -> None:
        """Publish a run of FlexiMQ."""
        me = self.world.broker.join("fleximq")
        head = headOf("t", msgpack.packb(header), me.id)
        body = [Message(name.encode(), Content.MESSAGEPACK, 1, head=head) for name in names]
        envelope = Envelope(self.world.broker.topicFor(me, "t"), me, MessageSource(), durable=True)
        self.world.broker.publish(envelope, body, len(body))
        self.world.commit()

    def worker(self, prefetch: int) -> Worker:
        """Return a consumer that has got what it may have."""
        worker = Worker(self.world.broker).consume("t", prefetch)
        self.settled()
        return worker

    def settled(self) -> None:
        """Let all be read and written."""
        self.world.clock.advance(0)
        self.world.settle()
        self.world.commit()

    def kill(self) -> None:
        self.world.commit()
        self.world.kill()
        self.settled()

    def test_priorities(self) -> None:
        """The highest comes first, also of those that were delivered before; acknowledged ones are gone."""
        self.put("ab")
        self.put("cd", priority=7)
        self.put("e", priority=0)
        worker = self.worker(3)
        self.assertEqual(worker.names, "cda")
        worker.ack("c")
        self.kill()
        self.put("f", priority=9)
        for _ in range(2):
            worker = self.worker(9)
            self.assertEqual(worker.names, "fdabe")
            self.kill()
        self.assertGreater(worker.got[1].attempts, 1)

    def test_thoseOnDiskBeforeLowerOnes(self) -> None:
        """Messages that are read while a consumer gets others come before those of a lower priority."""
        self.world = Restarts({"queueMemory": 4096})
        self.world.broker.queues.ensure("t")
        first, last = "abcdefghijklmnopqrstuvwxyz", "123"
        for name in first:
            self.put(name, priority=7)
        self.put(last)
        self.assertEqual(self.worker(99).names, first + last)

    def test_idsThatAreKnownWhileMessagesAreRead(self) -> None:
        """They cost nothing when all is acknowledged."""
        self.put("abc", message_id="1234567890")
        self.worker(9)
        self.world.commit()
        self.world.kill(patient=True)
        worker = Worker(self.world.broker).consume("t", 9)
        while self.world.journal.asked:
            self.world.journal.answer()
            self.world.clock.advance(0)
        self.assertEqual(worker.names, "abc")
        worker.ack("abc")
        [queue] = self.world.broker.queues
        self.assertEqual((queue.depth, queue.inFlight, queue.size), (0, 0, 0))

    def test_expiryOfAMessageThatAConsumerHad(self) -> None:
        """A snapshot after its time knows that it must not be delivered again."""
        self.put("a", expires_in=5000)
        self.assertEqual(self.worker(1).names, "a")
        self.world.clock.advance(6)
        self.world.commit()
        self.world.journal.roll(self.world.broker)
        self.kill()
        self.assertEqual(self.worker(1).names, "")

    def test_delaysOfAllPriorities(self) -> None:
        """A retry waits as long as without the restart."""
        self.put("a")
        self.put("b", priority=7)
        worker = self.worker(2)
        retries: list[tuple[int, float | None]] = [(tag, 100.0) for tag in worker.tags("ab")]
        self.world.broker.settle(worker.client, "t", retries=retries)
        self.kill()
        worker = self.worker(2)
        self.world.clock.advance(99)
        self.settled()
        self.assertEqual(worker.names, "")
        self.world.clock.advance(2)
        self.settled()
        self.assertEqual(sorted(worker.names), ["a", "b"])

    def test_orderByKey(self) -> None:
        """A message waits for the one with its key before it, that was delivered before the restart."""
        self.world.broker.defineQueue(self.world.me, QueueDefinition("t", ordered_by="key"))
        self.put("ab", key="x")
        self.put("c", key="y", priority=9)
        self.assertEqual(self.worker(9).names, "ac")
        for _ in range(2):
            self.kill()
            worker = self.worker(9)
            self.assertEqual(worker.names, "ac")
        worker.ack("a")
        self.settled()
        self.assertEqual(worker.names, "acb")
        self.kill()
        self.assertEqual(self.worker(9).names, "bc")
