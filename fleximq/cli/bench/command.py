"""``fleximq bench``: measures a broker with clients like those of a program, each in its own process.

``benchmarks/`` in the source measures the broker alone; this includes the client library.
"""

import csv
import math
import secrets
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fleximq.cli.bench.dialect_clients import BENCH_CLIENTS, Plan
from fleximq.cli.bench.processes import STAMP_BYTES, BenchResults, RoleResult, run
from fleximq.cli.client_commands.broker_options import Address, count, rate, seconds
from fleximq.cli.client_commands.client_command import clientCommand, progress
from fleximq.cli.command import argument
from fleximq.cli.output import console, jsonOption, outJson, say, table
from fleximq.errors import SettingError, systemReason
from fleximq.limits import MEBIBYTE

_CLIENTS = 64  #: Limit of clients, since each is a process.
_SIZE_MOST = MEBIBYTE
PERCENTILES = (50.0, 90.0, 99.0, 99.9)  #: Reported percentiles of the latencies.
_BAR = 40  #: Width of the longest bar in characters.


def _orNone(text: str) -> int:
    found = int(text)
    if found < 0:
        raise ValueError(text)
    return found


_orNone.__name__ = "number"  # used in the message of argparse


@clientCommand(
    "bench", argument("topic", "TOPIC", "the topic [a new one]", nargs="?"),
    argument("--dialect", None, "the dialect of the clients [fleximq]", choices=(*BENCH_CLIENTS,), default="fleximq"),
    argument("--publishers", "N", "number of publishers [1]", type=count, default=1),
    argument("--subscribers", "N", "number of subscribers [1]", type=_orNone, default=1),
    argument("--messages", "N", "messages of each publisher [100000]", type=count, default=100_000),
    argument("--size", "BYTES", "bytes of a message [100]", type=count, default=100),
    argument("--batch", "N", "messages sent at once [100]", type=count, default=100),
    argument("--rate", "N", "limit of messages per second for each publisher", type=rate),
    argument("--patience", "SECONDS", "limit for waiting for missing messages [10]", type=seconds, default=10.0),
    jsonOption("all numbers as one JSON object"),
    argument("--csv", "FILE", "add a line to this file"),
)  # fmt: skip
def bench(arguments: Namespace, address: Address) -> int:
    """Measure a broker's throughput and latency with clients like a program's own."""
    if not STAMP_BYTES <= arguments.size <= _SIZE_MOST:
        raise SettingError(f"size is {arguments.size}, but must be between {STAMP_BYTES} and {_SIZE_MOST}")
    clients = arguments.publishers + arguments.subscribers
    if clients > _CLIENTS:
        raise SettingError(f"there are {clients} clients, but the limit is {_CLIENTS}")
    plan = Plan(
        address, arguments.dialect, arguments.topic or f"bench.{secrets.token_hex(4)}",
        arguments.publishers, arguments.subscribers, arguments.messages,
        arguments.size, arguments.batch, arguments.rate, arguments.patience,
    )  # fmt: skip
    with progress("measuring", None):
        found = figures(plan, run(plan))
    if arguments.csv:
        _append(arguments.csv, row(found))
    if arguments.json:
        outJson(found)
    else:
        console().print(picture(found))
    if found["lost"]:
        say(f"fleximq: {found['lost']} messages did not arrive within {arguments.patience:g} seconds")
    return 1 if found["lost"] else 0


def _append(path: str, line: dict[str, Any]) -> None:
    try:
        with open(path, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(line))
            if not file.tell():
                writer.writeheader()
            writer.writerow(line)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {systemReason(error)}") from error


