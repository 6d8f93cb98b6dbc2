"""``fleximq produce TOPIC [VALUE]`` and ``fleximq consume TOPIC``: the messages of a work queue, as MiniMQ clients."""

import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Timer
from typing import Any

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, Outages
from fleximq.cli.client_commands.pub import VALUES, chunks, sendAll
from fleximq.cli.client_commands.sub import ended, endOptions, until
from fleximq.cli.client_commands.topic_check import STRICT, checkTopics
from fleximq.cli.command import argument, switch
from fleximq.cli.output import RAW, jsonOption, say, show
from fleximq.client.errors import Answered
from fleximq.client.minimq.blocking import MiniClient, connect
from fleximq.errors import SettingError
from fleximq.status import Status

_ONLY_CERTIFICATE = (
    "MiniMQ has no credentials but a client certificate (--tls-certificate); pub also reaches the queue of a topic, "
    "once it exists"
)
#: Seconds without a message after which ``consume`` says that it waits.
_SILENCE = 3.0


@contextmanager
def _connected(address: Address, **more: Any) -> Iterator[MiniClient]:
    """Connect, and explain which credentials are possible if there are others, or the broker wants some.

    :raises SettingError: with this explanation.
    """
    if address.credentials is not None:
        raise SettingError(_ONLY_CERTIFICATE)
    try:
        with connect(address.url, tls=address.tls, timeout=address.timeout, **more) as client:
            yield client
    except Answered as error:
        if error.status != Status.UNAUTHORIZED:
            raise
        raise SettingError(f"{error}; {_ONLY_CERTIFICATE}") from error


@brokerCommand(
    "produce", "Put a value, the lines of standard input, or a file into a work queue.",
    *VALUES, lambda parser: parser.set_defaults(as_="text"),
)  # fmt: skip
def produce(arguments: Namespace, address: Address) -> int:
    """Send all values, and print how many."""
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    values = chunks(arguments)
    with _connected(address) as client:
        try:
            return sendAll(arguments, values, partial(client.produce_many, arguments.topic))
        except ValueError as error:
            raise SettingError(str(error)) from error


@brokerCommand(
    "consume", "Take messages from a work queue and show them.",
    argument("topic", "TOPIC", "the topic of the queue, which is made if there is none"), STRICT,
    *endOptions("; without it, wait for messages"),
    switch("--no-ack", "acknowledge nothing, so that all returns to the queue"), jsonOption(), RAW,
)  # fmt: skip
def consume(arguments: Namespace, address: Address) -> int:
    """Show and acknowledge messages until the end of ``--count`` or ``--for``."""
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    shown = 0
    notice = Timer(_SILENCE, say, (f"waiting for messages of {arguments.topic}; --for SECONDS ends it",))
    notice.daemon = True
    end = None if arguments.for_ is None else time.monotonic() + arguments.for_
    with _connected(address, on_state=Outages("")) as client, client.consumer(arguments.topic) as messages:
        if end is None:
            notice.start()
        for message in until(messages, end):
            notice.cancel()
            fields = {name: value for name, value in message._asdict().items() if name != "legacy"}
            show(arguments, message.content, fields, lines=True)
            (messages.leave if arguments.no_ack else messages.ack)(message)
            shown += 1
            if shown == arguments.count:
                break
    return ended(arguments, shown)
