"""A real broker whose system clock is set while it runs, by libfaketime; its monotonic clock stays true."""

import os
import socket
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Thread
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client import blocking
from fleximq.client.errors import RequestFailed
from fleximq.client.minimq import blocking as minimq
from tests.broker_process import PATIENCE, BrokerProcess
from tests.notify_socket import FakeManager

_LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
#: The watchdog is fed twice in this time, in microseconds.
_WATCHDOG = 1_000_000


class SteppedBroker(BrokerProcess):
    """A broker whose system clock can be set by :meth:`step`; ``manager`` gets its notifications."""

    fresh = True

    def __init__(self, *arguments: str) -> None:
        self.manager = FakeManager()
        super().__init__(*arguments)
        self._offset = self.folder / "offset"
        self._ahead, self._steps = 0.0, 0
        self._set()
        self._environment = {
            "LD_PRELOAD": str(_LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NOTIFY_SOCKET": self.manager.name,
            "WATCHDOG_USEC": str(_WATCHDOG),
        }

    def stop(self, *arguments: Any) -> bool:
        """Close the manager's socket, too."""
        stopped = super().stop(*arguments)
        self.manager.close()
        return stopped

    def step(self, seconds: float) -> None:
        """Set the system clock, and wait until the broker has seen it and has fed the watchdog three times more."""
        self._ahead += seconds
        self._steps += 1
        self._set()
        self.waitFor(lambda: self.output.count("The system clock was set by") == self._steps, "the line about a step")
        self.manager.waitFor("WATCHDOG=1", self.manager.look().count("WATCHDOG=1") + 3)

    def _set(self) -> None:
        new = self.folder / "offset.new"
        new.write_text(f"{self._ahead:+g}")
        os.replace(new, self._offset)


class StepCase(SynchronousTestCase):
    """``broker`` runs with ``options``."""

    skip = None if _LIBRARY else "libfaketime is missing; it is in the Debian package faketime"
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
        service.serve("/slow", lambda request: go.wait(PATIENCE) and "done")
        client = self.client()
        return go, self.inThread(lambda: client.request(service.id, "/slow", timeout=2 * PATIENCE))

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
        "--handshake-timeout", "600", "--keepalive", "30",
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
        for step in 7200.0, 100.0, -3600.0, 7200.0:
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


class ShortTests(StepCase):
    """Durations of a second: a step must not make them longer."""

    options = (
        "--redelivery", "1", "--consume-wait", "1", "--request-timeout", "1", "--handshake-timeout", "1",
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
