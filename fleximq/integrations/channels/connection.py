"""The connection of one process to the broker, in a thread of its own that all event loops of the process share.

So a call from an event loop that soon ends, such as one of ``async_to_sync``, needs no connection of its own, and the
channels and groups of the process outlive it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread, current_thread
from typing import Any, TypeVar

from fleximq.client.asyncio import Client, connect
from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConnectionLost, RequestFailed
from fleximq.client.events import Request
from fleximq.client.jobs import Job
from fleximq.client.settings import State
from fleximq.integrations.channels.groups import Groups
from fleximq.integrations.channels.mailboxes import Mailboxes
from fleximq.integrations.channels.named_channels import NamedChannels, Reception
from fleximq.status import Status

_log = logging.getLogger(__name__)
#: The path of requests to a process about its channels.
_PATH = "/channels"
#: Answers to a request to a process that has ended.
_GONE = frozenset({Status.CLIENT_NOT_FOUND, Status.BAD_GATEWAY, Status.GATEWAY_TIMEOUT})
#: Seconds after the own return to a broker in which other processes may not have returned yet, and between attempts
#: to reach them.
_RETURN, _PAUSE = 10.0, 0.1
#: Delays between attempts to reconnect: a web application is used meanwhile.
_RECONNECT = Backoff(first=0.1, most=2.0)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings of a layer. ``capacityOf`` returns the maximum number of unread messages of a channel."""

    prefix: str
    expiry: float
    group_expiry: float
    capacityOf: Callable[[str], int]

    def topicOf(self, group: str) -> str:
        """Return the topic of a group."""
        return f"{self.prefix}/group/{group}"

    def queueOf(self, channel: str) -> str:
        """Return the queue of a channel that is not one of a single process."""
        return f"{self.prefix}/channel/{channel}"


class _Receiving:
    """One call of :meth:`Connection.receive`."""

    task: asyncio.Task[Any] | None = None
    isAbandoned = False


