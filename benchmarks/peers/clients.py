"""Brokers as programs in Python meet them: through a client library, ours in two forms and nats-py."""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.nats import Nats
from benchmarks.peers.peer import Peer
from benchmarks.refused import Refused

#: Where deliveries come from, and where goes what is published to nobody.
TOPIC, _NOBODY = "library", "library.nobody"
_PATH = "/echo"
#: Seconds that anything may take.
_PATIENCE = 60.0

T = TypeVar("T")


class Library(Peer):
    """A broker and a library that speaks to it."""

    @property
    def url(self) -> str:
        """Where the broker is."""
        return f"tcp://127.0.0.1:{self.port}"

    @abstractmethod
    def publishAll(self, payloads: Sequence[bytes]) -> float:
        """Publish all of these, batched as the library can; return seconds until the broker has them."""

    @abstractmethod
    def receiveAll(self, count: int, begin: Callable[[], None]) -> tuple[float, bytes]:
        """Iterate over so many deliveries; return the seconds since ``begin`` was called, and the last payload."""

    @abstractmethod
    def echo(self, ready: Callable[[Any], None]) -> None:
        """Answer requests for ever; ``ready`` is told what a requester has to know."""

    @abstractmethod
    def askAll(self, whom: Any, payload: bytes, count: int) -> list[int]:
        """Ask so many times, one at a time; return nanoseconds."""


class OurBlocking(FlexiMQ, Library):
    """Ours, blocking."""

    def publishAll(self, payloads: Sequence[bytes]) -> float:
        from fleximq.client.blocking import connect

        with connect(self.url) as client:
            begun = time.perf_counter()
            client.publish_many(_NOBODY, payloads)
            client.flush(_PATIENCE)
            return time.perf_counter() - begun

    def receiveAll(self, count: int, begin: Callable[[], None]) -> tuple[float, bytes]:
        from fleximq.client.blocking import connect

        with connect(self.url) as client, client.subscribe(TOPIC) as subscription:
            begun, seen, last = time.perf_counter(), 0, b""
            begin()
            for delivery in subscription:
                last = delivery.value
                seen += 1
                if seen == count:
                    break
            return time.perf_counter() - begun, last

    def echo(self, ready: Callable[[Any], None]) -> None:
        from fleximq.client.blocking import connect

        with connect(self.url) as client:
            client.serve(_PATH, lambda request: request.value)
            ready(client.id)
            time.sleep(3600)

    def askAll(self, whom: Any, payload: bytes, count: int) -> list[int]:
        from fleximq.client.blocking import connect

        trips, clock = [], time.perf_counter_ns
        with connect(self.url) as client:
            for _ in range(count):
                begun = clock()
                answer = client.request(whom, _PATH, payload)
                trips.append(clock() - begun)
                _check(answer == payload)
        return trips


class Awaited(Library):
    """A library on asyncio."""

    @abstractmethod
    async def publishing(self, payloads: Sequence[bytes]) -> float:
        """Do what :meth:`publishAll` does."""

    @abstractmethod
    async def receiving(self, count: int, begin: Callable[[], None]) -> tuple[float, bytes]:
        """Do what :meth:`receiveAll` does."""

    @abstractmethod
    async def echoing(self, ready: Callable[[Any], None]) -> None:
        """Do what :meth:`echo` does."""

    @abstractmethod
    async def asking(self, whom: Any, payload: bytes, count: int) -> list[int]:
        """Do what :meth:`askAll` does."""

    def publishAll(self, payloads: Sequence[bytes]) -> float:
        return _run(self.publishing(payloads))

    def receiveAll(self, count: int, begin: Callable[[], None]) -> tuple[float, bytes]:
        return _run(self.receiving(count, begin))

    def echo(self, ready: Callable[[Any], None]) -> None:
        asyncio.run(self.echoing(ready))

    def askAll(self, whom: Any, payload: bytes, count: int) -> list[int]:
        return _run(self.asking(whom, payload, count))


