"""``fleximq ban add|ls|remove``: bans principals and addresses for a while."""

from argparse import ArgumentParser, Namespace
from datetime import datetime

from fleximq.cli.client_commands.broker_command import Row, brokerCommand, pagedRows, readingAnswers, tellMissing
from fleximq.cli.client_commands.broker_options import Address, count
from fleximq.cli.command import argument, group
from fleximq.cli.output import jsonOption, say, show


def _banned(parser: ArgumentParser) -> None:
    banned = parser.add_mutually_exclusive_group(required=True)
    banned.add_argument("--principal", metavar="NAME", help="the name that its credentials gave it")
    banned.add_argument("--address", metavar="IP", help="an address; of IPv6 the first 64 bits count")


@brokerCommand(
    "add", "Disconnect a principal or an address, and refuse it until the ban ends.",
    _banned, argument("--seconds", "N", "how long [3600]", type=count, default=3600),
    argument("--reason", "TEXT", "a note for the list and the audit log", default=""),
    jsonOption("one JSON object per ban"),
)  # fmt: skip
def _add(arguments: Namespace, address: Address) -> int:
    with address.connect() as client:
        details = {"seconds": arguments.seconds, "reason": arguments.reason}
        found = client.ask("/broker/ban", {**_named(arguments), **details}, address.timeout)
    tellMissing(found)
    show(arguments, f"{_sentence(found)}; clients disconnected: {found['disconnected']}", found)
    return 0


@brokerCommand("ls", "List the bans in force.", jsonOption("one JSON object per ban"))
def _list(arguments: Namespace, address: Address) -> int:
    with readingAnswers(), address.connect() as client:
        for row in pagedRows(client, "/broker/bans", "bans", address.timeout):
            show(arguments, _sentence(row), row)
    return 0


@brokerCommand("remove", "End a ban.", _banned)
def _remove(arguments: Namespace, address: Address) -> int:
    with address.connect() as client:
        found = client.ask("/broker/unban", _named(arguments), address.timeout)
    tellMissing(found)
    if not found["removed"]:
        say("fleximq: there is no such ban")
    return 0 if found["removed"] else 1


def _named(arguments: Namespace) -> dict[str, str]:
    return {"principal": arguments.principal} if arguments.principal else {"address": arguments.address}


def _sentence(row: Row) -> str:
    kind = "principal" if "principal" in row else "address"
    until = datetime.fromtimestamp(row["until"] / 1000).astimezone()
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{kind} {row[kind]} until {until:%Y-%m-%d %H:%M:%S} by {row['by']}{reason}"


BAN = group("ban", "Refuse a principal or an address for a while.", _add, _list, _remove)
