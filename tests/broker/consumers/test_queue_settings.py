"""The queues of the settings file."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest, Conflict
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import ConsumingCase
from tests.broker.restarts import Restarts


class SettingsTests(ConsumingCase):
    """Without a journal."""

    def settle(self, **values: object) -> None:
        """Have one queue in the settings."""
        self.broker.queueSettings.settle([QueueDefinition("t", ("a",), **values)])  # type: ignore[arg-type]

    def test_aSettingFillsItsQueue(self) -> None:
        """At once."""
        self.settle()
        self.publish("x", "a")
        self.assertEqual(self.worker().names, "x")

    def test_itWinsOverClientsDefinitions(self) -> None:
        """Before and after."""
        self.broker.defineQueue(self.publisher, QueueDefinition("t", ("b",)))
        self.settle(max_in_flight=3)
        self.assertEqual(self.queue.definition, QueueDefinition("t", ("a",), max_in_flight=3))
        with self.assertRaisesRegex(Conflict, "in the broker's settings"):
            self.broker.defineQueue(self.publisher, QueueDefinition("t", ("b",)), replace=True)
        self.broker.defineQueue(self.publisher, QueueDefinition("t", ("a",), max_in_flight=3))

    def test_withoutItsTableAQueueStays(self) -> None:
        """And clients may change it."""
        self.settle()
        self.broker.queueSettings.settle([])
        self.assertEqual(self.queue.sources, ("a", "t"))
        self.broker.defineQueue(self.publisher, QueueDefinition("t"), replace=True)
        self.assertEqual(self.queue.sources, ("t",))

    def test_aPauseLastsUntilItsTableEndsIt(self) -> None:
        """A table that did not change does not."""
        self.settle()
        self.broker.pauseQueue(self.publisher, "t", True)
        self.settle()
        self.assertTrue(self.queue.isBlocked)
        self.settle(paused=True)
        self.settle(paused=False)
        self.assertFalse(self.queue.isBlocked)

    def test_aWorkerThatDefinesItsQueueAgainDoesNotResumeIt(self) -> None:
        """Only a replacement or an operator does."""
        self.broker.defineQueue(self.publisher, QueueDefinition("t"))
        self.broker.pauseQueue(self.publisher, "t", True)
        self.broker.defineQueue(self.publisher, QueueDefinition("t"))
        self.assertTrue(self.queue.isBlocked)
        self.broker.defineQueue(self.publisher, QueueDefinition("t"), replace=True)
        self.assertFalse(self.queue.isBlocked)

    def test_oneThatCannotBeIsFoundBefore(self) -> None:
        """A durable one without a journal."""
        with self.assertRaises(BadRequest):
            self.broker.queueSettings.check([QueueDefinition("u", durable=True)])


class RestartTests(SynchronousTestCase):
    """With a journal."""

    def test_theyAreSetWhenTheJournalIsOpen(self) -> None:
        """Over the definition in the journal; one that is paused stays so."""
        world = Restarts()
        world.broker.defineQueue(world.me, QueueDefinition("t", ("b",)))
        world.broker.pauseQueue(world.me, "t", True)
        world.commit()
        world.kill()
        world.broker.queueSettings.settle([QueueDefinition("t", ("a",))])
        [queue] = world.broker.queues
        self.assertEqual(queue.definition, QueueDefinition("t", ("a",), paused=True))
        world.commit()
        world.kill()
        [queue] = world.broker.queues
        self.assertEqual(queue.definition, QueueDefinition("t", ("a",), paused=True))
