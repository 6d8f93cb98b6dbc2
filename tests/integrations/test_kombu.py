"""The transport of kombu with a broker."""

import os
import signal
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import Answered, ConnectionLost
from fleximq.client.settings import KEEP_ALIVE
from fleximq.security.checkers.passwords import hashOf as hashOfPassword
from tests.broker_process import BrokerProcess

_MISSING = "" if find_spec("amqp") else "needs the extra celery"
if not _MISSING:
    import kombu
    from amqp.exceptions import NotFound, PreconditionFailed
    from kombu.asynchronous import Hub
    from kombu.exceptions import OperationalError

    from fleximq.client.blocking.client import connect
    from fleximq.integrations.kombu import Channel, Transport, transport

#: Seconds that a delivery may take.
PATIENCE = 60.0


class KombuCase(SynchronousTestCase):
    """A broker with a journal, and a connection of kombu."""

    if _MISSING:
        skip = _MISSING

    def setUp(self) -> None:
        self.broker = BrokerProcess("--journal", os.path.abspath(self.mktemp()), *self.options())
        self.broker.__enter__()
        self.addCleanup(self.broker.stop)
        self.connection = self.connect()
        self.channel: Channel = self.connection.default_channel

    def options(self) -> tuple[str, ...]:
        """Return further options of the broker."""
        return ()

    def connect(self, **options: Any) -> Any:
        """Return a connection, which is closed at the end."""
        host, port = self.broker.address
        connection = kombu.Connection(transport=Transport, hostname=host, port=port, **options)
        self.addCleanup(connection.release)
        return connection

    def publish(self, key: str, *values: Any, exchange: str = "", **options: Any) -> None:
        """Publish values."""
        producer = kombu.Producer(self.channel)
        for value in values:
            producer.publish(value, routing_key=key, exchange=exchange, **options)

    def declare(self, name: str, **options: Any) -> Any:
        """Declare a queue, and return it."""
        queue = kombu.Queue(name, **{"exchange": kombu.Exchange(""), "routing_key": name, **options})(self.channel)
        queue.declare()
        return queue

    def consume(self, *names: str, prefetch: int = 0, connection: Any = None) -> list[Any]:
        """Consume from queues, and return the list of messages that arrive while events are drained."""
        channel = (connection or self.connection).channel()
        if prefetch:
            channel.basic_qos(0, prefetch, False)
        found: list[Any] = []
        for name in names:
            channel.basic_consume(name, callback=lambda got: found.append(channel.message_to_python(got)))
        return found

    def drain(self, found: list[Any], number: int, connection: Any = None) -> list[Any]:
        """Wait until so many messages have arrived, and return their values."""
        while len(found) < number:
            (connection or self.connection).drain_events(timeout=PATIENCE)
        return [each.payload for each in found]

    def barrier(self) -> None:
        """Wait until the broker has done all so far."""
        self.channel.queue_declare("barrier", durable=True)


