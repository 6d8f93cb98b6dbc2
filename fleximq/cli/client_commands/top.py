"""``fleximq top``: a live table of a broker's clients, topics, queues and rates."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple

from fleximq.cli.client_commands.broker_options import Address, Outages, count, seconds
from fleximq.cli.client_commands.client_command import Row, clientCommand, pagedRows, readingAnswers
from fleximq.cli.command import argument
from fleximq.cli.output import console, jsonOption, outJson, table
from fleximq.client.blocking import Client
from fleximq.client.errors import ConnectionLost, RequestFailed
from fleximq.client.settings import State
from fleximq.errors import SettingError
from fleximq.values.printable import printable

_MAX_ROWS = 20_000  #: Limit of clients and topics in a snapshot, so that it is quick.


class Snapshot(NamedTuple):
    """The broker's answers at one time of the monotonic clock, in seconds."""

    time: float
    about: Mapping[str, Any]
    clients: Mapping[int, Row]
    topics: Mapping[str, Row]
    queues: Mapping[str, Row]


def snapshot(client: Client, timeout: float) -> Snapshot:
    """Query a broker; raises RequestFailed if this client may not query it."""

    def rows(name: str, key: str) -> dict[Any, Row]:
        found = pagedRows(client, f"/broker/{name}", name, timeout, _MAX_ROWS)
        return {row[key]: row for row in found}

    about = client.ask("/broker/about", timeout=timeout)
    clients, topics = rows("clients", "client_id"), rows("topics", "topic")
    try:
        queues = rows("queues", "topic")
    except RequestFailed:  # not permitted, or this node of a mesh does not own the journal
        queues = {}
    return Snapshot(time.monotonic(), about, clients, topics, queues)


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
    """Return the object of ``--json`` without ``stale``: broker, rate, the busiest topics, the longest queues and the
    oldest clients.
    """
    each = rates(before, now)
    busiest = sorted(now.topics.values(), key=lambda row: (-each[row["topic"]], -row["published"], row["topic"]))
    longest = sorted(now.queues.values(), key=lambda row: (-row["messages"] - row["in_flight"], row["topic"]))
    return {
        "version": now.about.get("version"),
        "uptime": now.about.get("uptime"),
        "clients": now.about.get("clients", len(now.clients)),
        "topics": now.about.get("topics", len(now.topics)),
        "rate": round(sum(each.values()), 1),
        "busiest": [row | {"rate": round(each[row["topic"]], 1)} for row in map(dict, busiest[:rows])],
        "queues": [dict(row) for row in longest[:rows]],
        "connected": [dict(row) for row in list(now.clients.values())[:rows]],
    }


def screen(found: Mapping[str, Any], url: str) -> Any:
    """Return the picture of a :func:`summary`."""
    from rich.console import Group
    from rich.text import Text

    uptime = time.strftime("%H:%M:%S", time.gmtime(found["uptime"] or 0))
    days = int((found["uptime"] or 0) // 86400)
    stale = "" if found["stale"] is None else f"STALE: {found['stale']:.0f} s old, the broker does not answer\n"
    title = Text.assemble(
        (stale, "bold red"),
        ("FlexiMQ ", "bold"),
        f"{printable(str(found['version']))} at {url}, up {f'{days} d ' if days else ''}{uptime}\n",
        (f"{found['rate']:,.0f}", "bold green"),
        f" messages/s, {_counted(found['clients'], 'client')}, {_counted(found['topics'], 'topic')}",
    )
    topics = [
        (row["topic"], round(row["rate"]), row["published"], row["subscribers"], row["queued"])
        for row in found["busiest"]
    ]
    queues = [
        (row["topic"], row["messages"], row["in_flight"], "paused" if row["paused"] else row["consumers"],
         round(row["in_per_second"]), round(row["out_per_second"]), round(row["oldest_seconds"]))
        for row in found["queues"]
    ]  # fmt: skip
    clients = [
        (row.get("client_name") or row["name"], str(row["client_id"]), row["dialect"], row["principal"] or "",
         row["address"], round(row["connected"]), row["subscriptions"])
        for row in found["connected"]
    ]  # fmt: skip
    topicHeadings = ("Topic", "messages/s", "published", "subscribers", "queued")
    clientHeadings = ("Client", "id", "dialect", "principal", "from", "seconds", "subs")
    queueHeadings = ("Queue", "waiting", "in flight", "consumers", "in/s", "out/s", "oldest s")
    tables = [table(topicHeadings, topics), *([table(queueHeadings, queues)] if queues else [])]
    return Group(title, *tables, table(clientHeadings, clients))


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@clientCommand(
    "top", argument("--interval", "SECONDS", "seconds between two snapshots [1]", type=seconds, default=1.0),
    argument("--count", "N", "end after this many snapshots", type=count),
    argument("--rows", "N", "number of topics, queues and clients to show [15]", type=count, default=15), jsonOption(),
)  # fmt: skip
def top(arguments: Namespace, address: Address) -> None:
    """Watch clients, topics, queues and rates of a broker."""
    if arguments.rows > _MAX_ROWS:
        raise SettingError(f"rows is {arguments.rows}, but must be at most {_MAX_ROWS}")
    isLive = sys.stdout.isatty() and not arguments.json
    isSilent = isLive and sys.stderr.isatty()  # the picture itself says it
    with readingAnswers(), address.connect(on_state=Outages(isSilent=isSilent)) as client:
        found = _looks(client, arguments, address.timeout)
        if arguments.json:
            for each in found:
                outJson(each)
        else:
            _draw(found, client)


def _looks(client: Client, arguments: Namespace, timeout: float) -> Iterator[dict[str, Any]]:
    before = now = snapshot(client, timeout)
    for _ in repeat(None) if arguments.count is None else repeat(None, arguments.count):
        time.sleep(arguments.interval)
        stale: float | None = None
        try:
            if client.state is State.AWAY:
                raise ConnectionLost("the client is reconnecting")
            before, now = now, snapshot(client, timeout)
        except (ConnectionLost, TimeoutError):
            if client.state is State.CLOSED:
                raise
            stale = round(time.monotonic() - now.time, 1)
        yield summary(before, now, arguments.rows) | {"stale": stale}


def _draw(found: Iterator[dict[str, Any]], client: Client) -> None:
    """Redraw the table in place; without a terminal, print one after the other."""
    from rich.live import Live

    shown = console(isWide=False)
    if not shown.is_terminal:
        for each in found:
            shown.print(screen(each, client.url))
        return
    with Live(console=shown, screen=True, auto_refresh=False) as live:
        for each in found:
            live.update(screen(each, client.url), refresh=True)
    shown.print(live.get_renderable())  # the last one stays, after --count
