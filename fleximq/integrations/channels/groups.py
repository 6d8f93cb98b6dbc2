"""The groups of one process: each is a topic, to which it is subscribed while one of its channels is a member."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from fleximq.client.asyncio import Client, Subscription
from fleximq.client.errors import ClientError, ConnectionLost
from fleximq.client.events import Delivery

_log = logging.getLogger(__name__)
#: Seconds after which old members of groups without messages are looked for, at most.
_SWEEP = 3600.0


class Broker(Protocol):
    """The connection of this process; it makes its client when it is needed."""

    async def client(self) -> Client:
        """Return the client."""

    async def repeat(self, work: Callable[[Client], Any]) -> Any:
        """Return the result of an idempotent operation; it is repeated after a lost connection."""


class _Group:
    """The members of one group, with the times at which they were added, and its subscription."""

    def __init__(self) -> None:
        self.members: dict[str, float] = {}
        self.subscribing: asyncio.Task[None]
        self.listening: asyncio.Task[None] | None = None
        self.subscription: Subscription[Delivery] | None = None


class Groups:
    """All groups of one process; used on the event loop of its connection.

    :param topicOf: returns the topic of a group.
    :param put: adds a message to channels; returns how many are full.
    :param expiry: seconds after which a member that is not added again is removed.
    """

    def __init__(
        self, broker: Broker, topicOf: Callable[[str], str], put: Callable[[Iterable[str], bytes], int], expiry: float
    ) -> None:
        self._broker = broker
        self._topicOf = topicOf
        self._put = put
        self._expiry = expiry
        self._groups: dict[str, _Group] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._groups)

    async def add(self, group: str, channel: str) -> None:
        """Add a member, and return when the broker sends the group's messages. Raises ClientError or TimeoutError."""
        loop = asyncio.get_running_loop()
        if self._sweeping is None:
            self._sweeping = loop.call_later(min(self._expiry, _SWEEP), self._sweep)
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = _Group()
            found.subscribing = loop.create_task(self._subscribe(group, found))
        found.members[channel] = loop.time()
        try:
            await asyncio.shield(found.subscribing)
        except Exception:
            self._forget(group, found)
            raise

    def discard(self, group: str, channel: str) -> None:
        """Remove a member; nothing happens if it is none."""
        found = self._groups.get(group)
        if found is not None:
            found.members.pop(channel, None)
            if not found.members:
                self._forget(group, found)

    def clear(self) -> None:
        """Remove all members of all groups."""
        for group, found in tuple(self._groups.items()):
            self._forget(group, found)

    async def _subscribe(self, group: str, found: _Group) -> None:
        found.subscription = await self._broker.repeat(lambda client: client.subscribe(self._topicOf(group)))
        if self._groups.get(group) is found:
            found.listening = asyncio.create_task(self._listen(group, found, found.subscription))
        else:  # its last member was removed
            found.subscription.close()

    async def _listen(self, group: str, found: _Group, subscription: Subscription[Delivery]) -> None:
        try:
            async for delivery in subscription:
                self._dispatch(group, found, bytes(delivery.payload))
        except ConnectionLost:
            pass  # the client is closed, and its owner knows
        except ClientError:
            _log.exception("The subscription to the group %s ended", group)
        self._forget(group, found)

    def _dispatch(self, group: str, found: _Group, payload: bytes) -> None:
        self._removeOld(group, found)
        full = self._put(found.members, payload)
        if full:
            _log.info("%s of %s channels over capacity in group %s", full, len(found.members), group)

    def _removeOld(self, group: str, found: _Group) -> None:
        oldest = asyncio.get_running_loop().time() - self._expiry
        for channel, added in tuple(found.members.items()):
            if added <= oldest:
                self.discard(group, channel)

    def _sweep(self) -> None:
        self._sweeping = None
        for group, found in tuple(self._groups.items()):
            self._removeOld(group, found)
        if self._groups:
            self._sweeping = asyncio.get_running_loop().call_later(min(self._expiry, _SWEEP), self._sweep)

    def _forget(self, group: str, found: _Group) -> None:
        if self._groups.get(group) is found:
            del self._groups[group]
            if found.subscription is not None:
                found.subscription.close()
