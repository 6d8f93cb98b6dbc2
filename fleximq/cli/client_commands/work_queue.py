"""``fleximq produce TOPIC [VALUE]`` and ``fleximq consume TOPIC``: the messages of a work queue, as MiniMQ clients."""

import time
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, Outages
from fleximq.cli.client_commands.pub import chunks, prepareValues, sendAll
from fleximq.cli.client_commands.sub import addEndOptions, ended, until
from fleximq.cli.client_commands.topic_check import addStrictOption, checkTopics
from fleximq.cli.output import addJsonOption, addRawOption, out, outJson
from fleximq.client.minimq.blocking import MiniClient, connect
from fleximq.errors import SettingError


def _connected(address: Address, **more: Any) -> MiniClient:
    if address.credentials is not None:
        raise SettingError(
            "MiniMQ has no credentials but a client certificate (--tls-certificate); pub also reaches the queue of a "
            "topic, once it exists"
        )
    return connect(address.url, tls=address.tls, timeout=address.timeout, **more)


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
    addEndOptions(parser)
    parser.add_argument("--no-ack", action="store_true", help="acknowledge nothing, so that all returns to the queue")
    addJsonOption(parser)
    addRawOption(parser)


def _runConsume(arguments: Namespace, address: Address) -> int:
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    shown = 0
    end = None if arguments.for_ is None else time.monotonic() + arguments.for_
    with _connected(address, on_state=Outages("")) as client, client.consumer(arguments.topic) as messages:
        for message in until(messages, end):
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