class OurAsyncio(FlexiMQ, Awaited):
    """Ours, on asyncio."""

    async def publishing(self, payloads: Sequence[bytes]) -> float:
        from fleximq.client.asyncio import connect

        async with connect(self.url) as client:
            begun = time.perf_counter()
            await client.publish_many(_NOBODY, payloads)
            await client.flush(_PATIENCE)
            return time.perf_counter() - begun

    async def receiving(self, count: int, begin: Callable[[], None]) -> tuple[float, bytes]:
        from fleximq.client.asyncio import connect

        async with connect(self.url) as client:
            subscription = await client.subscribe(TOPIC)
            begun, seen, last = time.perf_counter(), 0, b""
            begin()
            async for delivery in subscription:
                last = delivery.value
                seen += 1
                if seen == count:
                    break
            return time.perf_counter() - begun, last

    async def echoing(self, ready: Callable[[Any], None]) -> None:
        from fleximq.client.asyncio import connect

        async with connect(self.url) as client:
            client.serve(_PATH, lambda request: request.value)
            ready(client.id)
            await asyncio.sleep(3600)

    async def asking(self, whom: Any, payload: bytes, count: int) -> list[int]:
        from fleximq.client.asyncio import connect

        async with connect(self.url) as client:
            return await _timed(lambda: client.request(whom, _PATH, payload), payload, count)


class NatsPy(Nats, Awaited):
    """nats-server, through nats-py."""

    broker = "nats-py"

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or (None if find_spec("nats") else "nats-py: pip install nats-py")

    async def _connected(self) -> Any:
        import nats

        return await nats.connect(f"nats://127.0.0.1:{self.port}")

    async def publishing(self, payloads: Sequence[bytes]) -> float:
        client = await self._connected()
        begun = time.perf_counter()
        for each in payloads:
            await client.publish(_NOBODY, each)
        # The first one's PING may go before what the library has collected.
        await client.flush(int(_PATIENCE))
        await client.flush(int(_PATIENCE))
        took = time.perf_counter() - begun
        await client.close()
        return took

    async def receiving(self, count: int, begin: Callable[[], None]) -> tuple[float, bytes]:
        client = await self._connected()
        # Its own limits would drop what comes faster than it is taken.
        subscription = await client.subscribe(TOPIC, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        begun, seen, last = time.perf_counter(), 0, b""
        begin()
        async for message in subscription.messages:
            last = message.data
            seen += 1
            if seen == count:
                break
        took = time.perf_counter() - begun
        await client.close()
        return took, last

    async def echoing(self, ready: Callable[[Any], None]) -> None:
        client = await self._connected()

        async def answer(message: Any) -> None:
            await message.respond(message.data)

        await client.subscribe(TOPIC + _PATH.replace("/", "."), cb=answer)
        await client.flush()
        ready(TOPIC + _PATH.replace("/", "."))
        await asyncio.sleep(3600)

    async def asking(self, whom: Any, payload: bytes, count: int) -> list[int]:
        client = await self._connected()

        async def ask() -> bytes:
            message = await client.request(whom, payload, timeout=_PATIENCE)
            return bytes(message.data)

        trips = await _timed(ask, payload, count)
        await client.close()
        return trips


async def _timed(ask: Callable[[], Awaitable[Any]], payload: bytes, count: int) -> list[int]:
    trips, clock = [], time.perf_counter_ns
    for _ in range(count):
        begun = clock()
        answer = await ask()
        trips.append(clock() - begun)
        _check(answer == payload)
    return trips


def _run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(work, _PATIENCE)

    try:
        return asyncio.run(limited())
    except TimeoutError:
        raise Refused(f"it was not done within {_PATIENCE:g} seconds") from None


def _check(holds: bool) -> None:
    if not holds:
        raise Refused("an answer is not what was asked")
