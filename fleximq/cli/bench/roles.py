"""The publisher and subscriber processes of a benchmark.

A process reports "ready" when it is connected, waits for the start, and then reports its results. Each message begins
with a time stamp, in letters that every dialect supports. Times are of the machine's monotonic clock, which all
processes share.
"""

import time
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

from fleximq.cli.bench.dialect_clients import BENCH_CLIENTS
from fleximq.cli.bench.plan import BenchClient, Plan
from fleximq.cli.client_commands.broker_command import PublishRate
from fleximq.client.errors import ClientError
from fleximq.errors import SettingError

#: Size of the time stamp, and so of the smallest message.
STAMP_BYTES = 8
#: Bytes of the clock's nanoseconds in a time stamp, enough for three days.
_TOLD = 6
_MASK = (1 << 8 * _TOLD) - 1


def stamp() -> bytes:
    """Return the time stamp of now."""
    return b2a_base64((time.monotonic_ns() & _MASK).to_bytes(_TOLD, "big"), newline=False)


def age(payload: bytes, now: int) -> int:
    """Return the nanoseconds between a message's time stamp and ``now``."""
    return (now - int.from_bytes(a2b_base64(payload[:STAMP_BYTES]), "big")) & _MASK


READY, GO, OVER = "ready", "go", "over"
#: Consumers of a shared queue check this often whether all is published, in seconds.
_LOOK = 0.2
#: Limit of latencies in the evenly spaced sample of a subscriber.
_SAMPLES = 200_000


class RoleResult(NamedTuple):
    """The number of messages, the first and last time (seconds), and a sample of latencies (nanoseconds)."""

    messages: int
    begun: float
    ended: float
    latencies: "array[int]"


def publisher(plan: Plan, pipe: Connection) -> None:
    """Connect, wait for the start, and publish."""
    _report(pipe, lambda: _publish(plan, pipe))


def subscriber(plan: Plan, pipe: Connection) -> None:
    """Connect, wait for the start, and receive all messages."""
    _report(pipe, lambda: _receive(plan, pipe))


def _report(pipe: Connection, work: Callable[[], RoleResult]) -> None:
    try:
        pipe.send(work())
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
    pace = PublishRate(plan.rate)
    sent = 0
    while sent < plan.messages:
        number = min(plan.batch, plan.messages - sent)
        pace.wait(number)
        client.publish([stamp() + rest] * number)
        sent += number
    client.flush()
    ended = time.monotonic()
    client.close()
    return RoleResult(sent, begun, ended, array("q"))


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
