"""``fleximq top``: a live table of a broker's clients, topics and rates."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, count, seconds
from fleximq.cli.output import outJson
from fleximq.client.blocking import Client
from fleximq.errors import SettingError
from fleximq.values.printable import printable

#: Clients and topics in one request.
_PAGE = 1000
#: Limit of clients and topics in a snapshot, so that it is quick.
_MAX_ROWS = 20_000


class Snapshot(NamedTuple):
    """The broker's answers at one time of the monotonic clock, in seconds."""

    time: float
    about: Mapping[str, Any]
    clients: Mapping[int, Mapping[str, Any]]
    topics: Mapping[str, Mapping[str, Any]]


def snapshot(client: Client, timeout: float) -> Snapshot:
    """Query a broker; raises RequestFailed if this client may not query it."""
    about = client.ask("/broker/about", timeout=timeout)
    clients = {row["client_id"]: row for row in _rows(client, "clients", timeout)}
    topics = {row["topic"]: row for row in _rows(client, "topics", timeout)}
    return Snapshot(time.monotonic(), about, clients, topics)


def _rows(client: Client, name: str, timeout: float) -> Iterator[Mapping[str, Any]]:
    after: Any = None
    found = 0
    while found < _MAX_ROWS:
        page = client.ask(f"/broker/{name}", {"limit": _PAGE} | ({} if after is None else {"after": after}), timeout)
        yield from page[name]
        found += len(page[name])
        after = page["next"]
        if after is None:
            return


def rates(before: Snapshot, now: Snapshot) -> dict[str, float]:
    """Return the messages per second published to each topic between two snapshots."""
    span = max(now.time - before.time, 1e-9)
    found = {}
    for name, row in now.topics.items():
        old = before.topics.get(name, {}).get("published", 0)
        # The count of a topic that was removed meanwhile starts at 0 again.
        found[name] = max(0, row["published"] - old if row["published"] >= old else row["published"]) / span
    return found


def summary(before: Snapshot, now: Snapshot, rows: int) -> dict[str, Any]:
    """Return the object of ``--json``: the broker, its rate, the busiest topics and the oldest clients."""
    each = rates(before, now)
    busiest = sorted(now.topics.values(), key=lambda row: (-each[row["topic"]], -row["published"], row["topic"]))
    return {
        "version": now.about.get("version"),
        "uptime": now.about.get("uptime"),
        "clients": now.about.get("clients", len(now.clients)),
        "topics": now.about.get("topics", len(now.topics)),
        "rate": round(sum(each.values()), 1),
        "busiest": [row | {"rate": round(each[row["topic"]], 1)} for row in map(dict, busiest[:rows])],
        "connected": [dict(row) for row in list(now.clients.values())[:rows]],
    }


def screen(found: Mapping[str, Any], url: str) -> Any:
    """Return the table for a :func:`summary`."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    uptime = time.strftime("%H:%M:%S", time.gmtime(found["uptime"] or 0))
    days = int((found["uptime"] or 0) // 86400)
    title = Text.assemble(
        ("FlexiMQ ", "bold"),
        f"{found['version']} at {url}, up {f'{days} d ' if days else ''}{uptime}\n",
        (f"{found['rate']:,.0f}", "bold green"),
        f" messages/s, {found['clients']:,} clients, {found['topics']:,} topics",
    )
    topics = _table("Topic", ("messages/s", "published", "subscribers", "queued"))
    for row in found["busiest"]:
        queued = "" if row["queued"] is None else f"{row['queued']:,}"
        topics.add_row(
            Text(printable(row["topic"])),
            f"{row['rate']:,.0f}",
            f"{row['published']:,}",
            f"{row['subscribers']:,}",
            queued,
        )
    clients = _table("Client", ("id", "dialect", "principal", "from", "connected", "subscriptions"))
    for row in found["connected"]:
        clients.add_row(
            Text(printable(row["name"])),
            str(row["client_id"]),
            row["dialect"],
            Text(printable(row["principal"] or "")),
            Text(printable(row["address"])),
            f"{row['connected']:,.0f} s",
            f"{row['subscriptions']:,}",
        )
    parts: Iterable[Table] = [topics, clients]
    return Group(title, *parts)


def _table(first: str, others: Iterable[str]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column(first, no_wrap=True, min_width=14, style="bold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=1.0, help="seconds between two snapshots [1]"
    )
    parser.add_argument("--count", metavar="N", type=count, help="end after this many snapshots")
    parser.add_argument("--rows", metavar="N", type=count, default=15, help="number of topics and clients to show [15]")
    parser.add_argument("--json", action="store_true", help="one JSON object per snapshot")


def _run(arguments: Namespace, address: Address) -> int:
    if arguments.rows > _MAX_ROWS:
        raise SettingError(f"rows is {arguments.rows}, but must be at most {_MAX_ROWS}")
    with address.connect() as client:
        found = _looks(client, arguments, address.timeout)
        if arguments.json:
            for each in found:
                outJson(each)
        else:
            _draw(found, address.url)
    return 0


def _looks(client: Client, arguments: Namespace, timeout: float) -> Iterator[dict[str, Any]]:
    before = snapshot(client, timeout)
    left = arguments.count
    while left is None or left > 0:
        time.sleep(arguments.interval)
        now = snapshot(client, timeout)
        yield summary(before, now, arguments.rows)
        before = now
        left = None if left is None else left - 1


def _draw(found: Iterator[dict[str, Any]], url: str) -> None:
    """Redraw the table in place; without a terminal, print one after the other."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        for each in found:
            console.print(screen(each, url))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for each in found:
            live.update(screen(each, url), refresh=True)


#: The command.
TOP = brokerCommand("top", "Watch clients, topics and rates of a broker.", _prepare, _run)
