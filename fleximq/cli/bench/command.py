"""``fleximq bench``: measures a broker with clients like those of a program, each in its own process.

``benchmarks/`` in the source measures the broker alone; this includes the client library.
"""

import csv
import secrets
from argparse import Namespace
from pathlib import Path
from typing import Any

from fleximq.cli.bench.dialect_clients import BENCH_CLIENTS
from fleximq.cli.bench.plan import Plan
from fleximq.cli.bench.processes import STAMP_BYTES, run
from fleximq.cli.bench.report import COLUMNS, figures, picture, row
from fleximq.cli.client_commands.broker_command import brokerCommand, progress
from fleximq.cli.client_commands.broker_options import Address, count, rate, seconds
from fleximq.cli.command import argument
from fleximq.cli.output import console, jsonOption, outJson, say
from fleximq.errors import SettingError
from fleximq.limits import MEBIBYTE

#: Limit of clients, since each is a process.
_CLIENTS = 64
_SIZE_MOST = MEBIBYTE


def _orNone(text: str) -> int:
    found = int(text)
    if found < 0:
        raise ValueError(text)
    return found


_orNone.__name__ = "number"  # used in the message of argparse


@brokerCommand(
    "bench", "Measure a broker's throughput and latency with clients like a program's own.",
    argument("topic", "TOPIC", "the topic [a new one]", nargs="?"),
    argument("--dialect", help="the dialect of the clients [fleximq]", choices=tuple(BENCH_CLIENTS), default="fleximq"),
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
    """Run the benchmark, and show its numbers; exit code 1 if messages did not arrive."""
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
