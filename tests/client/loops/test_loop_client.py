"""A client that serves requests on an event loop whose turns are steps of a clock."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConnectionLost
from fleximq.client.events import Request
from fleximq.client.loops.connection import Cancel, Connection
from fleximq.client.loops.loop_client import LoopClient
from fleximq.client.settings import ClientSettings, State
from fleximq.values.urls import Url
from tests.client.loops.test_connection import Turns, Wire
from tests.wire.flexi_frames import Heard, cut, frame


class Dialing(Turns):
    """A loop that connects to a wire, and lets waiters continue in the next turn, as asyncio and Twisted do."""

    wire: Wire
    connection: Connection

    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        waiting, fire = super().slot()

        def fireLater() -> None:
            self.later(0, fire)

        return waiting, fireLater

    def start(self, work: Coroutine[Any, Any, None]) -> Cancel:
        running = Deferred.fromCoroutine(work)
        running.addErrback(lambda failure: failure.trap(CancelledError) and None)
        return running.cancel

    async def dial(self, url: Url, settings: ClientSettings, connection: Connection) -> None:
        self.wire, self.connection = Wire(), connection
        connection.transportMade(self.wire)
        connection.transportConnected(self.wire)


class ServiceTests(SynchronousTestCase):
    """A client that answers requests."""

    def setUp(self) -> None:
        """Join."""
        self.loop = Dialing()
        settings = ClientSettings(keep_alive=None, reconnect=None)
        opening = Deferred.fromCoroutine(LoopClient(self.loop, [Url.parse("tcp://localhost:7890")], settings).open())
        self.send(frame("REP", 1000, {"status": 200}))
        self.client: LoopClient = self.successResultOf(opening)
        self.heard()

    def send(self, data: bytes) -> None:
        """Let the broker send bytes."""
        self.loop.connection.bytesReceived(self.loop.wire, data)
        self.loop.clock.advance(0)

    def resume(self) -> None:
        """Let the broker accept more."""
        self.loop.connection.transportResumed(self.loop.wire)
        self.loop.clock.advance(0)

    def heard(self) -> list[Heard]:
        """Return the frames written since the last call."""
        done = [each for each in self.loop.wire.done if isinstance(each, bytes)]
        self.loop.wire.done.clear()
        return cut(b"".join(done))

    def request(self, number: int = 1, payload: bytes = b"") -> None:
        """Let another client send requests in one read."""
        header = {"routing": [{"client_id": 1000, "path": "/a"}], "reqrep": {"type": "request", "id": "i"}}
        self.send(frame("REQ", 5, header, payload) * number)

    def serve(self, function: Callable[[Request], Any]) -> list[Request]:
        """Serve a path, and return the list of requests that will have been started."""
        started: list[Request] = []

        def call(request: Request) -> Any:
            started.append(request)
            return function(request)

        self.client.serve("/a", call)
        return started

    def test_waitsForRoom(self) -> None:
        """While the broker accepts no more, no function starts; PINGs are read all the same."""
        started = self.serve(lambda request: bytes(100_000))
        self.loop.connection.transportPaused(self.loop.wire)
        self.request(100)
        self.assertEqual((len(started), self.heard()), (0, []))
        self.send(frame("PING", 1, {"keepalive": {"timestamp": 9}}))
        self.assertEqual([each.kind for each in self.heard()], ["PONG"])
        self.resume()
        self.assertEqual((len(started), len(self.heard())), (100, 100))

    def test_answerWaitsForRoom(self) -> None:
        """The answer of a function that ends while the broker accepts no more is written later."""
        ends: Deferred[int] = Deferred()
        self.serve(lambda request: ends)
        self.request()
        self.loop.connection.transportPaused(self.loop.wire)
        ends.callback(5)
        self.loop.clock.advance(0)
        self.assertEqual(self.heard(), [])
        self.resume()
        self.assertEqual([each.value for each in self.heard()], [5])

    def test_manyAtOnce(self) -> None:
        """Up to 1,000 functions run at once; the next one starts when one of them has ended."""
        running: list[Deferred[int]] = []

        def run(request: Request) -> "Deferred[int]":
            running.append(Deferred())
            return running[-1]

        self.serve(run)
        self.request(1002)
        self.assertEqual(len(running), 1000)
        running[0].callback(5)
        self.assertEqual((len(running), len(self.heard())), (1001, 1))
        for each in running[1:]:
            each.callback(6)
        running[-1].callback(7)
        self.assertEqual((len(running), len(self.heard())), (1002, 1001))

    def test_tooMany(self) -> None:
        """Requests beyond ``prefetch`` are answered with 503 at once, and accepted again later."""
        ends: Deferred[int] = Deferred()
        started = self.serve(lambda request: ends)
        for _ in range(100):
            self.request(1, bytes(1 << 20))
        self.assertEqual((len(started), {each.status for each in self.heard()}), (64, {503}))
        ends.callback(5)
        self.request()
        self.assertEqual((len(started), {each.status for each in self.heard()}), (65, {200}))

    def test_lostBeforeStart(self) -> None:
        """Requests of a lost connection whose function has not started are dropped."""
        started = self.serve(lambda request: None)
        self.loop.connection.transportPaused(self.loop.wire)
        self.request(3)
        self.loop.connection.transportLost(self.loop.wire, self.client._clientState.lost)
        self.loop.clock.advance(0)
        self.assertEqual((started, self.client._clientState.requests.size), ([], 0))
        self.client.hang_up()

    def test_askInsideFunction(self) -> None:
        """A function can send requests while further ones are refused."""

        async def ask(request: Request) -> Any:
            return await self.client.ask("/broker/about")

        self.serve(ask)
        for _ in range(70):
            self.request(1, bytes(1 << 20))
        asked = [each for each in self.heard() if each.kind == "REQ"]
        self.assertEqual(len(asked), 64)
        for each in asked:
            self.send(
                frame("REP", 1, {"status": 200, "reqrep": {"type": "correlation", "id": each.header["reqrep"]["id"]}})
            )
        self.assertEqual([each.status for each in self.heard()], [200] * 64)


class RejoiningTests(ServiceTests):
    """A client that has joined again, and whose subscriptions are not made again yet."""

    def setUp(self) -> None:
        """Lose the connection, and let the broker accept the next JOIN."""
        self.loop = Dialing()
        settings = ClientSettings(keep_alive=None, reconnect=Backoff(first=0.01, jitter=0.0))
        opening = Deferred.fromCoroutine(LoopClient(self.loop, [Url.parse("tcp://localhost:7890")], settings).open())
        self.send(frame("REP", 1000, {"status": 200}))
        self.client = self.successResultOf(opening)
        subscribing = Deferred.fromCoroutine(self.client.subscribe("t"))
        for _ in range(4):
            self.loop.clock.pump([0] * 3)
            for each in self.heard():
                if each.kind == "PING":
                    self.send(frame("PONG", 1, each.header))
        self.successResultOf(subscribing)
        self.loop.connection.transportLost(self.loop.wire, ConnectionLost("gone"))
        self.loop.clock.advance(1)
        self.send(frame("REP", 1000, {"status": 200}))
        self.assertIn("SUB", [each.kind for each in self.heard()])
        self.assertIs(self.client.state, State.AWAY)

    def test_askInsideFunction(self) -> None:
        """One that asks the broker itself waits until the client has joined."""
        self.serve(lambda request: self.client.ask("/broker/about"))
        self.request()
        self.assertEqual(self.heard(), [])
