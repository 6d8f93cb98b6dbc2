"""A real broker, and real clients, whose system clock is set while they run; their monotonic clock stays true."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client import blocking
from fleximq.client.blipmq import blocking as blipmq
from fleximq.client.errors import RequestFailed
from fleximq.client.minimq import blocking as minimq
from tests.broker_process import PATIENCE, BrokerProcess
from tests.notify_socket import FakeManager
from tests.stepped_clock import MISSING, SteppedClock

#: The watchdog is fed twice in this time, in microseconds.
_WATCHDOG = 400_000


class SteppedBroker(BrokerProcess):
    """A broker whose system clock can be set by :meth:`step`; ``manager`` gets its notifications."""

    fresh = True

    def __init__(self, *arguments: str) -> None:
        self.manager = FakeManager()
        super().__init__(*arguments)
        self._clock = SteppedClock(self.folder)
        self._steps = 0
        notified = {"NOTIFY_SOCKET": self.manager.name, "WATCHDOG_USEC": str(_WATCHDOG)}
        self._environment = self._clock.environment | notified

    def stop(self, *arguments: Any) -> bool:
        """Close the manager's socket, too."""
        stopped = super().stop(*arguments)
        self.manager.close()
        return stopped

    def step(self, seconds: float, isWatched: bool = True) -> None:
        """Set the system clock, and wait until the broker has seen it and has fed the watchdog three times more."""
        self._clock.step(seconds)
        if not isWatched:
            return
        self._steps += 1
        self.waitFor(lambda: self.output.count("The system clock was set by") == self._steps, "the line about a step")
        self.manager.waitFor("WATCHDOG=1", self.manager.look().count("WATCHDOG=1") + 3)


class StepCase(SynchronousTestCase):
    """``broker`` runs with ``options``."""

    skip = MISSING
    options: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Start it, with a journal."""
        self.broker = SteppedBroker("--journal", "journal", "--durable", "kept.#", *self.options)
        self.broker.__enter__()
        self.addCleanup(self.broker.stop)
        self.url = f"tcp://127.0.0.1:{self.broker.port()}"
        self.worker = self.mini()

    def client(self) -> blocking.Client:
        """Connect a client that sends nothing by itself, and does not come back."""
        client = blocking.connect(self.url, keep_alive=None, reconnect=None)
        self.addCleanup(client.hang_up)
        return client

    def mini(self) -> minimq.MiniClient:
        """Connect such a client for queues."""
        client = minimq.connect(self.url, keep_alive=None, reconnect=None)
        self.addCleanup(client.hang_up)
        return client

    def silent(self) -> socket.socket:
        """Connect, and send nothing."""
        silent = socket.create_connection(self.broker.address)
        self.addCleanup(silent.close)
        return silent

    def request(self) -> "tuple[Event, Future[Any]]":
        """Send a request to a service that waits for an event."""
        service, go = self.client(), Event()
        self.addCleanup(go.set)
        service.serve("/slow", lambda request: go.wait() and "done")
        client = self.client()
        return go, self.inThread(lambda: client.request(service.id, "/slow", timeout=None))

    def inThread(self, call: Callable[[], Any]) -> "Future[Any]":
        """Call in another thread."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        Thread(target=run, daemon=True).start()
        return future

    def contents(self, topic: str, number: int) -> list[str]:
        """Consume so many messages."""
        found = [self.worker.consume(topic, PATIENCE) for _ in range(number)]
        return [each.content for each in found if each is not None]


class LongTests(StepCase):
    """Durations that are far longer than a test: no step may make them end."""

    options = (
        "--redelivery", "3600", "--queue-expiry", "3600", "--consume-wait", "1800", "--request-timeout", "1800",
        "--handshake-timeout", "600", "--keepalive", "30", "--subscription-grace", "3600", "--message-ttl", "jobs=3600",
        "--idempotence-window", "3600",
    )  # fmt: skip

    def test_nothingEnds(self) -> None:
        """Idle clients, waiting calls, queues and messages in flight outlive steps of hours, forward and back."""
        idle, silent, jobs = self.client(), self.silent(), [str(number) for number in range(20)]
        for topic in "jobs", "kept.jobs":
            self.worker.produce_many(topic, jobs)
            self.assertEqual(self.contents(topic, 1), ["0"])
        other = self.mini()
        consuming = self.inThread(lambda: other.consume("empty", None))
        go, requesting = self.request()
        silent.setblocking(False)
        for step in 7200.0, 100.0, -3600.0:
            self.broker.step(step)
            idle.ping()
            self.assertRaises(BlockingIOError, silent.recv, 1)
            self.assertEqual((consuming.done(), requesting.done()), (False, False))
        for topic in "jobs", "kept.jobs":
            self.assertEqual(self.contents(topic, 19), jobs[1:])
        self.worker.produce("empty", "x")
        go.set()
        self.assertEqual((consuming.result(PATIENCE).content, requesting.result(PATIENCE)), ("x", "done"))
        self.assertNotRegex(self.broker.output, r"left:|was removed")

    def test_nothingIsForgotten(self) -> None:
        """So do ids of publications, bans, and the grace time of a subscription whose client has left."""
        client = self.client()
        got = client.subscribe("kept.ids")
        client.publish("kept.ids", 1, message_id="a")
        client.flush()
        self.assertEqual(client.ask("/broker/ban", {"address": "192.0.2.1", "seconds": 3600})["disconnected"], 0)
        with blipmq.connect(self.url, keep_alive=None, reconnect=None) as polling:
            polling.subscribe("polled")
        for step in 7200.0, -3600.0:
            self.broker.step(step)
            self.assertEqual([row["address"] for row in client.ask("/broker/bans")["bans"]], ["192.0.2.1"])
            found = client.ask("/broker/subscriptions")["subscriptions"]
            self.assertEqual([(row["topic"], row["connected"]) for row in found], [("polled", False)])
            client.publish("kept.ids", 2, message_id="a")
        client.publish("kept.ids", 3, message_id="b")
        values = [delivery.value for delivery in (got.next(PATIENCE), got.next(PATIENCE)) if delivery is not None]
        self.assertEqual(values, [1, 3])