class DeliveryTests(KombuCase):
    """Consumers and their settlements."""

    def test_prefetchLimitsUnsettledDeliveries(self) -> None:
        """An acknowledgement makes room for the next."""
        self.declare("q")
        self.publish("q", 1, 2, 3)
        found = self.consume("q", prefetch=1)
        self.assertEqual(self.drain(found, 1), [1])
        self.assertRaises(TimeoutError, self.connection.drain_events, timeout=0.1)
        found[0].ack()
        self.assertEqual(self.drain(found, 2), [1, 2])

    def test_changedPrefetchHolds(self) -> None:
        """As Celery changes it while it runs."""
        self.declare("q")
        self.publish("q", 1, 2, 3)
        found = self.consume("q", prefetch=1)
        self.drain(found, 1)
        found[0].channel.basic_qos(0, 3, False)
        self.assertEqual(self.drain(found, 3), [1, 2, 3])

    def test_unsettledDeliveriesReturnWithTheConnection(self) -> None:
        """And say so to the next consumer."""
        self.declare("q")
        self.publish("q", "job")
        other = self.connect()
        found = self.consume("q", connection=other)
        self.drain(found, 1, other)
        other.release()
        found = self.consume("q")
        self.assertEqual(self.drain(found, 1), ["job"])
        self.assertTrue(found[0].delivery_info["redelivered"])

    def test_acknowledgedAfterTheConsumerHasEnded(self) -> None:
        """Its unsettled deliveries stay with the channel, as in a warm shutdown."""
        self.declare("q")
        self.publish("q", "job", "other")
        found = self.consume("q", prefetch=1)
        self.drain(found, 1)
        channel = found[0].channel
        for tag in list(channel._consumers):
            channel.basic_cancel(tag)
        found[0].ack()
        self.barrier()
        channel.close()
        self.assertEqual(self.drain(self.consume("q"), 1), ["other"])

    def test_rejectedOnesAreDeadLetters(self) -> None:
        """Those that are requeued are delivered again."""
        self.declare("q")
        self.publish("q", "job")
        found = self.consume("q")
        self.drain(found, 1)
        found[0].requeue()
        self.drain(found, 2)
        found[1].reject()
        self.barrier()
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            self.assertEqual(
                {row["queue"]: row["messages"] for row in client.queues()}, {"$dead/q": 1, "barrier": 0, "q": 0}
            )

    def test_consumersWithoutAcknowledgement(self) -> None:
        """A delivery is done when it is passed on."""
        self.declare("q")
        self.publish("q", "job")
        with closing(self.connection.SimpleQueue("q", no_ack=True)) as simple:
            self.assertEqual(simple.get(timeout=PATIENCE).payload, "job")
        self.barrier()
        self.assertEqual(self.channel.queue_declare("q", passive=True).message_count, 0)

    def test_gettingOne(self) -> None:
        """None from an empty queue."""
        queue = self.declare("q")
        self.publish("q", "a", "b")
        self.assertEqual([queue.get(no_ack=True).payload for _ in range(2)], ["a", "b"])
        self.assertIsNone(queue.get())

    def test_onlyPropertiesOfAmqpAreSent(self) -> None:
        """A program may pass others, which no serializer knows."""
        self.declare("q")
        self.publish("q", "x", correlation_id="c", signal=object())
        found = self.consume("q")
        self.drain(found, 1)
        properties = found[0].properties
        self.assertEqual((properties.get("correlation_id"), properties.get("signal")), ("c", None))

    def test_valuesOfOtherClients(self) -> None:
        """A message without kombu's parts is JSON."""
        self.declare("q")
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            client.enqueue("q", {"to": "anna"})
            client.flush()
        self.assertEqual(self.drain(self.consume("q"), 1), [{"to": "anna"}])

    def test_theEndOfTheBrokerIsAConnectionError(self) -> None:
        """So that kombu reconnects."""
        self.declare("q")
        self.consume("q")
        self.broker.stop(signal.SIGKILL)
        self.assertRaises(self.connection.connection_errors, self.connection.drain_events, timeout=PATIENCE)
        self.assertFalse(self.connection.connected)


class RedeliveryTests(KombuCase):
    """How often a message may be delivered."""

    def requeue(self, times: int) -> list[Any]:
        """Return one message so many times, and return its deliveries, the last one unsettled."""
        found = self.consume("q", prefetch=1)
        for number in range(1, times + 1):
            self.drain(found, number)
            found[-1].requeue()
        self.barrier()
        return found

    def test_messagesAreDeliveredAnyNumberOfTimes(self) -> None:
        """A worker that restarts counts as one for all that it has prefetched and not run."""
        self.declare("q")
        self.publish("q", "job")
        self.assertEqual(len(self.drain(self.requeue(25), 26)), 26)

    def test_theDeliveryLimitOfAQueue(self) -> None:
        """Then the message is a dead letter."""
        self.declare("q", queue_arguments={"x-delivery-limit": 2})
        self.publish("q", "job")
        self.requeue(2)
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            [letter] = client.ask("/broker/dead-letters", {"queue": "q"})["letters"]
        self.assertEqual(letter["attempts"], 2)

    def test_theTimeToLiveOfAQueue(self) -> None:
        """It is in milliseconds, as for RabbitMQ."""
        self.declare("q", queue_arguments={"x-message-ttl": 1500})
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            [row] = client.queues()
        self.assertEqual(row["definition"]["message_ttl"], 1.5)


