"""Runs a benchmark: starts a process for each client, and collects the results."""

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fleximq.cli.bench.plan import Plan
from fleximq.cli.bench.roles import GO, OVER, READY, RoleResult, publisher, subscriber
from fleximq.client.errors import ClientError

#: Limit for a process to start and connect, in seconds.
_START = 60.0


class BenchResults(NamedTuple):
    """The results of each publisher and each subscriber."""

    publishers: list[RoleResult]
    subscribers: list[RoleResult]


class _Runner:
    def __init__(self, work: Callable[[Plan, Connection], None], plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(plan, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def ready(self) -> None:
        """Wait until it is connected."""
        if not self.pipe.poll(_START):
            raise ClientError(f"a client did not connect within {_START:g} seconds")
        self._received()

    def go(self) -> None:
        """Start it."""
        self.pipe.send(GO)

    def over(self) -> None:
        """Report that all messages are published."""
        with suppress(OSError):
            self.pipe.send(OVER)

    def done(self) -> RoleResult:
        """Wait for its results."""
        found = self._received()
        assert isinstance(found, RoleResult)
        return found

    def _received(self) -> Any:
        try:
            found = self.pipe.recv()
        except (EOFError, OSError):
            raise ClientError("a client's process ended unexpectedly") from None
        if isinstance(found, str) and found != READY:
            raise ClientError(found)
        return found

    def end(self) -> None:
        """Terminate its process."""
        self.process.terminate()
        self.process.join()


def run(plan: Plan) -> BenchResults:
    """Run a benchmark; raises ClientError if a client could not connect, or lost its connection."""
    runners: list[_Runner] = []
    try:
        subscribers = [_Runner(subscriber, plan) for _ in range(plan.subscribers)]
        runners += subscribers
        publishers = [_Runner(publisher, plan) for _ in range(plan.publishers)]
        runners += publishers
        for each in runners:
            each.ready()
        for each in runners:
            each.go()
        published = [each.done() for each in publishers]
        for each in subscribers:
            each.over()
        return BenchResults(published, [each.done() for each in subscribers])
    finally:
        for each in runners:
            with suppress(OSError):
                each.end()
