"""Named queues with a journal: definitions and sources after a restart."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import Worker
from tests.broker.restarts import Restarts


class RestartTests(SynchronousTestCase):
    """A broker that is killed."""

    def setUp(self) -> None:
        self.world = Restarts()

    def define(self, *sources: str, name: str = "t", **values: Any) -> None:
        self.world.broker.defineQueue(self.world.me, QueueDefinition(name, sources, **values), replace=True)

    def got(self, name: str = "t") -> list[str]:
        worker = Worker(self.world.broker).consume(name, 100)
        self.world.clock.advance(0)
        return [each.message.payload.decode() for each in worker.got]

    def publish(self, topic: str, *names: str) -> None:
        self.world.publish(topic, *names)

    def test_definitionsAreRestored(self) -> None:
        self.define("a/*", max_in_flight=3)
        self.define(name="v", durable=False, paused=True)
        for _ in range(2):
            self.world.commit()
            self.world.kill()
            found = {each.name: each.definition for each in self.world.broker.queues}
            self.assertEqual(
                found,
                {
                    "t": QueueDefinition("t", ("a/*",), max_in_flight=3),
                    "v": QueueDefinition("v", durable=False, paused=True),
                },
            )

    def test_messagesOfAllSourcesAreRestoredInOrder(self) -> None:
        self.define("a/*", "b")
        for number, topic in enumerate(("a/x", "b", "c", "t", "a/y", "b")):
            self.publish(topic, str(number))
        self.world.commit()
        self.world.kill()
        self.publish("a/new", "6")
        self.world.commit()
        self.assertEqual(self.got(), ["0", "1", "3", "4", "5", "6"])

    def test_messagesOfOtherDialectsHaveTheirTopicAndIds(self) -> None:
        self.define("a/*")
        self.world.publish("a/x", "1", ids=True)
        self.world.commit()
        for _ in range(2):
            worker = Worker(self.world.broker).consume("t", 1)
            self.world.settle()
            [delivery] = worker.got
            assert delivery.message.head is not None
            self.assertEqual((delivery.message.head.topic, delivery.message.head.pairs), ("a/x", b""))
            self.assertEqual(delivery.message.message_id, "1")
            self.world.kill()

    def test_aChangeOfSourcesCountsForThePublicationsThatWereNotCommitted(self) -> None:
        self.define("a")
        self.publish("a", "1")
        self.world.commit()
        self.publish("a", "2")
        self.publish("b", "3")
        self.define("b")
        self.publish("a", "4")
        self.publish("b", "5")
        self.world.commit()
        self.publish("b", "6")
        self.world.commit()
        self.assertEqual(self.got(), ["1", "3", "5", "6"])
        self.world.kill()
        self.assertEqual(self.got(), ["1", "3", "5", "6"])

    def test_acknowledgedOnesAreGone(self) -> None:
        self.define("a/*")
        self.publish("a/x", "1", "2", "3")
        self.world.commit()
        worker = Worker(self.world.broker).consume("t", 10)
        self.world.broker.settle(worker.client, "t", [worker.got[1].tag])
        self.world.commit()
        self.world.kill()
        self.world.clock.advance(60)
        self.assertEqual(self.got(), ["1", "3"])

    def test_leasesEndWithTheBroker(self) -> None:
        """No consumer outlives it: a job is delivered at once, also one whose lease was extended."""
        self.define(lease=1000.0)
        self.publish("t", "1", "2")
        self.world.commit()
        worker = Worker(self.world.broker).consume("t", 10)
        self.world.broker.settle(worker.client, "t", extends=[(worker.got[0].tag, 5000.0)])
        for isSnapshot in (False, True):
            self.world.commit()
            if isSnapshot:
                self.world.journal.roll(self.world.broker)
            self.world.kill()
            self.assertEqual(self.got(), ["1", "2"])

    def test_theLastAttemptEndsWithTheBroker(self) -> None:
        """The message becomes a dead letter, and is not delivered once more; others are."""
        self.define(max_attempts=2, ordered_by="key")
        self.publish("t", "1", "2")
        self.world.commit()
        first = Worker(self.world.broker).consume("t", 1)
        self.world.broker.settle(first.client, "t", retries=[(first.got[0].tag, 0.0)])
        self.assertEqual([each.attempts for each in first.got], [1, 2])
        for isSnapshot in (False, True):
            self.world.commit()
            if isSnapshot:
                self.world.journal.roll(self.world.broker)
            journal = self.world.journal
            self.world.kill()
            self.assertEqual(self.got(), ["2"])
            self.world.commit()
            self.assertEqual(self.got("$dead/t"), ["1"])
            self.world.journal = journal

    def test_theOnlyAttempt(self) -> None:
        """One that may not have been made counts as none."""
        self.define(max_attempts=1)
        self.publish("t", "1", "2")
        self.world.commit()
        Worker(self.world.broker).consume("t", 1)
        self.world.commit()
        self.world.kill()
        self.assertEqual(self.got(), ["2"])
        self.world.commit()
        self.assertEqual(self.got("$dead/t"), ["1"])

    def test_messagesExpireAtTheSameTimeAfterARestart(self) -> None:
        self.define(message_ttl=100.0)
        for name in "12":
            self.world.journal.now = self.world.broker.microseconds()
            self.publish("t", name)
            self.world.commit()
            self.world.clock.advance(60)
        for isSnapshot in (False, True):
            if isSnapshot:
                self.world.journal.roll(self.world.broker)
            self.world.kill()
        self.assertEqual(self.got(), ["2"])
        self.world.clock.advance(40)
        self.world.kill()
        self.assertEqual(self.got(), [])

    def test_recordsOfItsSourcesAreNeeded(self) -> None:
        self.define("a/*")
        self.publish("a/x", "1")
        self.publish("b", "2")
        self.world.commit()
        needed = self.world.broker.checkpointer.needed()
        self.assertEqual(needed["t"], 1)

    def test_anExpiredDefinitionIsGone(self) -> None:
        self.define("a/*", expiry=10.0)
        self.world.commit()
        self.world.clock.advance(10)
        self.world.commit()
        self.world.kill()
        self.assertEqual([*self.world.broker.queues], [])
        self.assertFalse(self.world.broker.topics.isDurable("a/x"))
