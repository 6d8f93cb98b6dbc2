"""``fleximq bench``: measures a broker with clients like those of a program, each in its own process.

``benchmarks/`` in the source measures the broker alone; this includes the client library.
"""

import csv
import secrets
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from fleximq.cli.bench.dialect_clients import BENCH_CLIENTS
from fleximq.cli.bench.plan import Plan
from fleximq.cli.bench.report import COLUMNS, figures, picture, row
from fleximq.cli.bench.roles import STAMP_BYTES
from fleximq.cli.bench.run import run
from fleximq.cli.client_commands.broker_command import brokerCommand, progress
from fleximq.cli.client_commands.broker_options import Address, count, rate, seconds
from fleximq.cli.output import outJson, say
from fleximq.cli.tables import console
from fleximq.errors import SettingError
from fleximq.limits import MEBIBYTE

#: Limit of clients, since each is a process.
_CLIENTS = 64
_SIZE_MOST = MEBIBYTE


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="the topic [a new one]")
    parser.add_argument(
        "--dialect", choices=tuple(BENCH_CLIENTS), default="fleximq", help="the dialect of the clients [fleximq]"
    )
    parser.add_argument("--publishers", metavar="N", type=count, default=1, help="number of publishers [1]")
    parser.add_argument("--subscribers", metavar="N", type=_orNone, default=1, help="number of subscribers [1]")
    parser.add_argument(
        "--messages", metavar="N", type=count, default=100_000, help="messages of each publisher [100000]"
    )
    parser.add_argument("--size", metavar="BYTES", type=count, default=100, help="bytes of a message [100]")
    parser.add_argument("--batch", metavar="N", type=count, default=100, help="messages sent at once [100]")
    parser.add_argument("--rate", metavar="N", type=rate, help="limit of messages per second for each publisher")
    parser.add_argument(
        "--patience", metavar="SECONDS", type=seconds, default=10.0, help="limit for waiting for missing messages [10]"
    )
    parser.add_argument("--json", action="store_true", help="all numbers as one JSON object")
    parser.add_argument("--csv", metavar="FILE", help="add a line to this file")


def _orNone(text: str) -> int:
    found = int(text)
    if found < 0:
        raise ValueError(text)
    return found


_orNone.__name__ = "number"  # used in the message of argparse


def _run(arguments: Namespace, address: Address) -> int:
    if not STAMP_BYTES <= arguments.size <= _SIZE_MOST:
        raise SettingError(f"size is {arguments.size}, but must be between {STAMP_BYTES} and {_SIZE_MOST}")
    if arguments.publishers + arguments.subscribers > _CLIENTS:
        raise SettingError(
            f"there are {arguments.publishers + arguments.subscribers} clients, but the limit is {_CLIENTS}"
        )
    plan = Plan(
        address,
        arguments.dialect,
        arguments.topic or f"bench.{secrets.token_hex(4)}",
        arguments.publishers,
        arguments.subscribers,
        arguments.messages,
        arguments.size,
        arguments.batch,
        arguments.rate,
        arguments.patience,
    )
    with progress("measuring", None):
        found = figures(plan, run(plan))
    if arguments.csv:
        _append(Path(arguments.csv), row(found))
    if arguments.json:
        outJson(found)
    else:
        console().print(picture(found))
    if found["lost"]:
        say(f"fleximq: {found['lost']} messages did not arrive within {arguments.patience:g} seconds")
    return 1 if found["lost"] else 0


def _append(path: Path, line: dict[str, Any]) -> None:
    try:
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if not file.tell():
                writer.writeheader()
            writer.writerow(line)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error


#: The command.
BENCH = brokerCommand(
    "bench", "Measure a broker's throughput and latency with clients like a program's own.", _prepare, _run
)
