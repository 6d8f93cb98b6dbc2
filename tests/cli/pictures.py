"""Draws the terminal pictures of docs/guides/command-line.rst: ``bench`` and ``top``, from fixed numbers.

``python -m tests.cli.pictures`` writes them to docs/pictures/.
"""

import io
from array import array
from pathlib import Path
from typing import Any

from rich.console import Console

from fleximq.cli.bench.command import figures
from fleximq.cli.bench.command import picture as benchPicture
from fleximq.cli.bench.dialect_clients import Plan
from fleximq.cli.bench.processes import BenchResults, RoleResult
from fleximq.cli.client_commands.broker_options import Address
from fleximq.cli.client_commands.top import Snapshot, screen, summary

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_WIDTH = 100


def pictures() -> dict[str, str]:
    """Return each picture as SVG, by the name of its file."""
    return {
        "command_bench.svg": _drawn("bench", "fleximq bench", benchPicture(_measured())),
        "command_top.svg": _drawn("top", "fleximq top", screen(_seen(), "tcp://localhost:7890")),
    }


def _drawn(id: str, title: str, shown: Any) -> str:
    console = Console(width=_WIDTH, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor",
                      legacy_windows=False, _environ={})  # fmt: skip
    console.print(shown)
    lines = console.export_svg(title=title, unique_id=f"fleximq-{id}").splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _measured() -> dict[str, Any]:
    """Return what two publishers and two subscribers might have done: most messages take two to eight milliseconds."""
    plan = Plan(Address("tcp://localhost:7890"), "fleximq", "bench", 2, 2, 100_000, 100, 100, None, 10.0)
    late = array("q", [int(1_300_000 * 1.00085**n) for n in range(3000)])
    return figures(
        plan,
        BenchResults(
            [RoleResult(100_000, 1.0, 1.61, array("q")), RoleResult(100_000, 1.0, 1.64, array("q"))],
            [RoleResult(200_000, 1.002, 1.652, late), RoleResult(200_000, 1.002, 1.655, late)],
        ),
    )


def _seen() -> dict[str, Any]:
    """Return what a broker with some clients might say."""
    topics = (("weather.north", 1250, 88_214, 3, None), ("jobs", 310, 20_115, 1, 17), ("chat", 2, 164, 5, None))
    clients = (
        (1000, "station", "fleximq", "alice", 4210, 1), (1001, "", "minimq", "", 3999, 0),
        (1002, "", "blipmq", "bob", 120, 2), (1003, "user-1f3a9c02", "identity", "", 64, 1),
    )  # fmt: skip
    rows = {
        id: {"client_id": id, "name": name, "dialect": dialect, "principal": principal,
             "address": f"127.0.0.1:{50_000 + id}", "connected": connected, "subscriptions": subscriptions}
        for id, name, dialect, principal, connected, subscriptions in clients
    }  # fmt: skip

    def snapshot(time: float, isLater: bool) -> Snapshot:
        return Snapshot(
            time,
            {"version": "1.0", "uptime": 4242, "clients": len(clients), "topics": len(topics)},
            rows,
            {
                name: {"topic": name, "published": published + (rate if isLater else 0), "subscribers": subscribers,
                       "queued": queued}
                for name, rate, published, subscribers, queued in topics
            },
        )  # fmt: skip

    return summary(snapshot(1.0, False), snapshot(2.0, True), 15) | {"stale": None}


if __name__ == "__main__":
    for name, text in pictures().items():
        (PICTURES / name).write_text(text)
