"""The channel layer: checks names, encodes messages, and finds the process of a channel."""

import asyncio
import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4
from weakref import finalize

from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from fleximq.client.asyncio import connect
from fleximq.client.payloads import Packed, packed, unpacked
from fleximq.integrations.channels.connection import Connection, Rules
from fleximq.integrations.channels.mailboxes import Mailboxes

_URL = "tcp://localhost:7890"


class ChannelLayer(BaseChannelLayer):
    """A channel layer of Django Channels, with the extensions ``groups`` and ``flush``.

    :param url: the broker's address, or the addresses of a cluster, as for :func:`fleximq.client.asyncio.connect`.
    :param hosts: another name for ``url``: a list, in which an address may be a pair of host and port.
    :param prefix: begins the names of topics, queues and clients: layers with different ones do not share channels.
    :param expiry: seconds after which an unread message is removed.
    :param group_expiry: seconds after which a channel leaves a group to which it was not added again.
    :param capacity: the maximum number of unread messages of a channel; ``channel_capacity``: that of channels whose
        names match a pattern, by pattern.
    :param symmetric_encryption_keys: encrypt messages with the first key, and decrypt them with any.
    :param options: further arguments of :func:`fleximq.client.asyncio.connect`, such as ``credentials`` and ``tls``.
    """

    extensions = ("groups", "flush")

    def __init__(
        self,
        url: str | Sequence[str] = _URL,
        *,
        hosts: Sequence[str | Sequence[Any]] | None = None,
        prefix: str = "asgi",
        expiry: float = 60,
        group_expiry: float = 86400,
        capacity: int = 100,
        channel_capacity: Mapping[Any, int] | None = None,
        symmetric_encryption_keys: Sequence[str | bytes] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(expiry, capacity, self.compile_capacities(channel_capacity or {}))
        self.group_expiry = group_expiry
        self.prefix = prefix
        self._urls = url if hosts is None else [each if isinstance(each, str) else _urlOf(*each) for each in hosts]
        self._options = options
        connect(self._urls, **options)  # raises the errors of wrong arguments; it connects when it is awaited
        self._cipher = _cipherOf(symmetric_encryption_keys)
        self._process = 0
        self._connection: Connection | None = None
        self._stop: finalize[[], ChannelLayer] | None = None

    # -- the specification of channel layers -------------------------------------------------------

    async def send(self, channel: str, message: Any) -> None:
        """Send a message to a channel.

        :raises ChannelFull: the channel has as many unread messages as its capacity.
        """
        self.require_valid_channel_name(channel)
        payload = self.serialize(message)
        connection = self._connect()
        process = _processOf(channel)
        if process == self.client_prefix:
            isSent = not self._mailboxes.put([channel], payload, self.get_capacity)
        else:
            isSent = await connection.send(self._clientOf(process), channel, payload)
        if not isSent:
            raise ChannelFull(channel)

    async def receive(self, channel: str) -> Any:
        """Return the next message of a channel. A cancelled call leaves it to the next one."""
        self.require_valid_channel_name(channel)
        connection = self._connect()
        process = _processOf(channel)
        if process is None:
            return self.deserialize(await connection.receive(channel))
        if process != self.client_prefix:
            raise AssertionError(f"{channel} is a channel of another process")  # as other layers do
        await connection.connected()
        return self.deserialize(await self._mailboxes.get(channel))

    async def new_channel(self, prefix: str = "specific") -> str:
        """Return the name of a new channel of this process."""
        self._connect()
        return f"{prefix}.{self.client_prefix}!{uuid4().hex}"

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group; messages that are sent to the group afterwards reach it."""
        self._checkNames(group, channel)
        await self._connect().add(group, channel, *self._place(channel))

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group; no effect if it is not a member."""
        self._checkNames(group, channel)
        await self._connect().discard(group, channel, *self._place(channel))

    async def group_send(self, group: str, message: Any) -> None:
        """Send a message to all channels of a group; those that are full do not get it."""
        self.require_valid_group_name(group)
        await self._connect().sendGroup(group, Packed(self.serialize(message)))

    async def flush(self) -> None:
        """Remove all messages and groups of this process, and all channels that are not of a single process."""
        connection = self._connect()
        self._mailboxes.clear()
        await connection.flush()
        await self.close()

    async def close(self) -> None:
        """Disconnect, and leave all groups; the next call connects again."""
        if self._connection is not None and self._process == os.getpid():
            stop, self._stop, self._connection = self._stop, None, None
            await asyncio.get_running_loop().run_in_executor(None, stop)  # type: ignore[arg-type]

    # -- messages ----------------------------------------------------------------------------------

    def serialize(self, message: Any) -> bytes:
        """Return a message as bytes: MessagePack, encrypted if there are keys."""
        payload = packed(message)
        return payload if self._cipher is None else self._cipher.encrypt(payload)

    def deserialize(self, payload: bytes) -> Any:
        """Return the message of such bytes.

        :raises ValueError: they are damaged, or encrypted with another key.
        """
        if self._cipher is not None:
            try:
                payload = self._cipher.decrypt(payload)
            except InvalidToken:
                raise ValueError("a message is not encrypted with one of the keys") from None
        return unpacked(payload)

    # -- the process -------------------------------------------------------------------------------

    @property
    def client_prefix(self) -> str:
        """The part of the names of this process's channels before the exclamation mark."""
        self._connect()
        return self._identity

    def _connect(self) -> Connection:
        """Return the connection of this process. A forked process has another name, and channels of its own."""
        if self._process != os.getpid():
            if self._stop is not None:
                self._stop.detach()
            self._process, self._connection = os.getpid(), None
            self._identity = uuid4().hex
            self._mailboxes = Mailboxes(self.expiry)
        if self._connection is None:
            rules = Rules(
                prefix=self.prefix,
                expiry=self.expiry,
                group_expiry=self.group_expiry,
                # Without a reference to the layer, so that a forgotten one disconnects.
                capacityOf=BaseChannelLayer(
                    capacity=self.capacity, channel_capacity=self.channel_capacity
                ).get_capacity,
            )
            name = self._nameOf(self._identity)
            self._connection = Connection(self._urls, self._options, rules, name, self._mailboxes)
            self._stop = finalize(self, self._connection.stop)
        return self._connection

    def _nameOf(self, process: str) -> str:
        return f"{self.prefix}.{process}"

    def _clientOf(self, process: str | None) -> str | None:
        return None if process is None else self._nameOf(process)

    def _place(self, channel: str) -> tuple[str | None, bool]:
        """Return the name of the client of a channel's process, and whether it is this one."""
        process = _processOf(channel)
        return self._clientOf(process), process == self.client_prefix

    def _checkNames(self, group: str, channel: str) -> None:
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)


def _processOf(channel: str) -> str | None:
    """Return the identity of the process of a channel, None for one of no single process."""
    head, mark, _ = channel.partition("!")
    return head.rpartition(".")[2] if mark else None


def _urlOf(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _cipherOf(keys: Sequence[str | bytes] | None) -> MultiFernet | None:
    if not keys:
        return None
    if isinstance(keys, str | bytes):
        raise ValueError("symmetric_encryption_keys must be a list of keys")
    several = [each.encode() if isinstance(each, str) else each for each in keys]
    return MultiFernet([Fernet(urlsafe_b64encode(sha256(each).digest())) for each in several])