class Connection:
    """The connection of one process. ``name`` is that of its client; other processes send their requests to it."""

    def __init__(
        self, urls: str | Sequence[str], options: Mapping[str, Any], rules: Rules, name: str, mailboxes: Mailboxes
    ) -> None:
        self._urls = urls
        self._options = {"reconnect": _RECONNECT, **options, "name": name, "on_state": self._stateChanged}
        self._rules = rules
        self._mailboxes = mailboxes
        self._groups = Groups(self, rules.topicOf, self._put, rules.group_expiry)
        self._named = NamedChannels(self, rules.queueOf, rules.expiry, rules.group_expiry)
        self._joining: asyncio.Task[Client] | None = None
        self._isAway = False
        self._returnEnds = 0.0
        self._restoring: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="fleximq-channels", daemon=True)
        self._thread.start()

    # -- for all event loops -----------------------------------------------------------------------

    async def send(self, process: str | None, channel: str, payload: bytes) -> bool:
        """Send a message to a channel, of the process of this name or None; False if it is full."""
        if process is not None:
            return await self._call(self._request(process, {"send": channel, "message": payload}))
        return await self._call(self._named.send(channel, payload, self._rules.capacityOf(channel)))

    async def receive(self, channel: str) -> bytes:
        """Return the next message of a named channel; a cancelled call returns it to the channel."""
        receiving = _Receiving()

        async def take() -> tuple[Reception, Job] | None:
            if receiving.isAbandoned:
                return None
            receiving.task = asyncio.current_task()
            return await self._named.take(channel, self._rules.capacityOf(channel))

        def abandon(future: "Future[tuple[Reception, Job] | None]") -> None:
            receiving.isAbandoned = True
            if receiving.task is not None:
                receiving.task.cancel()
            future.add_done_callback(giveBack)

        def giveBack(future: "Future[tuple[Reception, Job] | None]") -> None:
            if not future.cancelled() and not future.exception() and (found := future.result()) is not None:
                self._named.settle(channel, *found, isReceived=False)

        future = asyncio.run_coroutine_threadsafe(take(), self._loop)
        try:
            # Shielded, since a future that is cancelled loses a result that arrives at the same time.
            found = await asyncio.shield(asyncio.wrap_future(future))
            assert found is not None
        except BaseException:
            self._loop.call_soon_threadsafe(abandon, future)
            raise
        reception, job = found
        self._loop.call_soon_threadsafe(self._named.settle, channel, reception, job, True)
        return bytes(job.delivery.payload)

    async def connected(self) -> None:
        """Connect unless that is done; raises ConnectionLost or JoinRefused."""
        if self._ready() is None:
            await self._call(self.client())

    async def add(self, group: str, channel: str, process: str | None, isOwn: bool) -> None:
        """Add a channel, of the process of this name or None, to a group."""
        if isOwn:
            await self._call(self._groups.add(group, channel))
        elif process is not None:
            await self._call(self._request(process, {"add": channel, "group": group}))
        else:
            await self._call(self._named.bind(channel, self._rules.topicOf(group), self._rules.capacityOf(channel)))

    async def discard(self, group: str, channel: str, process: str | None, isOwn: bool) -> None:
        """Remove a channel from a group."""
        if isOwn:
            await self._call(self._discard(group, channel))
        elif process is not None:
            await self._call(self._request(process, {"discard": channel, "group": group}))
        else:
            await self._call(self._named.unbind(channel, self._rules.topicOf(group)))

    async def sendGroup(self, group: str, payload: Any) -> None:
        """Send a message to a group, and return when the broker has it."""
        await self._call(self._publish(self._rules.topicOf(group), payload))

    async def flush(self) -> None:
        """Delete all named channels, and remove all groups of this process."""
        await self._call(self._flush())

    def stop(self) -> None:
        """Disconnect, and end the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).add_done_callback(self._ended)
        if current_thread() is not self._thread:  # as when a layer is garbage that this thread has found
            self._thread.join()

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _ended(self, future: "Future[None]") -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def client(self) -> Client:
        """Return the client, which connects if there is none; raises ConnectionLost or JoinRefused."""
        client = self._ready()
        if client is not None:
            return client
        if self._joining is None or self._joining.done():
            self._joining = asyncio.create_task(self._join())
        return await asyncio.shield(self._joining)

    def _ready(self) -> Client | None:
        """Return the client if there is one and it has not ended; in any thread."""
        joining = self._joining
        if joining is None or not joining.done() or joining.cancelled() or joining.exception() is not None:
            return None
        return None if joining.result().state is State.CLOSED else joining.result()

    async def repeat(self, work: Callable[[Client], Any]) -> Any:
        """Return the result of an idempotent operation; it is repeated after a lost connection."""
        while True:
            client = await self.client()
            try:
                return await work(client)
            except ConnectionLost:
                if client.state is State.CLOSED:
                    raise

    async def _join(self) -> Client:
        client = await connect(self._urls, **self._options)
        client.serve(_PATH, self._serve)
        return client

    def _stateChanged(self, state: State, why: Exception | None) -> None:
        if state is State.JOINED and self._isAway:
            self._returnEnds = self._loop.time() + _RETURN
            self._restoring = self._loop.create_task(self._restore())
        self._isAway = state is State.AWAY
        if state is State.CLOSED and why is not None:
            self._groups.clear()
            self._named.clear()
            self._mailboxes.fail(why)

    async def _restore(self) -> None:
        try:
            await self._named.restore()
        except Exception:
            _log.exception("The groups of named channels were not restored")

    def _put(self, channels: Iterable[str], payload: bytes) -> int:
        return self._mailboxes.put(channels, payload, self._rules.capacityOf)

    async def _serve(self, request: Request) -> None:
        match request.value:
            case {"send": str(channel), "message": bytes(payload)}:
                if self._put([channel], payload):
                    raise RequestFailed(Status.TOO_MANY_REQUESTS, "the channel is full")
            case {"add": str(channel), "group": str(group)}:
                await self._groups.add(group, channel)
            case {"discard": str(channel), "group": str(group)}:
                self._groups.discard(group, channel)
            case _:
                raise RequestFailed(Status.BAD_REQUEST, "this is not about a channel")

    async def _request(self, process: str, asked: dict[str, Any]) -> bool:
        """Send a request to the process of a channel; False if the channel is full. It is dropped if the process has
        ended.
        """
        while True:
            client = await self.client()
            try:
                await client.request(process, _PATH, asked)
                return True
            except RequestFailed as error:
                if error.status in (Status.TOO_MANY_REQUESTS, Status.SERVICE_UNAVAILABLE):
                    return False
                if error.status not in _GONE:
                    raise
            if self._loop.time() >= self._returnEnds:
                _log.debug("The process %s of a channel has ended", process)
                return True
            await asyncio.sleep(_PAUSE)

    async def _publish(self, topic: str, payload: Any) -> None:
        client = await self.client()
        await client.publish(topic, payload, headers={"expires_in": max(1, round(self._rules.expiry * 1000))})
        await client.flush()

    async def _discard(self, group: str, channel: str) -> None:
        self._groups.discard(group, channel)

    async def _flush(self) -> None:
        self._groups.clear()
        await self._named.deleteAll()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        client = self._ready()
        if client is not None:
            client.hang_up()
        for each in others:
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*others, return_exceptions=True)
