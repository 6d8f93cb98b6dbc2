"""``fleximq ping``: measures the round-trip time to a broker."""

import statistics
import time
from argparse import ArgumentParser, Namespace

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, count, seconds
from fleximq.cli.output import out, outJson


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("--count", metavar="N", type=count, default=4, help="number of PINGs [4]")
    parser.add_argument("--interval", metavar="SECONDS", type=seconds, default=1.0, help="seconds between them [1]")
    parser.add_argument("--json", action="store_true", help="one JSON object, in milliseconds")


def _run(arguments: Namespace, address: Address) -> int:
    took: list[float] = []
    with address.connect() as client:
        for place in range(arguments.count):
            if place:
                time.sleep(arguments.interval)
            took.append(client.ping(address.timeout) * 1000)
            if not arguments.json:
                out(f"{client.url} answered in {took[-1]:.3f} ms\n".encode())
    least, middle, most = min(took), statistics.median(took), max(took)
    if arguments.json:
        found = {"min": round(least, 3), "median": round(middle, 3), "max": round(most, 3)}
        outJson({"url": client.url, "count": len(took), **found})
    elif len(took) > 1:
        out(f"{len(took)} answers: {least:.3f} / {middle:.3f} / {most:.3f} ms (min / median / max)\n".encode())
    return 0


#: The command.
PING = brokerCommand("ping", "Measure the round-trip time to the broker.", _prepare, _run)
