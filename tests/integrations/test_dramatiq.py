"""The broker of dramatiq, with a broker and with workers in this process."""

import os
import signal
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from tests.broker_process import BrokerProcess
from tests.integrations.permissions import basic, granting

_MISSING = "" if find_spec("dramatiq") else "needs the extra dramatiq"
if not _MISSING:
    import dramatiq
    from dramatiq import errors
    from dramatiq.common import current_millis
    from dramatiq.middleware import Middleware, TimeLimitExceeded
    from dramatiq.middleware.group_callbacks import GroupCallbacks
    from dramatiq.rate_limits.backends import StubBackend

    from fleximq.integrations.dramatiq import FleximqBroker, FleximqMessage

#: Milliseconds and seconds that something may take.
PATIENCE = 60_000
SECONDS = 60.0


class DramatiqCase(SynchronousTestCase):
    """A broker with a journal, and one of dramatiq."""

    if _MISSING:
        skip = _MISSING

    def setUp(self) -> None:
        self.folder = os.path.abspath(self.mktemp())
        self.process = BrokerProcess("--journal", self.folder, *self.options())
        self.process.__enter__()
        self.addCleanup(self.process.stop)
        self.url = f"tcp://127.0.0.1:{self.process.port()}"
        self.broker = self.newBroker()

    def options(self) -> tuple[str, ...]:
        """Return further options of the broker."""
        return ()

    def newBroker(self, **options: Any) -> "FleximqBroker":
        """Return a broker of dramatiq, which is closed at the end."""
        broker = FleximqBroker(self.url, **options)
        self.addCleanup(broker.close)
        return broker

    def actor(self, function: Callable[..., Any], **options: Any) -> Any:
        """Return an actor."""
        return dramatiq.actor(function, broker=self.broker, **options)

    def consumer(self, queue: str = "default", prefetch: int = 1, timeout: int = PATIENCE) -> Any:
        """Return a consumer, which is closed at the end."""
        consumer = self.broker.consume(queue, prefetch, timeout)
        self.addCleanup(consumer.close)
        return consumer

    def work(self, threads: int = 4, **options: Any) -> Any:
        """Start a worker, which is stopped at the end."""
        worker = dramatiq.Worker(self.broker, worker_timeout=100, worker_threads=threads, **options)
        worker.start()
        self.addCleanup(worker.stop)
        return worker

    def join(self, queue: str = "default") -> None:
        """Wait until all messages of a queue are done."""
        self.broker.join(queue, timeout=PATIENCE)

    def counts(self, queue: str = "default") -> tuple[int, int, int]:
        """Return the numbers of waiting or unsettled, delayed and dead messages."""
        return self.broker.get_queue_message_counts(queue)


