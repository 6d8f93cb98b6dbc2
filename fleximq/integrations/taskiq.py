"""The broker and the schedule source of taskiq: ``FleximqBroker("tcp://localhost:7890")`` in place of another broker.

A task with the label ``delay`` is a schedule of FlexiMQ, as are all tasks of :class:`FleximqScheduleSource`: no process
of taskiq's scheduler is needed for them. A delivery belongs to its worker as long as the connection lasts. See
docs/guides/taskiq.rst for the differences from other brokers.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, timedelta
from ssl import SSLContext
from typing import Any, Literal, NamedTuple, Unpack

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage, ScheduledTask, ScheduleSource, TaskiqMessage
    from taskiq.exceptions import ScheduledTaskCancelledError
except ImportError as error:
    raise ImportError('the broker of taskiq needs taskiq: pip install "fleximq[taskiq]"') from error

from fleximq.client.asyncio import Client, connect
from fleximq.client.errors import ClientError, ConnectionLost, PublishFailed
from fleximq.client.jobs import Job
from fleximq.client.keywords import ConnectOptions
from fleximq.client.settings import State, Tls
from fleximq.integrations.definition import DEFINITION, priorityOf, unlessDefined

#: Unsettled deliveries of a worker; ``taskiq worker`` runs as many tasks at once by default.
_UNSETTLED = 100
#: An idle worker wakes so often: the handlers of signals of ``taskiq worker`` do not wake the event loop.
_WAKE_SECONDS = 1.0
#: The first words of the names of recurring schedules.
_SCHEDULES = "taskiq/"


class _Kick(NamedTuple):
    """A message that waits to be sent, and the result of that."""

    queue: str
    payload: bytes
    options: Mapping[str, Any]
    stored: asyncio.Future[None]


class FleximqBroker(AsyncBroker):
    """A broker of taskiq.

    Labels of a task: ``queue_name``, another queue than the broker's; ``delay``, seconds; ``priority``, 0 to 9, where 9
    is first; ``expires``, seconds after which it is dropped if no worker has it.

    :param url: and ``options``: as :func:`fleximq.client.asyncio.connect` has them.
    :param queue_name: the queue of the tasks, and from which a worker consumes.
    :param max_unsettled: the most unsettled deliveries of a worker process, so the most tasks that it runs at once.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "tcp://localhost:7890",
        queue_name: str = "taskiq",
        *,
        max_unsettled: int = _UNSETTLED,
        **options: Unpack[ConnectOptions[Tls | SSLContext]],
    ) -> None:
        super().__init__()
        self.queue_name = queue_name
        self._url = url
        self._maxUnsettled = max_unsettled
        self._options = options
        self._client: Client | None = None
        #: Other connections: one that sends a message that is too large is ended by the broker.
        self._consuming: list[Client] = []
        #: The queues that a connection has defined.
        self._defined: set[tuple[int, str]] = set()
        self._kicks: list[_Kick] = []
        self._sender: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """The client that sends tasks, between startup and shutdown; raises ConnectionLost otherwise."""
        if self._client is None:
            raise ConnectionLost("the broker of taskiq is not started: await broker.startup()")
        return self._client

    async def startup(self) -> None:
        """Connect."""
        self._client = await connect(self._url, **self._options)
        await super().startup()

    async def shutdown(self) -> None:
        """Return unsettled deliveries, and disconnect."""
        await super().shutdown()
        clients, self._consuming = self._consuming, []
        if self._client is not None:
            clients.append(self._client)
            self._client = None
        for client in clients:
            with suppress(ClientError, TimeoutError):
                await client.close()

    # -- tasks -------------------------------------------------------------------------------------

    def _placeOf(self, labels: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the queue for a task with these labels, and its ``priority`` and ``expires``.

        :raises ValueError: a label is no number.
        """
        options: dict[str, Any] = {}
        if labels.get("priority") is not None:
            options["priority"] = priorityOf(labels["priority"])
        if labels.get("expires") is not None:
            options["expires"] = float(labels["expires"])
        return str(labels.get("queue_name") or self.queue_name), options

    async def kick(self, message: BrokerMessage) -> None:
        """Enqueue a task, and return when the broker has it: with a journal, on disk. Tasks that are kicked at the same
        time are sent together.

        :raises PublishFailed: the broker refused it.
        :raises ConnectionLost: the connection was lost; the task may be enqueued.
        :raises TimeoutError: the broker is away; the task may be enqueued.
        """
        queue, options = self._placeOf(message.labels)
        delay = float(message.labels.get("delay") or 0)
        if delay > 0:
            options["delay"] = delay
        kick = _Kick(queue, message.message, options, asyncio.get_running_loop().create_future())
        self._kicks.append(kick)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        await kick.stored

    async def _send(self) -> None:
        """Send all waiting messages, and wait until they are stored, as long as there are any. One flush at a time: its
        refusals and losses are those of these messages.
        """
        while self._kicks:
            kicks, self._kicks = self._kicks, []
            try:
                await self._sendTogether(kicks)
            except Exception as error:
                for each in kicks:
                    _fail(each, error)
        self._sender = None

    async def _sendTogether(self, kicks: list[_Kick]) -> None:
        client = self.client
        refused: set[str] = set()
        failure: PublishFailed | None = None
        for kick in kicks:
            try:
                await self._define(client, kick.queue)
                await client.enqueue(kick.queue, kick.payload, **kick.options)
            except ConnectionLost:
                raise
            except (ClientError, ValueError, TypeError) as error:
                _fail(kick, error)
        try:
            await client.flush()
        except PublishFailed as error:
            failure, refused = error, {each.path for each in (error, *error.others)}
        for kick in kicks:
            if failure is not None and (
                kick.queue in refused or "" in refused or failure.count > len(failure.others) + 1
            ):
                _fail(kick, failure)
            elif not kick.stored.done():
                kick.stored.set_result(None)

    async def _define(self, client: Client, queue: str) -> None:
        """Define a queue, unless an operator or another program has, or only workers may."""
        if (client.id, queue) not in self._defined:
            with unlessDefined():
                await client.define_queue(queue, **DEFINITION)
            self._defined.add((client.id, queue))

    # -- deliveries --------------------------------------------------------------------------------

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield tasks; they are acknowledged when taskiq says so. Goes on after a lost connection.

        :raises ConnectionLost: the client does not reconnect any more, so that the worker ends.
        :raises SubscribeFailed: the worker may not consume from the queue.
        """
        client = await connect(self._url, **self._options)
        self._consuming.append(client)
        await self._define(client, self.queue_name)
        jobs = await client.consume(self.queue_name, self._maxUnsettled)
        try:
            while client.state is not State.CLOSED:
                job = await jobs.take(_WAKE_SECONDS)
                if job is not None:
                    yield AckableMessage(data=self._dataOf(job), ack=job.ack)
        finally:
            jobs.halt()  # not closed: tasks that run are acknowledged later

    def _dataOf(self, job: Job) -> bytes:
        """Return the message of a delivery. A run of a recurring schedule gets an id of its own, the same if it is
        delivered again. One that is no message of taskiq is returned as it is: taskiq logs and drops it.
        """
        try:
            data = job.value
            about = job.header.get("schedule")
            if isinstance(data, bytes) and isinstance(about, dict) and "name" in about:
                message = self.formatter.loads(data)
                if not message.task_id:
                    message.task_id = f"{message.labels['schedule_id']}-{about['due']}"
                    data = self.formatter.dumps(message).message
        except Exception:
            return job.payload
        return data if isinstance(data, bytes) else job.payload


def _fail(kick: _Kick, error: Exception) -> None:
    if not kick.stored.done():
        kick.stored.set_exception(error)


class FleximqScheduleSource(ScheduleSource):
    """Schedules that the broker carries out: it puts each task into its queue at its time.

    A process of taskiq's scheduler may have this source beside others; it sends none of its tasks.

    :param catch_up: which runs of recurring schedules are made up for after the broker was down.
    """

    def __init__(self, broker: FleximqBroker, catch_up: Literal["none", "last", "all"] = "none") -> None:
        self._broker = broker
        self._catchUp: Literal["none", "last", "all"] = catch_up

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Add a schedule, which is on disk then if the broker has a journal. One with a ``time`` gets the broker's
        number as its ``schedule_id``.

        :raises ValueError: a label is no number, or ``cron_offset`` is a duration: name a time zone.
        :raises RequestFailed: the broker refused it.
        """
        client = self._broker.client
        labels = {**schedule.labels, "schedule_id": schedule.schedule_id}
        queue, options = self._broker._placeOf(labels)
        await self._broker._define(client, queue)
        # Each run of a recurring schedule gets an id when it is delivered.
        taskId = schedule.task_id or ("" if schedule.time is None else self._broker.id_generator())
        message = TaskiqMessage(
            task_id=taskId, task_name=schedule.task_name, labels=labels, args=schedule.args, kwargs=schedule.kwargs
        )
        payload = self._broker.formatter.dumps(message).message
        headers = {"priority": options["priority"]} if "priority" in options else {}
        if "expires" in options:
            headers["expires_in"] = int(options["expires"] * 1000)
        if schedule.time is not None:
            at = schedule.time if schedule.time.tzinfo else schedule.time.replace(tzinfo=UTC)
            schedule.schedule_id = str(await client.schedule(queue, payload, at=at, queue=True, headers=headers))
            return
        if isinstance(schedule.cron_offset, timedelta):
            raise ValueError("cron_offset is a duration; the broker needs the name of a time zone")
        await client.repeat(
            f"{_SCHEDULES}{schedule.schedule_id}/{schedule.task_name}",
            queue,
            payload,
            every=schedule.interval,
            cron=schedule.cron,
            timezone=schedule.cron_offset,
            catch_up=self._catchUp,
            queue=True,
            headers=headers,
        )

    async def delete_schedule(self, schedule_id: str) -> None:
        """Remove a schedule; one that has run or is unknown is ignored."""
        client = self._broker.client
        for each in await client.schedules(prefix=f"{_SCHEDULES}{schedule_id}/"):
            await client.cancel_schedule(each["name"])
            return
        if schedule_id.isdecimal():
            await client.cancel_schedule(int(schedule_id))

    async def get_schedules(self) -> list[ScheduledTask]:
        """Return the recurring schedules, without the arguments of their tasks, which only the broker has."""
        found = []
        for each in await self._broker.client.schedules(prefix=_SCHEDULES):
            _, scheduleId, name = each["name"].split("/", 2)
            times = {"cron": each["cron"], "cron_offset": each["timezone"] if each["cron"] else None}
            interval = None if each["every"] is None else timedelta(milliseconds=each["every"])
            task = {"task_name": name, "schedule_id": scheduleId, "labels": {}, "args": [], "kwargs": {}}
            found.append(ScheduledTask(**task, **times, interval=interval))
        return found

    def pre_send(self, task: ScheduledTask) -> None:
        """Refuse to have a task sent by taskiq's scheduler."""
        raise ScheduledTaskCancelledError()


__all__ = ["FleximqBroker", "FleximqScheduleSource"]
