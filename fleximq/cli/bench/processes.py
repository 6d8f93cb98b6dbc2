"""The processes of a benchmark: each reports "ready" when it is connected, waits for the start, and reports results.

Each message begins with a time stamp, in letters that every dialect supports, of the machine's monotonic clock.
"""

import multiprocessing
import time
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fleximq.cli.bench.dialect_clients import BENCH_CLIENTS, BenchClient, Plan
from fleximq.cli.client_commands.client_command import publishPace
from fleximq.client.errors import ClientError
from fleximq.errors import SettingError

#: Size of the time stamp, and so of the smallest message; bytes of nanoseconds in it, enough for three days.
STAMP_BYTES, _TOLD = 8, 6
_MASK = (1 << 8 * _TOLD) - 1
READY, GO, OVER = "ready", "go", "over"
_LOOK = 0.2  #: Consumers of a shared queue check this often whether all is published, in seconds.
_SAMPLES = 200_000  #: Limit of latencies in the evenly spaced sample of a subscriber.
_START = 60.0  #: Limit for a process to start and connect, in seconds.


class RoleResult(NamedTuple):
    """The number of messages, the first and last time (seconds), and a sample of latencies (nanoseconds)."""

    messages: int
    begun: float
    ended: float
    latencies: "array[int]"


class BenchResults(NamedTuple):
    """The results of each publisher and each subscriber."""

    publishers: list[RoleResult]
    subscribers: list[RoleResult]


def run(plan: Plan) -> BenchResults:
    """Run a benchmark; raises ClientError if a client could not connect, or lost its connection."""
    runners: list[_Runner] = []
    try:
        for work, number in ((_receive, plan.subscribers), (_publish, plan.publishers)):
            runners += [_Runner(work, plan) for _ in range(number)]
        for each in runners:
            if not each.pipe.poll(_START):
                raise ClientError(f"a client did not connect within {_START:g} seconds")
            each.received()
        for each in runners:
            each.pipe.send(GO)
        published = [each.received() for each in runners[plan.subscribers :]]
        for each in runners[: plan.subscribers]:
            with suppress(OSError):
                each.pipe.send(OVER)
        return BenchResults(published, [each.received() for each in runners[: plan.subscribers]])
    finally:
        for each in runners:
            with suppress(OSError):
                each.process.terminate()
                each.process.join()


class _Runner:
    def __init__(self, work: Callable[[Plan, Connection], RoleResult], plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_report, args=(work, plan, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def received(self) -> Any:
        try:
            found = self.pipe.recv()
        except (EOFError, OSError):
            raise ClientError("a client's process ended unexpectedly") from None
        if isinstance(found, str) and found != READY:
            raise ClientError(found)
        return found


def _report(work: Callable[[Plan, Connection], RoleResult], plan: Plan, pipe: Connection) -> None:
    try:
        pipe.send(work(plan, pipe))
    except (ClientError, SettingError, TimeoutError, OSError) as error:
        pipe.send(str(error) or type(error).__name__)
    except KeyboardInterrupt:
        pass
    finally:
        pipe.close()


def _publish(plan: Plan, pipe: Connection) -> RoleResult:
    client = BENCH_CLIENTS[plan.dialect](plan, False)
    rest = b"x" * (plan.size - STAMP_BYTES)
    pipe.send(READY)
    pipe.recv()
    begun = time.monotonic()
    pace = publishPace(plan.rate)
    for sent in range(0, plan.messages, plan.batch):
        number = min(plan.batch, plan.messages - sent)
        pace(number)
        client.publish([stamp() + rest] * number)
    client.flush()
    result = RoleResult(plan.messages, begun, time.monotonic(), array("q"))
    client.close()
    return result


def _receive(plan: Plan, pipe: Connection) -> RoleResult:
    client = BENCH_CLIENTS[plan.dialect](plan, True)
    latencies = array("q")
    every = max(1, plan.expected // _SAMPLES)
    pipe.send(READY)
    pipe.recv()
    begun = ended = 0.0
    received = 0
    while received < plan.expected:
        payloads = _received(client, plan, pipe)
        if not payloads:
            break
        now = time.monotonic_ns()
        begun = begun or now / 1e9
        ended = now / 1e9
        first = -received % every
        latencies.extend([age(payload, now) for payload in payloads[first::every]])
        received += len(payloads)
    client.close()
    return RoleResult(received, begun, ended, latencies)


def _received(client: BenchClient, plan: Plan, pipe: Connection) -> list[bytes]:
    """Return the next messages; none at the end."""
    if not plan.isShared:
        return client.receive(plan.receiveTimeout)
    deadline = time.monotonic() + plan.receiveTimeout
    while time.monotonic() < deadline:
        # Checked before the queue: if all is published, an empty queue remains empty.
        isOver = pipe.poll()
        payloads = client.receive(min(_LOOK, plan.receiveTimeout))
        if payloads or isOver:
            return payloads
    return []


def stamp() -> bytes:
    """Return the time stamp of now."""
    return b2a_base64((time.monotonic_ns() & _MASK).to_bytes(_TOLD, "big"), newline=False)


def age(payload: bytes, now: int) -> int:
    """Return the nanoseconds between a message's time stamp and ``now``."""
    return (now - int.from_bytes(a2b_base64(payload[:STAMP_BYTES]), "big")) & _MASK
