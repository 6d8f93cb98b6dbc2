"""Several servers of Socket.IO with one broker: on asyncio, in threads, and in threads with kombu's transport."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from tests.broker_process import BrokerProcess

_NEEDED = ("aiohttp", "amqp", "socketio")  # kombu has no specification once it is imported
_MISSING = "" if all(map(find_spec, _NEEDED)) else "needs the extras socketio and celery, and aiohttp"
if not _MISSING:
    import socketio
    from aiohttp import web

    import fleximq.integrations.kombu  # noqa: F401  # registers the scheme
    from fleximq.integrations.socketio import AsyncFleximqManager, FleximqManager

#: Seconds that an event may take, and after which one that may be lost is emitted again.
PATIENCE, AGAIN = 60.0, 0.2
#: Managers log an error when their connection is lost or ended.
_LOG = logging.getLogger("quiet")
_LOG.setLevel(logging.CRITICAL)
_QUIET = {"logger": _LOG, "engineio_logger": _LOG}


class Server:
    """A server with the call that handles its events; ``emit`` and others are coroutines."""

    def __init__(self, server: Any, isSync: bool) -> None:
        self.server = server
        self._isSync = isSync

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self.server, name)

        async def call(*arguments: Any, **more: Any) -> Any:
            if self._isSync:
                return await asyncio.to_thread(method, *arguments, **more)
            return await method(*arguments, **more)

        return call


class ServersCase(SynchronousTestCase):
    """A broker, servers and their clients."""

    if _MISSING:
        skip = _MISSING
    options: tuple[str, ...] = ()
    transport = "websocket"

    def setUp(self) -> None:
        self.broker = BrokerProcess(*self.options)
        self.broker.__enter__()
        self.addCleanup(lambda: self.broker.stop())

    def run_(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine."""
        asyncio.run(asyncio.wait_for(work(), 2 * PATIENCE))

    async def restart(self) -> None:
        """Kill the broker, and start it on the same port."""
        port = self.broker.port()
        await asyncio.to_thread(self.broker.stop, signal.SIGKILL)
        self.broker = BrokerProcess("--listen", f"tcp:{port}:interface=127.0.0.1", *self.options)
        await asyncio.to_thread(self.broker.__enter__)

    def manager(self, **options: Any) -> Any:
        """Return a client manager."""
        return AsyncFleximqManager(f"tcp://127.0.0.1:{self.broker.port()}", **options)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[tuple[Server, int]]:
        """Run a server, and return its port too."""
        manager = self.manager()
        server = socketio.AsyncServer(client_manager=manager, async_mode="aiohttp", **_QUIET)
        app = web.Application()
        server.attach(app)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        try:
            yield Server(server, False), runner.addresses[0][1]
        finally:
            await server.shutdown()
            await runner.cleanup()
            await manager.close()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Server]:
        """Return a manager that only writes."""
        writer = self.manager(write_only=True)
        yield Server(writer, False)
        await writer.close()

    @asynccontextmanager
    async def connected(self, port: int) -> AsyncIterator[Any]:
        """Return a client of a server; its queue ``events`` has the values of events with the name ``news``."""
        client = socketio.AsyncClient(reconnection_delay=0.05, reconnection_delay_max=0.1)
        client.events = asyncio.Queue()

        @client.on("news")
        async def news(value: Any) -> Any:
            client.events.put_nowait(value)
            return {"seen": value}

        await client.connect(f"http://127.0.0.1:{port}", transports=[self.transport])
        try:
            yield client
        finally:
            await client.eio.disconnect(abort=True)  # without waiting for the answers of requests

    async def crosses(self, server: Server, client: Any, value: Any) -> None:
        """Emit until a client of another server gets the value: until both servers listen."""
        while True:
            await server.emit("news", value)
            try:
                while await asyncio.wait_for(client.events.get(), AGAIN) != value:
                    pass
                break
            except TimeoutError:
                pass

    @asynccontextmanager
    async def two(self) -> AsyncIterator[tuple[Server, Server, Any, Any]]:
        """Run two servers with a client each, when events cross in both directions."""
        async with AsyncExitStack() as stack:
            one, port = await stack.enter_async_context(self.serving())
            client = await stack.enter_async_context(self.connected(port))
            two, otherPort = await stack.enter_async_context(self.serving())
            other = await stack.enter_async_context(self.connected(otherPort))
            await self.crosses(one, other, "there")
            await self.crosses(two, client, "back")
            self.ports = port, otherPort
            yield one, two, client, other


