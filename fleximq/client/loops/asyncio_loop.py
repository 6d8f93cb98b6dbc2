"""asyncio's event loop for clients, with asyncio's own transports."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from fleximq.client.errors import ConnectionLost
from fleximq.client.loops.connection import Cancel, Connection, Loop, Transport
from fleximq.client.loops.link import LoopLink
from fleximq.client.settings import ClientSettings
from fleximq.client.sockets import IPC_FOLDER, asConnectionLost, checkTls, enableKeepAlive, takeStandardStreams
from fleximq.values.urls import Url


class AsyncioLoop(Loop):
    """asyncio's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        future: asyncio.Future[None] = self._loop.create_future()

        def fire() -> None:
            if not future.done():
                future.set_result(None)

        return future, fire

    def later(self, seconds: float, call: Callable[[], None]) -> Cancel:
        return (self._loop.call_later(seconds, call) if seconds else self._loop.call_soon(call)).cancel

    def start(self, work: Coroutine[Any, Any, None]) -> Cancel:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task.cancel

    def currentTask(self) -> object | None:
        return asyncio.current_task()

    async def dial(self, url: Url, settings: ClientSettings, connection: Connection) -> None:
        host = url.host or "localhost"
        try:
            async with asyncio.timeout(settings.timeout):
                if url.scheme == "stdio":
                    await self._dialPipes(connection)
                elif url.scheme == "ipc":
                    await self._loop.create_unix_connection(lambda: _Stream(connection), url.socketPath(IPC_FOLDER))
                else:
                    context = settings.context() if url.isSecure else None
                    transport, _ = await self._loop.create_connection(
                        lambda: _Stream(connection), host, url.port, ssl=context
                    )
                    enableKeepAlive(transport.get_extra_info("socket"))
        except TimeoutError:
            raise ConnectionLost(f"cannot connect to {url} within {settings.timeout:g} seconds") from None
        except (OSError, ValueError, ssl.SSLError) as error:
            raise asConnectionLost(error, f"cannot connect to {url}") from None

    async def _dialPipes(self, connection: Connection) -> None:
        reading, writing = takeStandardStreams()
        stream = _Pipes(connection)
        source = open(reading, "rb", buffering=0)  # noqa: SIM115
        sink = open(writing, "wb", buffering=0)  # noqa: SIM115
        stream.sink, _ = await self._loop.connect_write_pipe(lambda: _Sink(stream), sink)
        await self._loop.connect_read_pipe(lambda: stream, source)


class _Stream(asyncio.Protocol, Transport):
    """A socket."""

    def __init__(self, connection: Connection) -> None:
        connection.transportMade(self)
        self._connection = connection
        self._reading: Any = None
        self._writing: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._reading = self._writing = transport
        self._connection.transportConnected(self)

    def data_received(self, data: bytes) -> None:
        self._connection.bytesReceived(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        lost = ConnectionLost("the broker closed the connection")
        self._connection.transportLost(self, asConnectionLost(error, "the connection ended") if error else lost)

    def pause_writing(self) -> None:
        self._connection.transportPaused(self)

    def resume_writing(self) -> None:
        self._connection.transportResumed(self)

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
        self._connection.transportConnected(self)

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


L = TypeVar("L", bound=LoopLink)


class Connecting(Generic[L]):
    """A client that connects when it is awaited or entered; raises SettingError for TLS settings of another URL."""

    def __init__(
        self, urls: Sequence[Url], settings: ClientSettings, make: Callable[[Loop, Sequence[Url], ClientSettings], L]
    ) -> None:
        checkTls(urls[0], settings.tls)
        self._urls = urls
        self._make = lambda: make(AsyncioLoop(asyncio.get_running_loop()), urls, settings)

    def __repr__(self) -> str:
        return f"<Connecting to {', '.join(each.withoutQuery for each in self._urls)}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"no {name!r} before the connection: write 'client = await connect(...)'")

    def __await__(self) -> Generator[Any, Any, L]:
        return self.__aenter__().__await__()

    def __enter__(self) -> NoReturn:
        raise TypeError("this client is for asyncio: write 'async with connect(...)'")

    def __exit__(self, *raised: object) -> None:
        """Only so that ``with`` calls the above."""

    async def __aenter__(self) -> L:
        self._client = self._make()
        return await self._client.open()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            await self._client.close()
        else:
            self._client.hang_up()