class EventLoopTests(KombuCase):
    """Kombu's hub, as Celery uses it: the connection is registered before its consumers begin."""

    def setUp(self) -> None:
        super().setUp()
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.declare("q")
        self.publish("q", "job")
        self.connection.register_with_event_loop(self.hub)

    def turn(self, times: int) -> None:
        """Run the event loop for some turns, each of which ends at the latest after a moment."""
        turns = self.hub.create_loop()
        for _ in range(times):
            self.hub.call_later(0.02, lambda: None)
            next(turns)

    def test_messagesThatWaitedAreDelivered(self) -> None:
        """Those that arrive with the answer to the consumer's beginning, before anything else happens."""
        found = self.consume("q", prefetch=4)
        self.turn(10)
        self.assertEqual([each.payload for each in found], ["job"])

    def test_timeoutsOfConsumersAreRaised(self) -> None:
        """They do not mean that there is no delivery."""

        def fail(got: object) -> None:
            raise TimeoutError("in the task")

        self.hub.propagate_errors = (TimeoutError,)
        self.channel.basic_consume("q", callback=fail)
        kombu.Producer(self.connect().default_channel).publish("other", routing_key="q")
        self.assertRaises(TimeoutError, self.turn, 10)


class HeartbeatTests(SynchronousTestCase):
    """How often a connection sends a PING."""

    if _MISSING:
        skip = _MISSING

    def settings(self, **options: Any) -> Any:
        """Return the settings with which a connection is made."""
        found: list[Any] = []

        def refuse(urls: object, settings: Any) -> None:
            found.append(settings)
            raise ConnectionLost("only its settings are wanted")

        self.patch(transport, "KombuClient", refuse)
        connection = kombu.Connection(transport=Transport, hostname="127.0.0.1", **options)
        self.assertRaises(ConnectionLost, connection.transport.establish_connection)
        return found[0]

    def test_notLessOftenThanOtherClients(self) -> None:
        """Celery asks for 120 seconds, and would notice a silent broker after minutes."""
        self.assertEqual(self.settings(heartbeat=120).keep_alive, KEEP_ALIVE)

    def test_moreOftenIfAsked(self) -> None:
        """As the heartbeat of kombu says."""
        self.assertEqual(self.settings(heartbeat=2).keep_alive, 2)


class TimeTests(KombuCase):
    """ETA and expiration."""

    def test_anEtaIsAScheduleOfTheBroker(self) -> None:
        """The message is in no queue before."""
        self.declare("q")
        eta = datetime.now(UTC) + timedelta(seconds=1)
        self.publish("q", "later", headers={"eta": eta.isoformat()})
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            [schedule] = client.schedules()
        self.assertGreaterEqual(schedule["due"], eta.timestamp() * 1000)
        self.assertTrue(schedule["kept"])
        self.assertEqual(self.drain(self.consume("q"), 1), ["later"])
        self.assertGreaterEqual(datetime.now(UTC), eta)

    def test_expiredTasksOfCeleryAreDelivered(self) -> None:
        """A worker reports them as revoked; other expired messages are not delivered."""
        self.declare("q")
        self.publish("q", "a", expiration=0.001, headers={"expires": "2020-01-01T00:00:00+00:00"})
        self.publish("q", "b", expiration=0.001)
        self.publish("q", "c")
        found = self.consume("q")
        self.assertEqual(self.drain(found, 2), ["a", "c"])

    def test_anEtaInThePastIsNone(self) -> None:
        """As one that is no time."""
        self.declare("q")
        self.publish("q", "a", headers={"eta": "2020-01-01T00:00:00+00:00"})
        self.publish("q", "b", headers={"eta": "soon"})
        self.assertEqual(self.drain(self.consume("q"), 2), ["a", "b"])