class AsyncTests(ServersCase):
    """Servers on asyncio."""

    def test_everythingCrosses(self) -> None:
        """Events to a client of another server, to rooms, their callbacks, and disconnection."""

        async def cross() -> None:
            async with self.two() as (one, two, client, other):
                await one.enter_room(other.get_sid(), "room")
                while "room" not in two.server.rooms(other.get_sid()):
                    await asyncio.sleep(0.01)
                await one.emit("news", "to the room", room="room")
                await one.emit("news", {"bytes": b"\x00"}, to=other.get_sid())
                while (found := await other.events.get()) in ("there", "back"):
                    pass
                self.assertEqual([found, await other.events.get()], ["to the room", {"bytes": b"\x00"}])
                answers: asyncio.Queue[Any] = asyncio.Queue()
                loop = asyncio.get_running_loop()
                await one.emit(
                    "news",
                    "seen?",
                    to=other.get_sid(),
                    callback=lambda value: loop.call_soon_threadsafe(answers.put_nowait, value),
                )
                self.assertEqual(await answers.get(), {"seen": "seen?"})
                gone = asyncio.Event()
                other.on("disconnect", lambda reason: gone.set())
                await one.disconnect(other.get_sid())
                await gone.wait()

        self.run_(cross)

    def test_aServerRestarts(self) -> None:
        """The clients of the other one lose nothing meanwhile, and its own ones are reached when they have returned."""

        async def restart() -> None:
            async with AsyncExitStack() as stack:
                one, port = await stack.enter_async_context(self.serving())
                client = await stack.enter_async_context(self.connected(port))
                async with self.serving() as (_, otherPort):
                    other = await stack.enter_async_context(self.connected(otherPort))
                    await self.crosses(one, other, "before")
                for number in range(10):  # clients refuse answers to a poll with more than 16
                    await one.emit("news", number)
                async with self.serving(otherPort):
                    await self.crosses(one, other, "after")
                found: list[Any] = ["before"]
                while found[-1] != 9:
                    found.append(await client.events.get())
                self.assertEqual([each for each in found if each != "before"], list(range(10)))

        self.run_(restart)

    def test_theBrokerRestarts(self) -> None:
        """Both servers go on in both directions."""

        async def restart() -> None:
            async with self.two() as (one, two, client, other):
                for number in range(2):
                    await self.restart()
                    await self.crosses(one, other, number)
                    await self.crosses(two, client, number)

        self.run_(restart)

    def test_aProcessWithoutAServer(self) -> None:
        """Emits by a manager that only writes."""

        async def write() -> None:
            async with self.serving() as (_, port), self.connected(port) as client:
                async with self.writing() as writer:
                    await self.crosses(writer, client, "outside")

        self.run_(write)


class MixedTests(ServersCase):
    """A server on asyncio, and others."""

    def test_threadsReachItsClients(self) -> None:
        """As a worker of Celery that emits."""

        async def write() -> None:
            async with self.serving() as (_, port), self.connected(port) as client:
                writer = FleximqManager(f"tcp://127.0.0.1:{self.broker.port()}", write_only=True)
                await self.crosses(Server(writer, True), client, "outside")
                writer.close()

        self.run_(write)

    def test_wrongSettings(self) -> None:
        """They are told at once, and not at the first event."""
        for kind in (AsyncFleximqManager, FleximqManager):
            self.assertRaises(TypeError, kind, colour="red")
            self.assertRaises(SettingError, kind, "redis://localhost:6379")


class ResumeTests(ServersCase):
    """Servers on asyncio that continue where the connection was lost."""

    def setUp(self) -> None:
        self.options = ("--journal", os.path.abspath(self.mktemp()), "--durable", "socketio")
        super().setUp()

    def manager(self, **options: Any) -> Any:
        """Return a client manager that continues."""
        return super().manager(resume=True, **options)

    def test_nothingIsLostWhileTheBrokerRestarts(self) -> None:
        """Events that are emitted before, while and after it is killed."""

        async def restart() -> None:
            async with self.two() as (one, _, _, other):

                async def emit() -> None:
                    for number in range(50):
                        await one.emit("news", number)

                emitting = asyncio.create_task(emit())
                while await other.events.get() != 10:
                    pass
                await self.restart()
                await emitting
                found = set(range(11))
                while len(found) < 50:
                    found.add(await other.events.get())
                self.assertEqual(found, set(range(50)))

        self.run_(restart)


class _Threads(ThreadingMixIn, WSGIServer):
    """A web server with a thread for each request."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._requests: list[socket.socket] = []

    def get_request(self) -> Any:
        """Accept a connection, and note it."""
        request, address = super().get_request()
        self._requests.append(request)
        return request, address

    def cut(self) -> None:
        """End all connections, as the end of a process does."""
        for request in self._requests:
            with contextlib.suppress(OSError):  # the name suppress in a module is one of trial
                request.shutdown(socket.SHUT_RDWR)


class _Quiet(WSGIRequestHandler):
    """One that does not log."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


class ThreadTests(AsyncTests):
    """Servers in threads."""

    transport = "polling"

    def manager(self, **options: Any) -> Any:
        """Return a client manager."""
        return FleximqManager(f"tcp://127.0.0.1:{self.broker.port()}", **options)

    def end(self, manager: Any) -> None:
        """End the thread of a manager."""
        manager.close()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Server]:
        """Return a manager that only writes."""
        writer = self.manager(write_only=True)
        yield Server(writer, True)
        self.end(writer)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[tuple[Server, int]]:
        """Run a server, and return its port too."""
        manager = self.manager()
        server = socketio.Server(client_manager=manager, async_mode="threading", **_QUIET)
        application: Any = socketio.WSGIApp(server)
        listening = make_server("127.0.0.1", port, application, _Threads, _Quiet)
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield Server(server, True), listening.server_port
        finally:
            self.end(manager)
            await asyncio.to_thread(server.shutdown)
            await asyncio.to_thread(listening.shutdown)
            listening.server_close()
            listening.cut()
            thread.join()


class KombuTests(ThreadTests):
    """Servers in threads, with python-socketio's manager for kombu."""

    def manager(self, **options: Any) -> Any:
        """Return a client manager of python-socketio."""
        return socketio.KombuManager(f"fleximq://127.0.0.1:{self.broker.port()}", **options)

    def end(self, manager: Any) -> None:
        """Have the thread of a manager end when the connection is lost."""
        manager._queue = sys.exit
