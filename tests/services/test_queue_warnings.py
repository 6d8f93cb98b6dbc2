"""The log lines about the queues of a broker."""

from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.limits import Limits
from fleximq.services.broker_service import makeBroker
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.queueing import message
from tests.log_observer import observeLog
from tests.slow_journal import SlowJournal


class ExpiredQueueTests(SynchronousTestCase):
    """Queues that are removed because nobody consumed from them."""

    def test_logged(self) -> None:
        """The log names a queue that is removed with its messages, and not one that is empty."""
        logged: list[LogEvent] = []
        observeLog(self, logged.append)
        clock = Clock()
        queues = makeBroker(clock, Settings(queueExpiry=5.0), WriteTurn(clock), MemoryJournal()).queues
        queues.ensure("full").deliver([message("a"), message("b")], 2)
        queues.ensure("empty")
        clock.advance(5.1)
        self.assertEqual(len(queues), 0)
        self.assertEqual(
            [formatEvent(event) for event in logged if event.get("log_level") is LogLevel.warn],
            [
                "The queue full was removed with 2 messages, since it had no consumer for 5 s (--queue-expiry); "
                "queues whose topic matches --durable are not removed"
            ],
        )

    def test_replies(self) -> None:
        """The line says why a queue of replies was removed."""
        logged: list[LogEvent] = []
        observeLog(self, logged.append)
        clock = Clock()
        queues = makeBroker(clock, Settings(), WriteTurn(clock), MemoryJournal()).queues
        queues.markForReplies("answers")
        queues.ensure("answers").deliver([message("a")], 1)
        clock.advance(3600)
        self.assertEqual(
            [formatEvent(event) for event in logged if event.get("log_level") is LogLevel.warn],
            [
                "The queue answers was removed with 1 message, since it had no consumer for 3600 s (a ReplyTo created "
                "it); queues whose topic matches --durable are not removed"
            ],
        )

    def test_definitions(self) -> None:
        """The line has the time of the queue's own definition."""
        logged: list[LogEvent] = []
        observeLog(self, logged.append)
        clock = Clock()
        broker = makeBroker(clock, Settings(), WriteTurn(clock), MemoryJournal())
        broker.defineQueue(broker.brokerClient, QueueDefinition("own", expiry=60.0), False)
        broker.queues.ensure("own").deliver([message("a")], 1)
        clock.advance(61)
        words = [formatEvent(event) for event in logged if event.get("log_level") is LogLevel.warn]
        self.assertIn("since it had no consumer for 60 s (its definition)", words[0])


class FullQueueTests(SynchronousTestCase):
    """Queues that drop messages."""

    def test_logged(self) -> None:
        """The log names a queue, also of dead letters, once until a consumer takes a message."""
        logged: list[LogEvent] = []
        observeLog(self, logged.append)
        clock = Clock()
        settings = Settings(limits=Limits(queueMessages=2))
        queues = makeBroker(clock, settings, WriteTurn(clock), MemoryJournal()).queues
        for name in ("jobs", "$dead/jobs"):
            queue = queues.ensure(name)
            for number in (2, 1, 1):
                queue.deliver([message(id="a")] * number, number)
            queue.consumeMany(1)
            queue.deliver([message(id="a")] * 2, 2)
        lines = [formatEvent(event) for event in logged if event.get("log_level") is LogLevel.warn]
        words = "The queue {} is full: new messages replace its oldest ones until a consumer takes some "
        words += "(--queue-messages, --queue-bytes)"
        self.assertEqual(lines, [words.format(name) for name in ("jobs", "jobs", "$dead/jobs", "$dead/jobs")])


class DeadLetterTests(SynchronousTestCase):
    """Messages that were delivered too often."""

    def test_logged(self) -> None:
        """The log names queue, id and deliveries, at most ten messages a second."""
        logged: list[LogEvent] = []
        observeLog(self, logged.append)
        clock = Clock()
        settings = Settings(redelivery=5.0, maxDeliveries=2)
        queue = makeBroker(clock, settings, WriteTurn(clock), MemoryJournal()).queues.ensure("jobs")
        queue.deliver([message(id=f"job-{number}") for number in range(12)], 12)
        for _ in range(2):
            queue.consumeMany(100)
            clock.advance(5)
        lines = [formatEvent(event) for event in logged if event.get("log_level") is LogLevel.warn]
        words = "The message job-0 of the queue jobs is a dead letter after 2 deliveries without an ACK"
        self.assertEqual(lines[0], words)
        self.assertEqual(len(lines), 10)


class ExpiredSubscriptionTests(SynchronousTestCase):
    """Durable subscriptions that no client uses."""

    def test_logged(self) -> None:
        """The log names one that is removed with its messages."""
        logged: list[LogEvent] = []
        observeLog(self, logged.append)
        clock, journal = Clock(), SlowJournal()
        broker = makeBroker(clock, Settings(durableGrace=5.0), WriteTurn(clock), journal)
        client = broker.join("blipmq")
        broker.openSubscription(client, None, "full", 1).deliver([message("a")], 1)
        broker.openSubscription(client, None, "empty", 1)
        broker.leave(client, "reason")
        clock.advance(5.1)
        self.assertEqual(
            [formatEvent(event) for event in logged if event.get("log_level") is LogLevel.warn],
            [
                "The BlipMQ subscription 1 of full was removed with 1 message, since no client used it for 5 s "
                "(--durable-grace)"
            ],
        )