class QueueTests(KombuCase):
    """Declarations."""

    def test_publicationsWithoutAQueueAreDropped(self) -> None:
        """As in AMQP; no queue is made."""
        self.publish("nowhere", "lost")
        self.assertRaises(NotFound, self.channel.queue_declare, "nowhere", passive=True)

    def test_declaringAgainKeepsBindings(self) -> None:
        """A different declaration is refused."""
        exchange = kombu.Exchange("logs", type="topic")
        queue = self.declare("q", exchange=exchange, routing_key="app.*")
        queue.declare()
        self.publish("app.error", "x", exchange="logs")
        self.assertEqual(self.drain(self.consume("q"), 1), ["x"])
        with self.assertRaises(PreconditionFailed):
            self.channel.queue_declare("q", durable=True, arguments={"x-max-length": 7})

    def test_settingsThatNoDeclarationNamesAreTheOperators(self) -> None:
        """A queue that was defined before is used as it is."""
        with connect(f"tcp://127.0.0.1:{self.broker.port()}") as client:
            client.define_queue("q", max_attempts=3, when_full="drop-oldest")
            self.declare("q")
            self.assertEqual(client.define_queue("q", max_attempts=3, when_full="drop-oldest")["max_attempts"], 3)

    def test_unboundQueuesReceiveNoMore(self) -> None:
        """The others do."""
        exchange = kombu.Exchange("logs", type="direct")
        one, two = (self.declare(name, exchange=exchange, routing_key="k") for name in ("one", "two"))
        one.unbind_from(exchange, "k")
        self.publish("k", "x", exchange="logs")
        counts = [self.channel.queue_declare(each.name, passive=True).message_count for each in (one, two)]
        self.assertEqual(counts, [0, 1])

    def test_deletedWithItsMessages(self) -> None:
        """And purged."""
        queue = self.declare("q")
        self.publish("q", 1, 2)
        self.assertEqual(queue.purge(), 2)
        self.publish("q", 3)
        self.assertEqual((queue.delete(if_empty=True), queue.delete()), (0, 1))
        self.assertRaises(NotFound, self.channel.queue_declare, "q", passive=True)

    def test_boundsOfAQueue(self) -> None:
        """The oldest messages leave a queue with a maximum length; others refuse."""
        self.declare("q", max_length=2)
        self.publish("q", 1, 2, 3)
        self.assertEqual(self.drain(self.consume("q"), 2), [2, 3])

    def test_exclusiveQueuesEndWithTheConnection(self) -> None:
        """Their messages too."""
        other = self.connect()
        other.default_channel.queue_declare("mine", exclusive=True)
        other.release()
        self.assertRaises(NotFound, self.channel.queue_declare, "mine", passive=True)


class CredentialsTests(KombuCase):
    """A broker that admits only known clients."""

    def options(self) -> tuple[str, ...]:
        path = Path(self.mktemp()).absolute()
        path.write_text(f"worker:{hashOfPassword('p')}\n")
        path.chmod(0o600)
        return "--auth", f"passwords:{path}"

    def connect(self, **options: Any) -> Any:
        return super().connect(**{"userid": "worker", "password": "p", **options})

    def test_nameAndPasswordOfTheUrl(self) -> None:
        """They are checked."""
        self.declare("q")
        self.publish("q", "x")
        self.assertEqual(self.drain(self.consume("q"), 1), ["x"])
        self.assertRaises(Answered, self.connect(password="wrong").connect)

    def test_credentialsAreInTheOptions(self) -> None:
        """Those of the client, under their own names."""
        credentials = {"type": "basic", "username": "worker", "password": "p"}
        connection = self.connect(userid=None, password=None, transport_options={"credentials": credentials})
        self.assertTrue(connection.connect().connected)

    def test_unreachableBrokersAreOperationalErrors(self) -> None:
        """After the retries that were asked for."""
        connection = kombu.Connection(transport=Transport, hostname="127.0.0.1", port=9)
        self.assertRaises(OperationalError, connection.ensure_connection, max_retries=1, interval_start=0)
