"""The broker and the schedule source of taskiq, with a broker and with receivers in this process."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.client.errors import NotSettled, PublishFailed, SubscribeFailed
from tests.broker_process import BrokerProcess
from tests.integrations.permissions import basic, granting

_MISSING = "" if find_spec("taskiq") else "needs the extra taskiq"
if not _MISSING:
    from taskiq import BrokerMessage, ScheduledTask, TaskiqScheduler
    from taskiq.acks import AcknowledgeType
    from taskiq.exceptions import SendTaskError
    from taskiq.receiver import Receiver
    from taskiq.scheduler.created_schedule import CreatedSchedule

    from fleximq.integrations.taskiq import FleximqBroker, FleximqScheduleSource

#: Seconds that something may take.
PATIENCE = 60.0


def message(name: str = "x", data: bytes = b"{}", **labels: Any) -> "BrokerMessage":
    """Return a message as taskiq makes them: its labels are texts."""
    return BrokerMessage(
        task_id=name, task_name=name, message=data, labels={key: str(each) for key, each in labels.items()}
    )


class TaskiqCase(SynchronousTestCase):
    """A broker with a journal, and one of taskiq."""

    if _MISSING:
        skip = _MISSING

    def setUp(self) -> None:
        self.folder = os.path.abspath(self.mktemp())
        self.process = BrokerProcess("--journal", self.folder, *self.options())
        self.process.__enter__()
        self.addCleanup(self.process.stop)
        self.url = f"tcp://127.0.0.1:{self.process.port()}"
        self.broker = FleximqBroker(self.url)

    def options(self) -> tuple[str, ...]:
        """Return further options of the broker."""
        return ()

    def again(self) -> BrokerProcess:
        """Return another broker with the same journal and port."""
        listen = f"tcp:{self.url.rpartition(':')[2]}:interface=127.0.0.1"
        return BrokerProcess("--journal", self.folder, "--listen", listen).__enter__()

    def run_(self, scene: Callable[[], Awaitable[None]]) -> None:
        """Run a scene between the startup and the shutdown of the broker."""

        async def whole() -> None:
            async with asyncio.timeout(PATIENCE), self.broker:
                await scene()

        asyncio.run(whole())

    async def take(self, number: int, broker: Any = None) -> list[Any]:
        """Return so many messages of a listener that then ends."""
        listening = (broker or self.broker).listen()
        found = [await anext(listening) for _ in range(number)]
        await listening.aclose()
        return found

    def counts(self, queue: str = "taskiq") -> tuple[int, int]:
        """Return the number of messages of a queue that wait, and that are unsettled."""
        with connect(self.url) as client:
            rows = {each["queue"]: (each["messages"], each["in_flight"]) for each in client.queues()}
        return rows.get(queue, (0, 0))


class KickTests(TaskiqCase):
    """Tasks on their way to the queue."""

    def test_isStoredWhenItReturns(self) -> None:
        """A broker that is killed then has it."""

        async def scene() -> None:
            await self.broker.kick(message())
            self.process.stop(signal.SIGKILL)

        self.run_(scene)
        with BrokerProcess("--journal", self.folder) as again:
            self.url = f"tcp://127.0.0.1:{again.port()}"
            self.assertEqual(self.counts(), (1, 0))

    def test_thousandsAtOnceAreSentTogether(self) -> None:
        """With few flushes."""
        flushes = []

        async def scene() -> None:
            flush = self.broker.client.flush

            async def counted() -> None:
                flushes.append(True)
                await flush()

            self.patch(self.broker.client, "flush", counted)
            await asyncio.gather(*(self.broker.kick(message()) for _ in range(2000)))

        self.run_(scene)
        self.assertEqual((self.counts(), len(flushes)), ((2000, 0), 1))

    def test_labelsChooseQueueAndPriority(self) -> None:
        """Higher priorities are first."""

        async def scene() -> None:
            for priority in (1, 9, 5):
                await self.broker.kick(message(data=b"%d" % priority, priority=priority, queue_name="other"))
            other = FleximqBroker(self.url, queue_name="other")
            async with other:
                self.assertEqual([each.data for each in await self.take(3, other)], [b"9", b"5", b"1"])

        self.run_(scene)

    def test_aDelayIsAScheduleOfTheBroker(self) -> None:
        """No worker has the task before."""

        async def scene() -> None:
            before = datetime.now(UTC)
            await self.broker.kick(message(delay=0.5))
            [schedule] = await self.broker.client.schedules()
            self.assertTrue(schedule["kept"])
            await self.take(1)
            self.assertGreaterEqual(datetime.now(UTC) - before, timedelta(seconds=0.5))

        self.run_(scene)

    def test_expiredTasksAreDropped(self) -> None:
        """If no worker has taken them."""

        async def scene() -> None:
            await self.broker.kick(message(data=b"old", expires=0.001))
            await asyncio.sleep(0.05)
            await self.broker.kick(message(data=b"new"))
            [found] = await self.take(1)
            self.assertEqual(found.data, b"new")

        self.run_(scene)

    def test_wrongLabelsFailTheirTaskAlone(self) -> None:
        """As a negative time to live."""

        async def scene() -> None:
            kicks = (self.broker.kick(message(expires=each)) for each in (60, -1, "soon"))
            found = await asyncio.gather(*kicks, return_exceptions=True)
            self.assertEqual([type(each) for each in found], [type(None), ValueError, ValueError])

        self.run_(scene)
        self.assertEqual(self.counts(), (1, 0))

    def test_refusedOnesFail(self) -> None:
        """Those of other queues do not."""

        async def scene() -> None:
            await self.broker.client.define_queue("full", max_messages=1, when_full="refuse")
            names = ["full", "full", "taskiq", "taskiq"]
            kicks = (self.broker.kick(message(queue_name=each)) for each in names)
            found = await asyncio.gather(*kicks, return_exceptions=True)
            self.assertEqual([type(each) for each in found], [PublishFailed, PublishFailed, type(None), type(None)])

        self.run_(scene)
        self.assertEqual(self.counts(), (2, 0))

    def test_brokersThatWereNotStartedSaySo(self) -> None:
        """As an error of taskiq."""

        @self.broker.task
        async def x() -> None: ...

        async def scene() -> None:
            with self.assertRaises(SendTaskError) as caught:
                await x.kiq()
            self.assertIn("startup", str(caught.exception.__cause__))

        asyncio.run(scene())

    def test_waitsForABrokerThatRestarts(self) -> None:
        """The connection is made again."""

        async def scene() -> None:
            await self.broker.kick(message())
            self.process.stop(signal.SIGKILL)
            while self.broker.client.state.value == "joined":
                await asyncio.sleep(0)
            kick = asyncio.create_task(self.broker.kick(message()))
            with await asyncio.to_thread(self.again):
                await kick
                self.assertEqual(await asyncio.to_thread(self.counts), (2, 0))

        self.run_(scene)


class ListenTests(TaskiqCase):
    """Deliveries, without a receiver."""

    def test_acknowledgedOnesAreDone(self) -> None:
        """Others return at shutdown, at once."""

        async def scene() -> None:
            for data in (b"a", b"b"):
                await self.broker.kick(message(data=data))
            first, second = await self.take(2)
            self.assertEqual((first.data, second.data), (b"a", b"b"))
            first.ack()

        self.run_(scene)
        self.assertEqual(self.counts(), (1, 0))

    def test_unreadOnesReturnWhenTheListenerEnds(self) -> None:
        """Those that were read stay with the worker until they are acknowledged."""

        async def scene() -> None:
            await asyncio.gather(*(self.broker.kick(message()) for _ in range(5)))
            [found] = await self.take(1)
            await self.broker._consuming[0].flush()
            self.assertEqual(await asyncio.to_thread(self.counts), (4, 1))
            found.ack()
            await self.broker._consuming[0].flush()
            self.assertEqual(await asyncio.to_thread(self.counts), (4, 0))
            await self.take(4)

        self.run_(scene)

    def test_atMostSoManyAreUnsettled(self) -> None:
        """The others are for other workers."""
        self.broker = FleximqBroker(self.url, max_unsettled=2)

        async def scene() -> None:
            await asyncio.gather(*(self.broker.kick(message()) for _ in range(5)))
            listening = self.broker.listen()
            await anext(listening)
            self.assertEqual(await asyncio.to_thread(self.counts), (3, 2))
            await listening.aclose()

        self.run_(scene)

    def test_goesOnAfterALostConnection(self) -> None:
        """A task of the old connection cannot be acknowledged: another worker may have it."""

        async def scene() -> None:
            await self.broker.kick(message(data=b"again"))
            listening = self.broker.listen()
            lost = await anext(listening)
            self.process.stop(signal.SIGKILL)
            with await asyncio.to_thread(self.again):
                again = await anext(listening)
                self.assertEqual(again.data, b"again")
                self.assertRaises(NotSettled, lost.ack)
                again.ack()
                await listening.aclose()
                await self.broker._consuming[0].flush()
                self.assertEqual(await asyncio.to_thread(self.counts), (0, 0))

        self.run_(scene)

    def test_restartsMakeNoDeadLetters(self) -> None:
        """A worker that restarts has deliveries that it has not run."""

        async def scene() -> None:
            await self.broker.kick(message())
            for _ in range(25):
                async with FleximqBroker(self.url) as other:
                    self.assertIsNone(other)
                other = FleximqBroker(self.url)
                async with other:
                    await self.take(1, other)

        self.run_(scene)
        self.assertEqual(self.counts(), (1, 0))


class PermissionTests(TaskiqCase):
    """A broker that grants what docs/guides/taskiq.rst names."""

    def options(self) -> tuple[str, ...]:
        return granting(Path(self.mktemp()))

    def test_enoughForAllTheyDo(self) -> None:
        """A program that sends and has a schedule, and a worker whose tasks are retried; others are refused."""
        web, worker = (FleximqBroker(self.url, "default", credentials=basic(each)) for each in ("web", "worker"))

        async def scene() -> None:
            async with asyncio.timeout(PATIENCE), web, worker:
                source, task = FleximqScheduleSource(web), {"task_name": "x", "labels": {}, "args": [], "kwargs": {}}
                await source.add_schedule(ScheduledTask(**task, interval=1, schedule_id="s"))
                await web.kick(message(delay=0.01))
                for found in await self.take(2, worker):
                    found.ack()
                await worker.kick(message())
                await source.delete_schedule("s")
                with self.assertRaises(SubscribeFailed):
                    await self.take(1, web)
                with self.assertRaises(PublishFailed):
                    await web.kick(message(queue_name="other"))

        asyncio.run(scene())


class ReceiverCase(TaskiqCase):
    """With taskiq's receiver, as its worker has it."""

    def setUp(self) -> None:
        super().setUp()
        self.done: list[Any] = []
        self.finish = asyncio.Event()

    async def receive(self, until: Callable[[], Any], **options: Any) -> None:
        """Run a receiver until something holds, and end it in order."""
        receiver = Receiver(self.broker, run_startup=False, max_async_tasks=10, **options)
        self.finish.clear()
        listening = asyncio.create_task(receiver.listen(self.finish))
        while not until() and not listening.done():
            await asyncio.sleep(0.01)
        self.finish.set()
        await listening


