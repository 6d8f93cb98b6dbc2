"""Channels that any process receives from: queues of the broker. Their groups are sources of the queue."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fleximq.client.asyncio import Jobs
from fleximq.client.errors import NotSettled, RequestFailed
from fleximq.client.jobs import Job
from fleximq.client.payloads import Packed
from fleximq.integrations.channels.groups import Broker
from fleximq.status import Status

#: Seconds for which a process remains the consumer of a channel from which nobody receives.
_IDLE = 1.0
#: Deliveries of a message, in effect any number: each cancelled call of ``receive`` may be one.
_ANY_NUMBER = 1 << 48


class Reception:
    """The consumer of one channel; ``users`` counts calls of ``receive`` and messages that are not settled."""

    def __init__(self, opening: asyncio.Task[Jobs]) -> None:
        self.opening = opening
        self.lock = asyncio.Lock()
        self.users = 0


class NamedChannels:
    """The named channels of one process; used on the event loop of its connection.

    :param queueOf: returns the queue of a channel; with "" the beginning of all of them.
    :param expiry: seconds after which a message is removed.
    :param idle: seconds without a receiver after which a channel with its groups is removed.
    """

    def __init__(self, broker: Broker, queueOf: Callable[[str], str], expiry: float, idle: float) -> None:
        self._broker = broker
        self._queueOf = queueOf
        self._expiry = expiry
        self._idle = idle
        self._receptions: dict[str, Reception] = {}
        #: The channels and sources that this process has bound, with the capacity of the channel.
        self._bound: dict[tuple[str, str], int] = {}

    # -- messages ----------------------------------------------------------------------------------

    async def send(self, channel: str, payload: bytes, capacity: int) -> bool:
        """Add a message to a channel; False if it has ``capacity`` messages."""
        if await self._define(channel, capacity) >= capacity:
            return False
        queue = self._queueOf(channel)
        client = await self._broker.client()
        await client.enqueue(queue, Packed(payload), expires=self._expiry)
        await client.flush()
        return True

    async def take(self, channel: str, capacity: int) -> tuple[Reception, Job]:
        """Return the next message of a channel, and the reception with which to :meth:`settle` it."""
        found = self._receptions.get(channel)
        if found is None:
            found = self._receptions[channel] = Reception(asyncio.create_task(self._open(channel, capacity)))
        found.users += 1
        try:
            jobs = await asyncio.shield(found.opening)
            async with found.lock:
                job = await jobs.take()
            if job is None:
                raise RuntimeError(f"the reception from {channel} was ended")
            return found, job
        except BaseException as error:
            if isinstance(error, Exception) and self._receptions.get(channel) is found:
                del self._receptions[channel]
            self._leave(channel, found)
            raise

    def settle(self, channel: str, found: Reception, job: Job, isReceived: bool) -> None:
        """Acknowledge a message, or return it to its channel."""
        with suppress(NotSettled):  # its connection has ended
            if isReceived:
                job.ack()
            else:
                job.retry(0)
        self._leave(channel, found)

    def clear(self) -> None:
        """Forget the consumers of a client that has ended."""
        self._receptions.clear()

    async def _open(self, channel: str, capacity: int) -> Jobs:
        await self._define(channel, capacity)
        jobs: Jobs = await self._broker.repeat(lambda client: client.consume(self._queueOf(channel)))
        return jobs

    def _leave(self, channel: str, found: Reception) -> None:
        found.users -= 1
        if not found.users:
            asyncio.get_running_loop().call_later(_IDLE, self._closeUnused, channel, found)

    def _closeUnused(self, channel: str, found: Reception) -> None:
        if found.users or self._receptions.get(channel) is not found:
            return
        del self._receptions[channel]
        found.opening.add_done_callback(_closeOpened)

    async def _define(self, channel: str, capacity: int) -> int:
        """Define the queue of a channel if it is not; return the number of its messages."""
        queue = self._queueOf(channel)
        rows = (await self._broker.repeat(lambda client: client.ask("/broker/queues", {"topic": queue})))["queues"]
        if not rows or rows[0]["definition"] is None:
            # A full queue drops its oldest messages, since one that refuses a message of a group refuses it for all
            # members. The bound is twice the capacity, so that several senders at once do not exceed it.
            definition: dict[str, Any] = {
                "durable": False,
                "expiry": self._idle,
                "max_messages": 2 * capacity,
                "when_full": "drop-oldest",
                "max_attempts": _ANY_NUMBER,
            }
            await self._broker.repeat(lambda client: client.define_queue(queue, **definition))
        return rows[0]["messages"] + rows[0]["in_flight"] if rows else 0

    # -- groups ------------------------------------------------------------------------------------

    async def bind(self, channel: str, source: str, capacity: int) -> None:
        """Add a topic to those whose messages a channel receives."""
        await self._define(channel, capacity)
        await self._bind("/queue/bind", channel, source)
        self._bound[channel, source] = capacity

    async def unbind(self, channel: str, source: str) -> None:
        """Remove such a topic; nothing happens if it is none."""
        self._bound.pop((channel, source), None)
        try:
            await self._bind("/queue/unbind", channel, source)
        except RequestFailed as error:
            if error.status != Status.NOT_FOUND:
                raise

    async def restore(self) -> None:
        """Bind again what a broker without a journal has forgotten."""
        for (channel, source), capacity in tuple(self._bound.items()):
            await self.bind(channel, source, capacity)

    async def deleteAll(self) -> None:
        """Delete all named channels of all processes."""
        self._bound.clear()
        beginning = self._queueOf("")
        for row in await self._broker.repeat(lambda client: client.queues()):
            if row["queue"].startswith(beginning):
                asked = {"queue": row["queue"]}
                with suppress(RequestFailed):
                    await self._broker.repeat(lambda client, asked=asked: client.ask("/queue/delete", asked))  # type: ignore[misc]

    async def _bind(self, path: str, channel: str, source: str) -> None:
        asked = {"queue": self._queueOf(channel), "sources": [source]}
        await self._broker.repeat(lambda client: client.ask(path, asked))


def _closeOpened(opening: asyncio.Task[Jobs]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
