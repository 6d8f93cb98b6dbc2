"""``fleximq tail``: who comes and goes, and which topics come into being, as it happens."""

import json
from argparse import ArgumentParser, Namespace
from datetime import datetime
from typing import Any

from fleximq.cli.client_commands.broker_command import out, talking
from fleximq.cli.client_commands.broker_options import Address, count
from fleximq.cli.client_commands.payload_text import asJson

#: What the broker tells of itself (docs/dialects.rst, presence).
JOINED, LEFT, CREATED = "$sys/clients/joined", "$sys/clients/left", "$sys/topics/created"


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("--count", metavar="N", type=count, help="end after so many events")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _run(arguments: Namespace, address: Address) -> int:
    told = 0
    with address.connect() as client, client.subscribe("$sys/#") as events:
        for event in events:
            now = datetime.now().astimezone()
            value = asJson(event.payload)
            if arguments.json:
                found = {"time": now.isoformat(timespec="milliseconds"), "event": event.topic, "value": value}
                out(json.dumps(found, ensure_ascii=False).encode() + b"\n")
            else:
                out(f"{now:%H:%M:%S} {sentence(event.topic, value)}\n".encode())
            told += 1
            if told == arguments.count:
                break
    return 0


def sentence(topic: str, value: Any) -> str:
    """Return in words what an event of the broker says."""
    said = value if isinstance(value, dict) else {}
    if topic == JOINED:
        return f"{said.get('name')} joined ({said.get('dialect')}, client {said.get('client_id')})"
    if topic == LEFT:
        return f"{said.get('name')} left: {said.get('reason')}"
    if topic == CREATED:
        return f"topic {said.get('topic')} came into being"
    return f"{topic} {json.dumps(value, ensure_ascii=False)}"


#: The command.
TAIL = talking("tail", "Follow who comes and goes, and which topics come into being.", _prepare, _run)