class ReceiverTests(ReceiverCase):
    """Tasks that run."""

    def test_tasksRunAndAreAcknowledged(self) -> None:
        """With each way to acknowledge."""

        @self.broker.task
        async def keep(value: int) -> None:
            self.done.append(value)

        async def scene() -> None:
            for number, each in enumerate(AcknowledgeType):
                await keep.kicker().with_labels(ack_type=each.value).kiq(number)
            await self.receive(lambda: len(self.done) == 4)

        self.run_(scene)
        self.assertEqual(sorted(self.done), [0, 1, 2, 3])
        self.assertEqual(self.counts(), (1, 0))  # the one that had to acknowledge itself

    def test_whenReceivedIsBeforeTheTask(self) -> None:
        """A task that is killed then is not run again."""

        @self.broker.task(ack_type="when_received")
        async def look() -> None:
            await self.broker._consuming[0].flush()
            self.done.append(await asyncio.to_thread(self.counts))

        async def scene() -> None:
            await look.kiq()
            await self.receive(lambda: self.done)

        self.run_(scene)
        self.assertEqual(self.done, [(0, 0)])

    def test_messagesThatAreNoneOfTaskiqAreDropped(self) -> None:
        """Those of other programs do not end the worker."""

        @self.broker.task
        async def keep() -> None:
            self.done.append(1)

        async def scene() -> None:
            with connect(self.url) as client:
                client.enqueue("taskiq", {"to": "anna"})
                client.enqueue("taskiq", 5)
                client.repeat("r", "taskiq", b"", every=3600, queue=True)
            await keep.kiq()
            await self.receive(lambda: self.done)

        self.run_(scene)
        self.assertEqual(self.counts(), (0, 0))

    def test_runningTasksEndBeforeShutdown(self) -> None:
        """And are acknowledged."""
        begun, goesOn = asyncio.Event(), asyncio.Event()

        @self.broker.task
        async def wait() -> None:
            begun.set()
            await goesOn.wait()
            self.done.append(1)

        async def scene() -> None:
            await wait.kiq()

            def stopping() -> bool:
                if begun.is_set():
                    asyncio.get_running_loop().call_later(0.05, goesOn.set)
                return begun.is_set()

            await self.receive(stopping)

        self.run_(scene)
        self.assertEqual((self.done, self.counts()), ([1], (0, 0)))

    def test_aWorkerEndsWhenItMayNotComeBack(self) -> None:
        """So that its manager starts another one."""

        async def scene() -> None:
            receiver = Receiver(self.broker, run_startup=False, max_async_tasks=1)
            listening = asyncio.create_task(receiver.listen(self.finish))
            while not await asyncio.to_thread(self.hasConsumers):
                await asyncio.sleep(0.01)
            with connect(self.url) as client:
                client.ask("/queue/delete", {"queue": "taskiq"})
            with self.assertRaises(BaseExceptionGroup):
                await listening

        self.run_(scene)

    def test_signalsEndAnIdleWorker(self) -> None:
        """Taskiq's handlers set an event, but do not wake the event loop."""
        self.broker = FleximqBroker(self.url, keep_alive=None)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: self.finish.set()))

        async def scene() -> None:
            receiver = Receiver(self.broker, run_startup=False, max_async_tasks=1)
            listening = asyncio.create_task(receiver.listen(self.finish))
            while not await asyncio.to_thread(self.hasConsumers):
                await asyncio.sleep(0.01)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            await listening

        self.run_(scene)

    def hasConsumers(self) -> bool:
        """Return whether somebody consumes from a queue."""
        with connect(self.url) as client:
            return any(each["consumers"] for each in client.queues())