class ScheduleTests(StepCase):
    """Schedules are due by the system clock."""

    def test_forwardAndBack(self) -> None:
        """A step forward makes them due, stored ones and others; a step back repeats nothing."""
        client = self.client()
        got = client.subscribe("#")
        for number, topic in enumerate(("kept.later", "later"), 1):
            client.ask("/schedule/add", {"topic": topic, "payload": number, "deliver_in": 3_600_000})
        self.broker.step(7200.0)
        found = [got.next(PATIENCE) for _ in range(2)]
        self.assertEqual(sorted(each.value for each in found if each is not None), [1, 2])
        self.broker.step(-7200.0)
        client.ask("/schedule/add", {"topic": "later", "payload": 3, "deliver_in": 0})
        last = got.next(PATIENCE)
        self.assertEqual(last and last.value, 3)
        self.assertEqual(client.ask("/schedule/list")["waiting"], 0)


class ShortTests(StepCase):
    """Durations of seconds: a step must not make them longer."""

    options = (
        "--redelivery", "1", "--consume-wait", "1", "--request-timeout", "1", "--handshake-timeout", "5",
        "--drain-timeout", "2",
    )  # fmt: skip

    def test_allEnd(self) -> None:
        """After a step of an hour back, all of them end in time."""
        self.worker.produce("kept.jobs", "a")
        self.assertEqual(self.contents("kept.jobs", 1), ["a"])
        silent, other = self.silent(), self.mini()
        consuming = self.inThread(lambda: other.consume("empty", PATIENCE))
        _, requesting = self.request()
        self.broker.step(-3600.0)
        self.assertIsNone(consuming.result(PATIENCE))
        error = requesting.exception(PATIENCE)
        assert isinstance(error, RequestFailed), error
        self.assertEqual(error.status, 504)
        silent.settimeout(PATIENCE)
        while silent.recv(1000):
            pass
        self.assertEqual(self.contents("kept.jobs", 1), ["a"])

    def test_stop(self) -> None:
        """A client that does not close is cut off, and the broker ends."""
        self.silent().sendall(b"PING:\n")
        self.broker.waitForOutput("joined from")
        os.kill(self.broker.pid, signal.SIGTERM)
        self.broker.waitForOutput("Port [0-9]+ Closed")
        self.broker.step(-3600.0, isWatched=False)
        self.assertEqual(self.broker.wait(), 0)


class ClientTests(StepCase):
    """Programs with each form of the client, whose clock is set back while a call waits."""

    def test_timeouts(self) -> None:
        """The call ends in time, as does the command line."""
        service, go = self.client(), Event()
        self.addCleanup(go.set)
        service.serve("/slow", lambda request: go.wait())
        codes = [code.format(url=self.url, id=service.id) for code in (_BLOCKING, _ASYNCIO, _TWISTED, _COMMAND)]
        for output in [self.inThread(partial(self.output, code)) for code in codes]:
            self.assertRegex(output.result(2 * PATIENCE), r"^waiting\n(fleximq: .*\n)?late\n$")

    def output(self, code: str) -> str:
        """Return the output of a program whose clock is set back an hour when it has printed its first line."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        clock = SteppedClock(Path(folder.name))
        environment = {**self.broker.variables, **clock.environment}
        words = [sys.executable, "-c", code]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
            assert program.stdout is not None
            first = program.stdout.readline()
            clock.step(-3600.0)
            try:
                return (first + program.communicate(timeout=PATIENCE)[0]).decode()
            finally:
                program.kill()


_BLOCKING = """
from threading import Timer
from fleximq.client.blocking import connect
with connect("{url}") as client:
    Timer(0.1, print, ["waiting"], dict(flush=True)).start()
    try:
        client.request({id}, "/slow", timeout=3)
    except TimeoutError:
        print("late")
"""
_ASYNCIO = """
import asyncio
from functools import partial
from fleximq.client.asyncio import connect
async def main():
    async with connect("{url}") as client:
        asyncio.get_running_loop().call_later(0.1, partial(print, "waiting", flush=True))
        try:
            await client.request({id}, "/slow", timeout=3)
        except TimeoutError:
            print("late")
asyncio.run(main())
"""
_TWISTED = """
from twisted.internet import task
from twisted.internet.defer import ensureDeferred
from fleximq.client.twisted import connect
async def main(reactor):
    client = await connect(reactor, "{url}")
    reactor.callLater(0.1, print, "waiting", flush=True)
    try:
        await client.request({id}, "/slow", timeout=3)
    except TimeoutError:
        print("late")
    await client.close()
task.react(lambda reactor: ensureDeferred(main(reactor)))
"""
_COMMAND = """
from threading import Timer
from fleximq.cli.commands import run
Timer(0.1, print, ["waiting"], dict(flush=True)).start()
run(["sub", "nothing", "--url", "{url}", "--for", "3"])
print("late")
"""
