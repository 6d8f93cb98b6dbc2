"""``fleximq produce TOPIC [VALUE]`` and ``fleximq consume TOPIC``: the messages of a work queue, as MiniMQ clients."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Timer
from typing import Any

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, Outages
from fleximq.cli.client_commands.pub import chunks, prepareValues, sendAll
from fleximq.cli.client_commands.sub import addEndOptions, ended, until
from fleximq.cli.client_commands.topic_check import addStrictOption, checkTopics
from fleximq.cli.output import addJsonOption, addRawOption, out, outJson, say
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


def _prepareProduce(parser: ArgumentParser) -> None:
    prepareValues(parser)
    addStrictOption(parser)
    parser.set_defaults(as_="text")


def _runProduce(arguments: Namespace, address: Address) -> int:
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    values = chunks(arguments)
    with _connected(address) as client:
        try:
            return sendAll(arguments, values, partial(client.produce_many, arguments.topic))
        except ValueError as error:
            raise SettingError(str(error)) from error


def _prepareConsume(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic of the queue, which is made if there is none")
    addStrictOption(parser)
    addEndOptions(parser, "; without it, wait for messages")
    parser.add_argument("--no-ack", action="store_true", help="acknowledge nothing, so that all returns to the queue")
    addJsonOption(parser)
    addRawOption(parser)


def _runConsume(arguments: Namespace, address: Address) -> int:
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
            if arguments.json:
                outJson({name: value for name, value in message._asdict().items() if name != "legacy"})
            else:
                out(f"{message.content}\n".encode(), arguments.raw)
            (messages.leave if arguments.no_ack else messages.ack)(message)
            shown += 1
            if shown == arguments.count:
                break
    return ended(arguments, shown)


#: The commands.
PRODUCE = brokerCommand("produce", "Put a value, the lines of standard input, or a file into a work queue.",
                        _prepareProduce, _runProduce)  # fmt: skip
CONSUME = brokerCommand("consume", "Take messages from a work queue and show them.", _prepareConsume, _runConsume)
