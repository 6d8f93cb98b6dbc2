"""Reads a stream continuously, by consumers that are replaced as soon as one may have missed a message.

A consumer of JetStream lives on one server, and its messages are lost when the connection is. So a silent one is asked
for, and each is replaced after some time even if it seems well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from nats.aio.msg import Msg
from nats.errors import Error, TimeoutError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

#: Messages that are fetched at once.
_BATCH = 32
#: Seconds of waiting for a message, until the consumer is asked for.
_WAIT = 2.0
#: Seconds of the life of a consumer that is not replaced earlier.
_LIFE = 60.0
#: Seconds between two attempts.
_RETRY = 0.5


async def feed(
    context: JetStreamContext,
    stream: str,
    subject: str,
    begin: Callable[[], ConsumerConfig],
    received: Callable[[Sequence[Msg]], Awaitable[bool]],
) -> None:
    """Fetch messages until this is cancelled.

    :param begin: returns where a new consumer begins.
    :param received: called with messages; it returns False if some are missing, for a new consumer.
    """
    while True:
        with suppress(Error, OSError, asyncio.TimeoutError):
            config = begin()
            config.ack_policy, config.mem_storage, config.num_replicas = AckPolicy.NONE, True, 1
            config.inactive_threshold = _LIFE
            consumer = await context.pull_subscribe(subject, stream=stream, config=config)
            try:
                await _fetch(consumer, received)
            finally:
                with suppress(Error, OSError):
                    await consumer.unsubscribe()
            continue
        await asyncio.sleep(_RETRY)


async def _fetch(
    consumer: JetStreamContext.PullSubscription, received: Callable[[Sequence[Msg]], Awaitable[bool]]
) -> None:
    """Fetch from one consumer until it has to be replaced."""
    clock = asyncio.get_running_loop()
    end = clock.time() + _LIFE
    while clock.time() < end:
        try:
            messages = await consumer.fetch(_BATCH, timeout=_WAIT)
        except TimeoutError:
            await consumer.consumer_info()
            continue
        if not await received(messages):
            return
