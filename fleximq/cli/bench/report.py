"""The results of a benchmark as numbers, a table and a histogram."""

import math
from collections.abc import Sequence
from typing import Any

from fleximq.cli.bench.plan import Plan
from fleximq.cli.bench.processes import BenchResults, RoleResult
from fleximq.cli.output import table

#: Reported percentiles of the latencies.
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
#: Width of the longest bar in characters.
_BAR = 40


def figures(plan: Plan, course: BenchResults) -> dict[str, Any]:
    """Return the object of ``--json``: rates in messages and MB (10^6 bytes) per second, latencies in microseconds."""
    wanted = plan.expected * (min(1, plan.subscribers) if plan.isShared else plan.subscribers)
    missing = wanted - sum(done.messages for done in course.subscribers) if course.subscribers else 0
    latencies = sorted(each for done in course.subscribers for each in done.latencies)
    begun = min((done.begun for done in course.publishers), default=0.0)
    return {
        "dialect": plan.dialect,
        "topic": plan.topic,
        "size": plan.size,
        "batch": plan.batch,
        "publishers": _role(plan, course.publishers, begun),
        "subscribers": _role(plan, course.subscribers, begun),
        "lost": max(0, missing),
        "repeated": max(0, -missing),
        "latency_us": {f"p{share:g}": round(percentile(latencies, share) / 1000, 1) for share in PERCENTILES}
        | {"max": round(latencies[-1] / 1000, 1)}
        if latencies
        else {},
        "histogram_us": histogram(latencies),
    }


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
    counts: dict[int, int] = {}
    for each in ordered:
        step = max(0, math.ceil(math.log2(max(each, 1) / 1000)))
        counts[step] = counts.get(step, 0) + 1
    return [(2.0**step, counts.get(step, 0)) for step in range(min(counts), max(counts) + 1)] if counts else []


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


#: The columns of ``--csv``.
COLUMNS = (
    "dialect", "size", "batch", "publishers", "subscribers", "messages", "publish_rate", "receive_rate", "lost",
    "p50_us", "p99_us", "max_us",
)  # fmt: skip


def row(found: dict[str, Any]) -> dict[str, Any]:
    """Return the line for ``--csv``."""
    late = found["latency_us"]
    published, received = found["publishers"], found["subscribers"]
    values = (
        found["dialect"], found["size"], found["batch"], published["count"], received["count"], published["messages"],
        published["rate"], received["rate"], found["lost"], late.get("p50"), late.get("p99"), late.get("max"),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))