class ScheduleTests(ReceiverCase):
    """Schedules that the broker carries out."""

    def setUp(self) -> None:
        super().setUp()
        self.source = FleximqScheduleSource(self.broker)

        @self.broker.task
        async def keep(value: int, context: Any = None) -> None:
            self.done.append(value)

        self.keep = keep

    def test_recurringTasksRunWithIdsOfTheirOwn(self) -> None:
        """Without a scheduler; the schedule is listed, and can be deleted."""
        ids: list[str] = []

        async def scene() -> None:
            created: CreatedSchedule[Any] = await self.keep.schedule_by_interval(self.source, 1, 7)
            [listed] = await self.source.get_schedules()
            self.assertEqual(
                (listed.schedule_id, listed.task_name, listed.interval),
                (created.schedule_id, self.keep.task_name, timedelta(seconds=1)),
            )
            for each in await self.take(2):
                ids.append(self.broker.formatter.loads(each.data).task_id)
                each.ack()
            await self.receive(lambda: self.done)
            await created.unschedule()
            self.assertEqual(await self.source.get_schedules(), [])

        self.run_(scene)
        self.assertEqual(self.done[0], 7)
        self.assertEqual(len(set(ids)), 2)
        self.assertTrue(all(ids))

    def test_cronHasATimeZone(self) -> None:
        """A duration as offset is refused."""

        async def scene() -> None:
            task = {"task_name": "x", "labels": {}, "args": [], "kwargs": {}, "cron": "0 3 * * *"}
            await self.source.add_schedule(ScheduledTask(**task, cron_offset="Europe/Rome", schedule_id="nightly"))
            [listed] = await self.source.get_schedules()
            self.assertEqual((listed.cron, listed.cron_offset), ("0 3 * * *", "Europe/Rome"))
            with self.assertRaises(ValueError):
                await self.source.add_schedule(ScheduledTask(**task, cron_offset=timedelta(hours=1)))
            await self.source.delete_schedule("nightly")
            await self.source.delete_schedule("nightly")
            self.assertEqual(await self.source.get_schedules(), [])

        self.run_(scene)

    def test_timesAreSchedulesToo(self) -> None:
        """By the broker's number one can be deleted."""

        async def scene() -> None:
            for seconds in (0.2, 3600):
                created = await self.keep.schedule_by_time(
                    self.source, datetime.now(UTC) + timedelta(seconds=seconds), seconds
                )
            await created.unschedule()
            self.assertEqual(len(await self.broker.client.schedules()), 1)
            await self.receive(lambda: self.done)

        self.run_(scene)
        self.assertEqual(self.done, [0.2])

    def test_taskiqsSchedulerSendsNoneOfThem(self) -> None:
        """The broker does."""

        async def scene() -> None:
            await self.keep.schedule_by_interval(self.source, 3600, 1)
            [listed] = await self.source.get_schedules()
            await TaskiqScheduler(self.broker, [self.source]).on_ready(self.source, listed)

        self.run_(scene)
        self.assertEqual(self.counts(), (0, 0))
