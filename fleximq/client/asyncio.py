"""The client for programs on asyncio: its own transports, and nothing of Twisted.

::

    async with connect("tcp://localhost:7890") as client:
        await client.publish("news", {"rain": True})
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Unpack

from fleximq.client.awaited import AwaitedClient, AwaitedSubscription, Cancellable, Line, Listener, Loop
from fleximq.client.dial import IPC_FOLDER, checkTls, keepWatch, lostBy
from fleximq.client.errors import ConnectionLost
from fleximq.client.pipes import ownPipes
from fleximq.client.settings import ClientSettings, Wishes
from fleximq.endpoints.urls import Url

Client = AwaitedClient
Subscription = AwaitedSubscription

__all__ = ["Client", "Connecting", "Subscription", "connect"]


def connect(url: str = "tcp://localhost:7890", **wishes: Unpack[Wishes]) -> "Connecting":
    """Connect and join: use it in ``async with``, which closes in the end, or await it.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started.
    :param wishes: see :class:`~fleximq.client.settings.ClientSettings`; ``tls`` may be an ``ssl.SSLContext``.
    :raises SettingError: the URL or a wish makes no sense. Errors of :meth:`AwaitedClient.open` come when awaited.
    """
    place, settings = Url.parse(url), ClientSettings(**wishes)
    checkTls(place, settings)
    return Connecting(place, settings)


class Connecting:
    """A client that connects when it is awaited or entered."""

    def __init__(self, url: Url, settings: ClientSettings) -> None:
        self._url = url
        self._settings = settings
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._open().__await__()

    async def _open(self) -> Client:
        self._client = AwaitedClient(_AsyncioLoop(asyncio.get_running_loop()), self._url, self._settings)
        return await self._client.open()

    async def __aenter__(self) -> Client:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        assert self._client is not None
        if error is None:
            await self._client.close()
        else:
            self._client.hangUp()


class _AsyncioLoop(Loop):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        future: asyncio.Future[None] = self._loop.create_future()

        def fire() -> None:
            if not future.done():
                future.set_result(None)

        return future, fire

    def later(self, seconds: float, call: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(seconds, call) if seconds else self._loop.call_soon(call)

    def start(self, work: Coroutine[Any, Any, None]) -> Cancellable:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def user(self) -> object | None:
        return asyncio.current_task()

    async def dial(self, url: Url, settings: ClientSettings, listener: Listener) -> None:
        try:
            async with asyncio.timeout(settings.timeout):
                await self._dial(url, settings, listener)
        except TimeoutError:
            raise ConnectionLost(f"cannot connect to {url} within {settings.timeout:g} seconds") from None
        except (OSError, ValueError, ssl.SSLError) as error:
            raise lostBy(error, f"cannot connect to {url}") from error

    async def _dial(self, url: Url, settings: ClientSettings, listener: Listener) -> None:
        if url.scheme == "stdio":
            await self._pipes(listener)
        elif url.scheme == "ipc":
            await self._loop.create_unix_connection(lambda: _Stream(listener), url.socketPath(IPC_FOLDER))
        else:
            context = settings.context() if url.isSecure else None
            host = url.host or "localhost"
            transport, _ = await self._loop.create_connection(lambda: _Stream(listener), host, url.port, ssl=context)
            keepWatch(transport.get_extra_info("socket"))

    async def _pipes(self, listener: Listener) -> None:
        reading, writing = ownPipes()
        stream = _Pipes(listener)
        source = open(reading, "rb", buffering=0)  # noqa: SIM115
        sink = open(writing, "wb", buffering=0)  # noqa: SIM115
        stream.sink, _ = await self._loop.connect_write_pipe(lambda: _Sink(stream), sink)
        await self._loop.connect_read_pipe(lambda: stream, source)


class _Stream(asyncio.Protocol, Line):
    """A socket."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._reading: Any = None
        self._writing: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._reading = self._writing = transport
        self._listener.lineMade(self)

    def data_received(self, data: bytes) -> None:
        self._listener.lineHeard(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        what = "the broker closed the connection"
        self._listener.lineLost(self, ConnectionLost(what) if error is None else lostBy(error, "the connection ended"))

    def pause_writing(self) -> None:
        self._listener.lineFull(self)

    def resume_writing(self) -> None:
        self._listener.lineDrained(self)

    def write(self, data: bytes) -> None:
        self._writing.write(data)

    def pauseReading(self) -> None:
        self._reading.pause_reading()

    def resumeReading(self) -> None:
        if not self._reading.is_closing():
            self._reading.resume_reading()

    def close(self) -> None:
        self._writing.close()

    def abort(self) -> None:
        self._writing.abort()


class _Pipes(_Stream):
    """Standard input and output."""

    sink: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._reading, self._writing = transport, self.sink
        self._listener.lineMade(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.sink.close()

    def close(self) -> None:
        self.sink.close()
        self._reading.close()

    def abort(self) -> None:
        self.sink.abort()
        self._reading.close()


class _Sink(asyncio.BaseProtocol):
    """Standard output alone."""

    def __init__(self, stream: _Pipes) -> None:
        self._stream = stream

    def pause_writing(self) -> None:
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        self._stream.resume_writing()
