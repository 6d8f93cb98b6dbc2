"""Runs a benchmark: starts a process for each client, gives the word, and collects what they did."""

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fleximq.cli.bench.plan import Plan
from fleximq.cli.bench.roles import GO, OVER, READY, Done, publisher, subscriber
from fleximq.client.errors import ClientError

#: How long a process may take to start and connect, in seconds.
_START = 60.0


class Course(NamedTuple):
    """What each publisher and each subscriber did."""

    publishers: list[Done]
    subscribers: list[Done]


class _Runner:
    def __init__(self, work: Callable[[Plan, Connection], None], plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(plan, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def ready(self) -> None:
        """Wait until it is connected."""
        if not self.line.poll(_START):
            raise ClientError(f"a client did not connect within {_START:g} seconds")
        self._heard()

    def go(self) -> None:
        """Give the word."""
        self.line.send(GO)

    def over(self) -> None:
        """Tell it that all was published."""
        with suppress(OSError):
            self.line.send(OVER)

    def done(self) -> Done:
        """Wait for what it did."""
        found = self._heard()
        assert isinstance(found, Done)
        return found

    def _heard(self) -> Any:
        try:
            found = self.line.recv()
        except (EOFError, OSError):
            raise ClientError("a client's process ended by itself") from None
        if isinstance(found, str) and found != READY:
            raise ClientError(found)
        return found

    def end(self) -> None:
        """End its process."""
        self.process.terminate()
        self.process.join()


def run(plan: Plan) -> Course:
    """Do what is planned.

    :raises ClientError: a client could not connect, or lost its connection.
    """
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
        return Course(published, [each.done() for each in subscribers])
    finally:
        for each in runners:
            with suppress(OSError):
                each.end()
