"""Reads a stream continuously, by consumers that are replaced as soon as one may have missed a message.

A consumer of JetStream lives on one server, and its messages are lost when the connection is. So a silent one is asked
for, and each is replaced after some time even if it seems well. Messages are requested in large numbers, bounded by
their bytes, and not parsed by nats-py: about 50,000 small ones a second.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from fleximq.cluster.nats.access import SafeClient
from fleximq.limits import MEBIBYTE

#: The largest numbers of messages and bytes of one request.
_BATCH, _BYTES = 10_000, 16 * MEBIBYTE
#: Seconds until a request for messages ends; if none arrived, the state of the consumer is requested. And seconds
#: without this end, after which the consumer is replaced.
_WAIT, _DEAD = 2.0, 3.0
#: Seconds of the life of a consumer that is not replaced earlier.
_LIFE = 60.0
#: Seconds between two attempts.
RETRY = 0.5


class StoredMessage(NamedTuple):
    """A message of a stream, with the bytes of its headers."""

    subject: str
    sequence: int
    headers: bytes
    data: bytes


Received = Callable[[Sequence[StoredMessage]], Awaitable[bool]]


async def feed(
    client: SafeClient,
    context: JetStreamContext,
    stream: str,
    subject: str,
    begin: Callable[[], ConsumerConfig],
    received: Received,
) -> None:
    """Fetch messages until this is cancelled.

    :param begin: returns where a new consumer begins.
    :param received: called with messages; it returns False if some are missing, for a new consumer.
    """
    while True:
        with suppress(Error, OSError, asyncio.TimeoutError):
            config = begin()
            config.ack_policy, config.mem_storage, config.num_replicas = AckPolicy.NONE, True, 1
            config.inactive_threshold, config.filter_subject = _LIFE, subject
            consumer = await context.add_consumer(stream, config)
            try:
                await _Reader(client, context, stream, consumer.name).run(received)
            finally:
                with suppress(Error, OSError, asyncio.TimeoutError):
                    await context.delete_consumer(stream, consumer.name)
            continue
        await asyncio.sleep(RETRY)


class _Reader:
    """Reads from one consumer until it has to be replaced."""

    def __init__(self, client: SafeClient, context: JetStreamContext, stream: str, consumer: str) -> None:
        self._client, self._context, self._stream, self._consumer = client, context, stream, consumer
        self._messages: list[StoredMessage] = []
        self._arrived = asyncio.Event()
        #: How many messages may still arrive for the last request.
        self._open = 0

    def _take(self, subject: bytes, reply: bytes, headers: bytes, data: bytes) -> None:
        self._arrived.set()
        if not reply:  # a status that ends the request: its time is over, or its bytes are used up
            self._open = 0
            return
        self._open -= 1
        words = reply.split(b".")
        # $JS.ACK.[domain.account.]stream.consumer.delivered.sequence ...
        sequence = int(words[5] if len(words) == 9 else words[7])
        self._messages.append(StoredMessage(subject.decode(), sequence, headers, data))

    async def run(self, received: Received) -> None:
        inbox = self._client.new_inbox()
        subscription = await self._client.take(inbox, self._take)
        try:
            await self._run(inbox, received)
        finally:
            with suppress(Error, OSError):
                await self._client.release(subscription)

    async def _run(self, inbox: str, received: Received) -> None:
        clock = asyncio.get_running_loop()
        end = clock.time() + _LIFE
        size = max(_BYTES, 2 * self._client.max_payload)
        request = {"batch": _BATCH, "max_bytes": size, "expires": round(_WAIT * 1e9)}
        while clock.time() < end:
            self._open = _BATCH
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
            await self._client.publish(subject, json.dumps(request).encode(), reply=inbox)
            hasSome = False
            while self._open > 0 or self._messages:
                await asyncio.wait_for(self._arrived.wait(), _DEAD)
                self._arrived.clear()
                messages, self._messages = self._messages, []
                hasSome |= bool(messages)
                if messages and not await received(messages):
                    return
            if not hasSome:
                await self._context.consumer_info(self._stream, self._consumer)
