"""Print messages: ``fleximq sub``, ``consume`` (of a work queue) and ``tail`` (connects, disconnects, new topics)."""

import json
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from threading import Timer
from typing import Any

from fleximq.cli.client_commands.broker_options import Address, Outages, count, seconds
from fleximq.cli.client_commands.client_command import clientCommand
from fleximq.cli.client_commands.pub import miniClient
from fleximq.cli.client_commands.texts import FORMATTERS, OUTPUT, STRICT, asJson, checkTopics, deliveryAsJson
from fleximq.cli.command import Argument, argument, switch
from fleximq.cli.output import RAW, jsonOption, out, outJson, say, show
from fleximq.client.blocking import Client
from fleximq.client.events import Delivery
from fleximq.client.settings import Start
from fleximq.values.patterns import isPattern

#: Topics of presence events (docs/reference/dialects.rst).
JOINED, LEFT, CREATED = "$sys/clients/joined", "$sys/clients/left", "$sys/topics/created"


@clientCommand("tail", argument("--count", "N", "end after this many events", type=count), jsonOption(), RAW)
def tail(arguments: Namespace, address: Address) -> None:
    """Stream connects, disconnects and new topics."""
    told = 0
    with address.connect(on_state=Outages()) as client, client.subscribe("$sys/#") as events:
        for event in events:
            now = datetime.now().astimezone()
            value = asJson(event.payload)
            found = {"time": now.isoformat(timespec="milliseconds"), "event": event.topic, "value": value}
            show(arguments, f"{now:%H:%M:%S} {sentence(event.topic, value)}", found)
            told += 1
            if told == arguments.count:
                break


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


_LOOK = 0.05  #: With several subscriptions, the wait for each before the next, in seconds.
_STARTS = "first, last, an offset, a time ago such as 15m, 2h, 7d, or a time such as 2026-11-26T19:00 or ...T19:00Z"
_FROM = f"replay a durable topic from: {_STARTS}"
_SILENCE = 3.0  #: Seconds without a message after which ``consume`` says that it waits.


def _endOptions(waiting: str = "") -> tuple[Argument, Argument]:
    """Return the options that say when a command ends, with an addition to the help of ``--for``."""
    return (
        argument("--count", "N", "end after this many messages", type=count),
        argument("--for", "SECONDS", f"end after this time{waiting}", dest="for_", type=seconds),
    )


def _start(text: str) -> Start:
    if text in ("first", "last"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text[:-1].isascii() and text[:-1].isdecimal() and text[-1] in units:
        return {"time": round((time.time() - int(text[:-1]) * units[text[-1]]) * 1000)}
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone()
            say(f"fleximq: {text} has no zone; it is taken as {moment.isoformat()}")
        milliseconds = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        milliseconds = -1
    if milliseconds < 0:
        raise ArgumentTypeError(f"{text!r} is not a start: give {_STARTS}")
    return {"time": milliseconds}


@clientCommand(
    "sub", argument("topics", "TOPIC", "a topic, or a pattern such as orders.* or orders.#", nargs="+"), STRICT,
    argument("--from", "WHERE", _FROM, type=_start, dest="from_"), *_endOptions(),
    switch("--topic", "show the topic before each value"), *OUTPUT,
)  # fmt: skip
def sub(arguments: Namespace, address: Address) -> int:
    """Show the messages of topics or patterns."""
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
                out(title + FORMATTERS[arguments.format](delivery.payload), arguments.raw, lines=not title)
            shownSoFar += 1
            if shownSoFar == arguments.count:
                break
    return _ended(arguments, shownSoFar)


@clientCommand(
    "consume", argument("topic", "TOPIC", "the topic of the queue, which is made if there is none"), STRICT,
    *_endOptions("; without it, wait for messages"),
    switch("--no-ack", "acknowledge nothing, so that all returns to the queue"), jsonOption(), RAW,
)  # fmt: skip
def consume(arguments: Namespace, address: Address) -> int:
    """Take messages from a work queue and show them."""
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    shown = 0
    notice = Timer(_SILENCE, say, (f"waiting for messages of {arguments.topic}; --for SECONDS ends it",))
    notice.daemon = True
    end = None if arguments.for_ is None else time.monotonic() + arguments.for_
    with miniClient(address, on_state=Outages("")) as client, client.consumer(arguments.topic) as messages:
        if end is None:
            notice.start()
        for message in _until(messages, end):
            notice.cancel()
            fields = {name: value for name, value in message._asdict().items() if name != "legacy"}
            show(arguments, message.content, fields, lines=True)
            (messages.leave if arguments.no_ack else messages.ack)(message)
            shown += 1
            if shown == arguments.count:
                break
    return _ended(arguments, shown)


def _ended(arguments: Namespace, shown: int) -> int:
    """Return the exit code of a command after so many messages; say why it ends without ``--count`` of them."""
    if shown == arguments.count:
        return 0
    wanted = "" if arguments.count is None else f" of {arguments.count}"
    say(f"fleximq: the time of --for is over after {shown}{wanted} messages")
    return 0 if arguments.count is None else 1


def _deliveries(client: Client, stack: ExitStack, arguments: Namespace) -> Iterator[Delivery]:
    subscriptions = [stack.enter_context(client.subscribe(topic, arguments.from_)) for topic in arguments.topics]
    end = None if arguments.for_ is None else time.monotonic() + arguments.for_
    if len(subscriptions) == 1:
        yield from _until(subscriptions[0], end)
        return
    while end is None or time.monotonic() < end:
        for subscription in subscriptions:
            while (delivery := subscription.next(0 if subscription.waiting else _LOOK)) is not None:
                yield delivery


def _until(subscription: Any, end: float | None) -> Iterator[Any]:
    """Yield messages until the end, in seconds of the monotonic clock; None: without an end."""
    if end is None:
        yield from subscription
        return
    while (left := end - time.monotonic()) > 0 and (delivery := subscription.next(left)) is not None:
        yield delivery