def figures(plan: Plan, course: BenchResults) -> dict[str, Any]:
    """Return the object of ``--json``: rates in messages and MB (10^6 bytes) per second, latencies in microseconds."""
    wanted = plan.expected * (min(1, plan.subscribers) if plan.isShared else plan.subscribers)
    missing = wanted - sum(done.messages for done in course.subscribers) if course.subscribers else 0
    latencies = sorted(each for done in course.subscribers for each in done.latencies)
    begun = min((done.begun for done in course.publishers), default=0.0)
    late = {f"p{share:g}": percentile(latencies, share) for share in PERCENTILES if latencies}
    late |= {"max": latencies[-1]} if latencies else {}
    return {
        "dialect": plan.dialect, "topic": plan.topic, "size": plan.size, "batch": plan.batch,
        "publishers": _role(plan, course.publishers, begun), "subscribers": _role(plan, course.subscribers, begun),
        "lost": max(0, missing), "repeated": max(0, -missing),
        "latency_us": {name: round(each / 1000, 1) for name, each in late.items()},
        "histogram_us": histogram(latencies),
    }  # fmt: skip


def _role(plan: Plan, done: Sequence[RoleResult], published: float) -> dict[str, Any]:
    if not done:
        return {"count": 0, "messages": 0, "rate": 0.0, "megabytes": 0.0, "each": []}
    begun = min((each.begun for each in done if each.messages), default=0.0)
    ended = max(each.ended for each in done)
    messages = sum(each.messages for each in done)
    rate = _rate(messages, begun, ended, published)
    return {
        "count": len(done),
        "messages": messages,
        "rate": round(rate, 1),
        "megabytes": round(rate * plan.size / 1e6, 3),
        "each": [round(_rate(each.messages, each.begun, each.ended, published), 1) for each in done],
    }


def _rate(messages: int, begun: float, ended: float, published: float) -> float:
    # A single batch took as long as its transit.
    return messages / max(ended - (begun if begun < ended else published), 1e-9) if messages else 0.0


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the percentile of at least one sorted value."""
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def histogram(ordered: Sequence[int]) -> list[tuple[float, int]]:
    """Return pairs of a limit, 2^n microseconds, and the number of latencies (nanoseconds) up to it, in order."""
    counts = Counter(max(0, math.ceil(math.log2(max(each, 1) / 1000))) for each in ordered)
    return [(2.0**step, counts[step]) for step in range(min(counts), max(counts) + 1)] if counts else []


def picture(found: dict[str, Any]) -> Any:
    """Return the table and the histogram for a terminal."""
    from rich.console import Group
    from rich.text import Text

    rows = [
        (name, role["count"], role["messages"], round(role["rate"]), round(role["megabytes"], 1))
        for name, role in ((name, found[name]) for name in ("publishers", "subscribers"))
        if role["count"]
    ]
    shown = table(("", "clients", "messages", "messages/s", "MB/s"), rows, expand=False)
    parts: list[Any] = [Text(f"{found['dialect']}, {found['size']} bytes, {found['batch']} at a time", "bold"), shown]
    if found["latency_us"]:
        told = "  ".join(f"{name} {_time(value)}" for name, value in found["latency_us"].items())
        parts += [Text(f"latency  {told}\n"), Text("\n".join(_bars(found["histogram_us"])))]
    if found["repeated"]:
        parts.append(Text(f"\n{found['repeated']:,} messages were delivered again", "bold yellow"))
    if found["lost"]:
        parts.append(Text(f"\n{found['lost']:,} messages did not arrive", "bold red"))
    return Group(*parts)


def _bars(steps: Sequence[tuple[float, int]]) -> list[str]:
    most = max(number for _, number in steps)
    total = sum(number for _, number in steps)
    return [
        f"{'to ' + _time(until):>12}  {'█' * math.ceil(_BAR * number / most):<{_BAR}}  {100 * number / total:5.1f} %"
        for until, number in steps
    ]


def _time(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1000:.1f} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.2f} s"


def row(found: dict[str, Any]) -> dict[str, Any]:
    """Return the line for ``--csv``, by its columns."""
    late, published, received = found["latency_us"], found["publishers"], found["subscribers"]
    return {
        "dialect": found["dialect"], "size": found["size"], "batch": found["batch"], "publishers": published["count"],
        "subscribers": received["count"], "messages": published["messages"], "publish_rate": published["rate"],
        "receive_rate": received["rate"], "lost": found["lost"],
        "p50_us": late.get("p50"), "p99_us": late.get("p99"), "max_us": late.get("max"),
    }  # fmt: skip
