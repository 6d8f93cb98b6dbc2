"""``fleximq ban add|ls|remove``: bans principals and addresses for a while."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fleximq.cli.client_commands.broker_command import readingAnswers, runWith
from fleximq.cli.client_commands.broker_options import Address, addOptions, count
from fleximq.cli.client_commands.listing import pagedRows, tellMissing
from fleximq.cli.command import Command
from fleximq.cli.output import out, outJson, say


def _add(arguments: Namespace, address: Address) -> int:
    with address.connect() as client:
        details = {"seconds": arguments.seconds, "reason": arguments.reason}
        found = client.ask("/broker/ban", {**_named(arguments), **details}, address.timeout)
    tellMissing(found)
    if arguments.json:
        outJson(found)
    else:
        out(f"{_sentence(found)}; clients disconnected: {found['disconnected']}\n".encode(), lines=False)
    return 0


def _list(arguments: Namespace, address: Address) -> int:
    with readingAnswers(), address.connect() as client:
        for row in pagedRows(client, "/broker/bans", "bans", address.timeout):
            if arguments.json:
                outJson(row)
            else:
                out(f"{_sentence(row)}\n".encode(), lines=False)
    return 0


def _remove(arguments: Namespace, address: Address) -> int:
    with address.connect() as client:
        found = client.ask("/broker/unban", _named(arguments), address.timeout)
    tellMissing(found)
    if not found["removed"]:
        say("fleximq: there is no such ban")
    return 0 if found["removed"] else 1


def _named(arguments: Namespace) -> dict[str, str]:
    return {"principal": arguments.principal} if arguments.principal else {"address": arguments.address}


def _sentence(row: Mapping[str, Any]) -> str:
    kind = "principal" if "principal" in row else "address"
    until = datetime.fromtimestamp(row["until"] / 1000).astimezone()
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{kind} {row[kind]} until {until:%Y-%m-%d %H:%M:%S} by {row['by']}{reason}"


def _prepare(parser: ArgumentParser) -> None:
    works = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, work, words in (
        ("add", _add, "Disconnect a principal or an address, and refuse it until the ban ends."),
        ("ls", _list, "List the bans in force."),
        ("remove", _remove, "End a ban."),
    ):
        own = works.add_parser(name, help=words, description=words)
        own.set_defaults(work=work)
        if name != "ls":
            who = own.add_mutually_exclusive_group(required=True)
            who.add_argument("--principal", metavar="NAME", help="the name that its credentials gave it")
            who.add_argument("--address", metavar="IP", help="an address; of IPv6 the first 64 bits count")
        if name == "add":
            own.add_argument("--seconds", metavar="N", type=count, default=3600, help="how long [3600]")
            own.add_argument("--reason", metavar="TEXT", default="", help="a note for the list and the audit log")
        if name != "remove":
            own.add_argument("--json", action="store_true", help="one JSON object per ban")
        addOptions(own)


#: The command.
BAN = Command(
    "ban",
    "Refuse a principal or an address for a while.",
    _prepare,
    lambda arguments: runWith(arguments.work, arguments),
)
