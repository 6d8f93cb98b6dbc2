"""``fleximq sub TOPIC...``: prints the messages of topics or patterns.

``fleximq tail``: prints connects, disconnects and new topics as they happen.
"""

import json
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, Outages, count, seconds
from fleximq.cli.client_commands.payload_text import addOutputOptions, asJson, deliveryAsJson, formatted
from fleximq.cli.client_commands.topic_check import addStrictOption, checkTopics
from fleximq.cli.output import addJsonOption, addRawOption, out, outJson, say
from fleximq.client.blocking import Client
from fleximq.client.events import Delivery
from fleximq.client.settings import Start
from fleximq.values.patterns import isPattern

#: Topics of presence events (docs/reference/dialects.rst).
JOINED, LEFT, CREATED = "$sys/clients/joined", "$sys/clients/left", "$sys/topics/created"


def _prepareTail(parser: ArgumentParser) -> None:
    parser.add_argument("--count", metavar="N", type=count, help="end after this many events")
    addJsonOption(parser)
    addRawOption(parser)


def _runTail(arguments: Namespace, address: Address) -> int:
    told = 0
    with address.connect(on_state=Outages()) as client, client.subscribe("$sys/#") as events:
        for event in events:
            now = datetime.now().astimezone()
            value = asJson(event.payload)
            if arguments.json:
                found = {"time": now.isoformat(timespec="milliseconds"), "event": event.topic, "value": value}
                outJson(found)
            else:
                out(f"{now:%H:%M:%S} {sentence(event.topic, value)}\n".encode(), arguments.raw, lines=False)
            told += 1
            if told == arguments.count:
                break
    return 0


def sentence(topic: str, value: Any) -> str:
    """Return a presence event of the broker as a sentence."""
    said = value if isinstance(value, dict) else {}
    if topic == JOINED:
        return f"{said.get('name')} joined ({said.get('dialect')}, client {said.get('client_id')})"
    if topic == LEFT:
        return f"{said.get('name')} left: {said.get('reason')}"
    if topic == CREATED:
        return f"topic {said.get('topic')} came into being"
    return f"{topic} {json.dumps(value, ensure_ascii=False)}"


#: The command.
TAIL = brokerCommand("tail", "Stream connects, disconnects and new topics.", _prepareTail, _runTail)


#: With several subscriptions, the wait for each before the next, in seconds.
_LOOK = 0.05


def _prepareSub(parser: ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a topic, or a pattern such as orders.* or orders.#")
    addStrictOption(parser)
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="WHERE",
        type=_start,
        help="replay a durable topic from: first, last, an offset, or a time ago such as 15m, 2h, 7d",
    )
    addEndOptions(parser)
    parser.add_argument("--topic", action="store_true", help="show the topic before each value")
    addOutputOptions(parser)


def addEndOptions(parser: ArgumentParser, waiting: str = "") -> None:
    """Add the options that say when a command ends, with an addition to the help of ``--for``."""
    parser.add_argument("--count", metavar="N", type=count, help="end after this many messages")
    parser.add_argument("--for", dest="for_", metavar="SECONDS", type=seconds, help=f"end after this time{waiting}")


def _runSub(arguments: Namespace, address: Address) -> int:
    checkTopics(arguments.topics, arguments.strict)
    titled = arguments.topic or len(arguments.topics) > 1 or any(map(isPattern, arguments.topics))
    shownSoFar = 0
    with ExitStack() as stack:
        outages = Outages() if arguments.from_ is None else Outages("")
        client = stack.enter_context(address.connect(on_state=outages))
        for delivery in _deliveries(client, stack, arguments):
            if arguments.json:
                outJson(deliveryAsJson(delivery))
            else:
                title = f"{delivery.topic}: ".encode() if titled and arguments.format != "raw" else b""
                out(title + formatted(delivery.payload, arguments.format), arguments.raw, lines=not title)
            shownSoFar += 1
            if shownSoFar == arguments.count:
                break
    return ended(arguments, shownSoFar)


def ended(arguments: Namespace, shown: int) -> int:
    """Return the exit code of a command after so many messages; say why it ends without ``--count`` of them."""
    if shown == arguments.count:
        return 0
    wanted = "" if arguments.count is None else f" of {arguments.count}"
    say(f"fleximq: the time of --for is over after {shown}{wanted} messages")
    return 0 if arguments.count is None else 1


def _deliveries(client: Client, stack: ExitStack, arguments: Namespace) -> Iterator[Delivery]:
    """Yield deliveries until the time is over."""
    subscriptions = [stack.enter_context(client.subscribe(topic, arguments.from_)) for topic in arguments.topics]
    end = None if arguments.for_ is None else time.monotonic() + arguments.for_
    if len(subscriptions) == 1:
        yield from until(subscriptions[0], end)
        return
    while end is None or time.monotonic() < end:
        for subscription in subscriptions:
            while (delivery := subscription.next(0 if subscription.waiting else _LOOK)) is not None:
                yield delivery


def until(subscription: Any, end: float | None) -> Iterator[Any]:
    """Yield messages until the end, in seconds of the monotonic clock; None: without an end."""
    if end is None:
        yield from subscription
        return
    while (left := end - time.monotonic()) > 0 and (delivery := subscription.next(left)) is not None:
        yield delivery


def _start(text: str) -> Start:
    """Parse the start of a subscription."""
    if text in ("first", "last"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text[:-1].isascii() and text[:-1].isdecimal() and text[-1] in units:
        return {"time": round((time.time() - int(text[:-1]) * units[text[-1]]) * 1000)}
    raise ArgumentTypeError(f"{text!r} is not a start: give first, last, an offset, or a time such as 15m, 2h, 7d")


#: The command.
SUB = brokerCommand("sub", "Show the messages of topics or patterns.", _prepareSub, _runSub)
