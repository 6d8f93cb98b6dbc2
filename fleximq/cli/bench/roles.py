"""What publishers and subscribers do, each in a process of its own.

A role says "ready" when it is connected, waits for a word, and then tells what it did. Times are those of the
machine's monotonic clock, which all processes share.

Says in a message when it was published, in letters that every dialect can carry.
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

#: A message begins with its stamp, so it has at least these bytes.
STAMP_BYTES = 8
#: Of the clock's nanoseconds so many bytes are told: they last for three days.
_TOLD = 6
_MASK = (1 << 8 * _TOLD) - 1


def stamp() -> bytes:
    """Return the present moment of the machine's monotonic clock, which all processes share."""
    return b2a_base64((time.monotonic_ns() & _MASK).to_bytes(_TOLD, "big"), newline=False)


def age(payload: bytes, now: int) -> int:
    """Return how many nanoseconds before ``now`` (of that clock) a message was published."""
    return (now - int.from_bytes(a2b_base64(payload[:STAMP_BYTES]), "big")) & _MASK


READY, GO, OVER = "ready", "go", "over"
#: Who shares a queue looks so often whether all was published, in seconds.
_LOOK = 0.2
#: A subscriber keeps so many latencies, evenly taken.
_SAMPLES = 200_000


class RoleResult(NamedTuple):
    """How many messages, from when to when (seconds), and the latencies of some of them (nanoseconds)."""

    messages: int
    begun: float
    ended: float
    latencies: "array[int]"


def publisher(plan: Plan, pipe: Connection) -> None:
    """Connect, wait, and publish."""
    _report(pipe, lambda: _publish(plan, pipe))


def subscriber(plan: Plan, pipe: Connection) -> None:
    """Connect, and receive until all is there."""
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
    """Return what comes next; nothing if that is all."""
    if not plan.isShared:
        return client.receive(plan.receiveTimeout)
    deadline = time.monotonic() + plan.receiveTimeout
    while time.monotonic() < deadline:
        # Asked before the queue is: if all was published by then, an empty queue stays empty.
        isOver = pipe.poll()
        payloads = client.receive(min(_LOOK, plan.receiveTimeout))
        if payloads or isOver:
            return payloads
    return []