class EnqueueTests(DramatiqCase):
    """Messages on their way to the queue."""

    def test_declarationsNeedNoBroker(self) -> None:
        """Programs declare their actors when they are imported."""
        broker = FleximqBroker("tcp://127.0.0.1:9")
        dramatiq.actor(print, actor_name="x", broker=broker, queue_name="other")
        self.assertEqual((broker.get_declared_queues(), broker.get_declared_delay_queues()), ({"other"}, set()))
        self.assertRaises(errors.ConnectionFailed, broker.get_actor("x").send)

    def test_isStoredWhenItReturns(self) -> None:
        """A broker that is killed then has it."""
        self.actor(print, actor_name="x").send(1)
        self.process.stop(signal.SIGKILL)
        with BrokerProcess("--journal", self.folder) as again:
            self.url = f"tcp://127.0.0.1:{again.port()}"
            self.broker = self.newBroker()
            self.assertEqual(self.counts(), (1, 0, 0))

    def test_aDelayIsAScheduleOfTheBroker(self) -> None:
        """The message has no ETA of dramatiq, since no worker holds it."""
        actor = self.actor(print, actor_name="x")
        before = current_millis()
        actor.send_with_options(delay=1000)
        self.assertEqual(self.counts(), (0, 1, 0))
        message = next(self.consumer())
        self.assertGreaterEqual(current_millis(), before + 1000)
        self.assertEqual(message.options, {})

    def test_aDelayInThePastIsNone(self) -> None:
        """As with its other brokers."""
        self.actor(print, actor_name="x").send_with_options(delay=-5)
        self.assertEqual(self.counts(), (1, 0, 0))

    def test_lowerPrioritiesAreFirst(self) -> None:
        """Those of actors; the option ``broker_priority`` is that of the queue, where higher ones are first."""
        for name, priority in (("low", 100), ("usual", 0), ("high", -3)):
            self.actor(print, actor_name=name, priority=priority).send()
        self.broker.get_actor("low").send_with_options(args=("now",), broker_priority=9)
        consumer = self.consumer(prefetch=4)
        self.assertEqual([next(consumer).actor_name for _ in range(4)], ["low", "high", "usual", "low"])

    def test_lostConnectionsOfProducersAreReplaced(self) -> None:
        """As long as the broker can be reached."""
        actor = self.actor(print, actor_name="x")
        actor.send()
        [idle] = self.broker._idle
        idle.client.hang_up()
        actor.send()
        self.assertEqual(self.counts(), (2, 0, 0))

    def test_sentAgainAfterALossIsOneMessage(self) -> None:
        """A connection that is lost before the confirmation."""
        actor = self.actor(print, actor_name="x")
        actor.send()
        flush = type(self.broker._idle[0].client).flush
        lost: list[bool] = []

        def lose(client: Any, *more: Any) -> None:
            flush(client, *more)
            if not lost:
                lost.append(True)
                client.hang_up()
                flush(client, *more)

        self.patch(type(self.broker._idle[0].client), "flush", lose)
        actor.send()
        self.assertEqual((lost, self.counts()), ([True], (2, 0, 0)))

    def test_messagesThatAreTooLargeAreRefused(self) -> None:
        """Which ends the connection; the next one is not."""
        actor = self.actor(print, actor_name="x")
        error = self.assertRaises(errors.ConnectionClosed, actor.send, "x" * (17 << 20))
        self.assertIn("too large", str(error))
        actor.send()
        self.assertEqual(self.counts(), (1, 0, 0))

    def test_fullQueuesRefuse(self) -> None:
        """With the words of the broker; the definition is the operator's."""
        with connect(self.url) as client:
            client.define_queue("default", max_messages=1, when_full="refuse")
        actor = self.actor(print, actor_name="x")
        actor.send()
        self.assertIn("queue is full", str(self.assertRaises(errors.BrokerError, actor.send)))

    def test_threadsShareABroker(self) -> None:
        """Each message is there once."""
        actor = self.actor(print, actor_name="x")
        threads = [threading.Thread(target=lambda: [actor.send() for _ in range(20)]) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(SECONDS)
        self.assertEqual(self.counts(), (160, 0, 0))

    def test_forkedProcessesConnectAnew(self) -> None:
        """As web servers with a preloaded program."""
        actor = self.actor(print, actor_name="x")
        actor.send()
        child = os.fork()
        if not child:
            try:
                actor.send()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        actor.send()
        self.assertEqual(self.counts(), (3, 0, 0))


class ConsumerTests(DramatiqCase):
    """Deliveries and their settlements, without a worker."""

    def setUp(self) -> None:
        super().setUp()
        self.send = self.actor(print, actor_name="x").send

    def test_undeclaredQueuesAreNotConsumed(self) -> None:
        """As dramatiq says."""
        self.assertRaises(errors.QueueNotFound, self.broker.consume, "other")

    def test_noneAfterTheTimeout(self) -> None:
        """So that the worker can see to other things."""
        self.assertIsNone(next(self.consumer(timeout=10)))

    def test_prefetchLimitsUnsettledMessages(self) -> None:
        """An acknowledgement makes room for the next."""
        for number in (1, 2):
            self.send(number)
        consumer = self.consumer(timeout=1000)
        first = next(consumer)
        self.assertIsNone(next(consumer))
        consumer.ack(first)
        self.assertEqual(next(consumer).args, (2,))

    def test_rejectedMessagesAreDeadLetters(self) -> None:
        """With the exception as words."""
        self.send()
        consumer = self.consumer()
        message = next(consumer)
        message.stuff_exception(ValueError("no such customer"))
        consumer.nack(message)
        consumer.close()
        self.assertEqual(self.counts(), (0, 0, 1))
        with connect(self.url) as client:
            [letter] = client.ask("/broker/dead-letters", {"queue": "default"})["letters"]
        self.assertEqual(letter["words"], "ValueError('no such customer')")

    def test_unsettledMessagesReturnWithTheConnection(self) -> None:
        """At once, and say that they were delivered before."""
        self.send()
        consumer = self.consumer()
        self.assertFalse(next(consumer).redelivered)
        consumer.close()
        self.assertTrue(next(self.consumer()).redelivered)

    def test_restartsMakeNoDeadLetters(self) -> None:
        """A worker that restarts has prefetched messages that it has not run."""
        self.send()
        for _ in range(25):
            consumer: Any = self.broker.consume("default", 1, PATIENCE)
            self.assertEqual(next(consumer).actor_name, "x")
            consumer.close()
        self.assertEqual(self.counts(), (1, 0, 0))

    def test_undecodableMessagesAreDeadLetters(self) -> None:
        """They are logged."""
        with connect(self.url) as client:
            client.enqueue("default", {"to": "anna"})
            client.enqueue("default", b"no JSON")
        self.send()
        consumer = self.consumer()
        self.assertEqual([next(consumer), next(consumer)], [None, None])
        self.assertEqual(next(consumer).actor_name, "x")
        self.assertEqual(self.counts()[2], 2)

    def test_theEndOfTheBrokerIsAConnectionError(self) -> None:
        """So that dramatiq makes a new consumer, which is refused as long as there is no broker."""
        self.send()
        consumer = self.consumer()
        message = next(consumer)
        self.process.stop(signal.SIGKILL)
        self.assertRaises(errors.ConnectionClosed, next, consumer)
        consumer.ack(message)  # logged
        self.assertRaises(errors.ConnectionFailed, self.broker.consume, "default")

    def test_flushDropsAllMessages(self) -> None:
        """Waiting, delayed and dead ones; of all declared queues."""
        self.send()
        consumer = self.consumer()
        consumer.nack(next(consumer))
        consumer.close()
        self.send()
        self.broker.get_actor("x").send_with_options(delay=60_000)
        self.assertEqual(self.counts(), (1, 1, 1))
        self.broker.flush_all()
        self.assertEqual(self.counts(), (0, 0, 0))

    def test_joinEndsWithItsTimeout(self) -> None:
        """While a message waits, or is delayed."""
        self.broker.get_actor("x").send_with_options(delay=60_000)
        self.assertRaises(errors.QueueJoinTimeout, self.broker.join, "default", timeout=10)


class WorkerTests(DramatiqCase):
    """Dramatiq's worker with its own middleware."""

    def setUp(self) -> None:
        super().setUp()
        self.done: list[Any] = []

    def test_actorsRun(self) -> None:
        """On all declared queues, also those that are declared later."""
        self.actor(self.done.append, actor_name="x").send(1)
        self.work()
        self.actor(self.done.append, actor_name="y", queue_name="other").send(2)
        self.join()
        self.join("other")
        self.assertEqual(sorted(self.done), [1, 2])
        self.assertEqual(self.counts(), (0, 0, 0))

    def test_failedOnesAreRetriedLater(self) -> None:
        """By the broker, at the time that the middleware says."""

        def fails(number: int) -> None:
            self.done.append(number)
            if len(self.done) < 3:
                raise RuntimeError("not yet")

        self.actor(fails, min_backoff=50, max_backoff=50).send(1)
        self.work()
        self.join()
        self.assertEqual(self.done, [1, 1, 1])
        self.assertEqual(self.counts(), (0, 0, 0))

    def test_exhaustedOnesAreDeadLetters(self) -> None:
        """With their last exception."""

        def fails() -> None:
            raise RuntimeError("never")

        self.actor(fails, max_retries=1, min_backoff=10, max_backoff=10).send()
        self.work()
        self.join()
        self.assertEqual(self.counts(), (0, 0, 1))
        with connect(self.url) as client:
            [letter] = client.ask("/broker/dead-letters", {"queue": "default"})["letters"]
        self.assertEqual(letter["words"], "RuntimeError('never')")

    def test_unknownActorsAreDeadLetters(self) -> None:
        """Another program may have them."""
        message = self.actor(print, actor_name="gone").message()
        del self.broker.actors["gone"]
        self.broker.enqueue(message)
        self.work()
        self.join()
        self.assertEqual(self.counts(), (0, 0, 1))

    def test_limitsOfAgeAndTime(self) -> None:
        """Of their middleware."""

        def sleeps() -> None:
            deadline = time.monotonic() + SECONDS
            try:
                while time.monotonic() < deadline:
                    time.sleep(0.01)
            except TimeLimitExceeded:
                self.done.append("late")
                raise

        self.actor(self.done.append, actor_name="old", max_age=1).send_with_options(args=("old",), delay=50)
        self.actor(sleeps, time_limit=100, max_retries=0).send()
        self.broker.emit_after("process_boot")
        self.work()
        self.join()
        self.assertEqual(self.done, ["late"])
        self.assertEqual(self.counts(), (0, 0, 2))

    def test_pipelinesAndGroups(self) -> None:
        """A result is the next message's argument; the completion of a group is called at its end."""
        self.broker.add_middleware(GroupCallbacks(StubBackend()))
        double = self.actor(lambda number: 2 * number, actor_name="double")
        self.actor(self.done.append, actor_name="keep")
        keep = self.broker.get_actor("keep")
        dramatiq.pipeline([double.message(4), double.message(), keep.message()], broker=self.broker).run()
        group = dramatiq.group([double.message(1), double.message(2)], broker=self.broker)
        group.add_completion_callback(keep.message("all"))
        group.run()
        self.work()
        self.join()
        self.assertEqual(sorted(map(str, self.done)), ["16", "all"])

    def test_prefetchedOnesReturnAtShutdown(self) -> None:
        """At once; the running one ends first."""
        began, goesOn = threading.Event(), threading.Event()

        def waits(number: int) -> None:
            began.set()
            goesOn.wait(SECONDS)
            self.done.append(number)

        actor = self.actor(waits)
        for number in range(3):
            actor.send(number)
        worker = dramatiq.Worker(self.broker, worker_timeout=50, worker_threads=1)
        worker.start()
        began.wait(SECONDS)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        goesOn.set()
        stopping.join(SECONDS)
        self.assertEqual(self.counts(), (3 - len(self.done), 0, 0))
        self.assertGreater(len(self.done), 0)

    def test_workersConsumeAfterARestartOfTheBroker(self) -> None:
        """Messages that were prefetched before are not run twice: the worker skips them, since they are delivered
        again.
        """
        self.patch(dramatiq.worker, "CONSUMER_RESTART_DELAY_SECS", 0.1)
        began, goesOn = threading.Event(), threading.Event()

        def waits(number: int) -> None:
            began.set()
            goesOn.wait(SECONDS)
            self.done.append(number)

        actor = self.actor(waits, time_limit=PATIENCE)
        for number in range(8):
            actor.send(number)
        port = self.process.port()
        self.work(threads=4)
        began.wait(SECONDS)
        self.process.stop(signal.SIGKILL)
        listen = f"tcp:{port}:interface=127.0.0.1"
        with BrokerProcess("--journal", self.folder, "--listen", listen):
            goesOn.set()
            self.join()
            runs = sorted(self.done)
            self.assertEqual(sorted(set(runs)), list(range(8)))
            self.assertLessEqual(len(runs), 12)  # the four that ran when the broker was killed may run again


class PermissionTests(DramatiqCase):
    """A broker that grants what docs/guides/dramatiq.rst names."""

    def options(self) -> tuple[str, ...]:
        return granting(Path(self.mktemp()))

    def test_enoughForAllTheyDo(self) -> None:
        """A program that sends, and a worker whose messages are retried; others are refused."""
        web, worker = (self.newBroker(credentials=basic(each)) for each in ("web", "worker"))
        dramatiq.actor(print, actor_name="x", broker=web)
        web.get_actor("x").send()
        web.get_actor("x").send_with_options(delay=1)
        worker.declare_queue("default")
        consumer: Any = worker.consume("default", 2, PATIENCE)
        self.addCleanup(consumer.close)
        for message in (next(consumer), next(consumer)):
            worker.enqueue(message._message, delay=10)
            consumer.nack(message)
        self.assertRaises(errors.ConnectionFailed, web.consume, "default")
        self.assertRaises(errors.BrokerError, web.enqueue, web.get_actor("x").message().copy(queue_name="other"))
        self.assertRaises(errors.ConnectionFailed, self.newBroker(credentials=basic("nobody")).enqueue, message)


class LostMessageTests(DramatiqCase):
    """Messages whose connection has ended before they have begun."""

    def test_skipped(self) -> None:
        """The middleware sees no failure."""
        seen: list[str] = []

        class Watch(Middleware):
            def after_skip_message(self, broker: Any, message: Any) -> None:
                seen.append("skipped")

            def after_process_message(self, broker: Any, message: Any, **more: Any) -> None:
                seen.append("run")

        self.broker.add_middleware(Watch())
        self.actor(print, actor_name="x").send()
        worker = dramatiq.Worker(self.broker, worker_threads=1)
        consumer = self.consumer()
        message = next(consumer)
        self.assertIsInstance(message, FleximqMessage)
        consumer.close()
        thread = dramatiq.worker.WorkerThread(
            broker=self.broker, consumers={"default": _Settled()}, work_queue=worker.work_queue, worker_timeout=1
        )
        worker.work_queue.put(dramatiq.worker._WorkQueueItem(0, message))
        worker.work_queue.get()
        thread.process_message(message)
        self.assertEqual(seen, ["skipped"])


class _Settled:
    """A consumer's thread that settles nothing."""

    def post_process_message(self, message: Any) -> None:
        """Nothing."""
