"""``fleximq req CLIENT PATH [VALUE]``: sends a request to a client or the broker, and prints the answer.

``fleximq notify CLIENT PATH [VALUE]``: sends a notification, which has no answer.
"""

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address
from fleximq.cli.client_commands.payload_text import (
    addInputOption,
    addOutputOptions,
    argumentValue,
    asJson,
    formatted,
    parserOf,
)
from fleximq.cli.client_commands.pub import content
from fleximq.cli.output import out, outJson
from fleximq.client.blocking import Client
from fleximq.client.events import BROKER
from fleximq.client.payloads import packed
from fleximq.client.settings import Codec
from fleximq.errors import SettingError

#: Answers are formatted from their payloads, so the client does not decode them.
_RAW = Codec(unpack=bytes)


def clientOf(text: str) -> int | str:
    """Parse the id or the name of a client, or ``broker``. For ``argparse``."""
    if text == "broker":
        return BROKER
    if text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 32:
        return int(text)
    if not text or text.startswith("/") or text.isdecimal():
        raise ArgumentTypeError(
            f"{text!r} is not a client: give its id, which serve and top show, the name of a service, or broker"
        )
    return text


def _prepareReq(parser: ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", type=clientOf, help="its id or name, or broker")
    parser.add_argument("path", metavar="PATH", help="the path of the request, e.g. /broker/about")
    parser.add_argument("value", metavar="VALUE", nargs="?", help="the value to send; - is standard input")
    addInputOption(parser)
    addOutputOptions(parser)


def _runReq(arguments: Namespace, address: Address) -> int:
    value = _value(arguments, arguments.value)
    with address.connect(codec=_RAW) as client:
        begun = time.perf_counter()
        answer = _ask(client, arguments, value, address.timeout)
        took = time.perf_counter() - begun
    if arguments.json:
        found = {"client": arguments.client, "path": arguments.path, "value": asJson(answer), "seconds": round(took, 6)}
        outJson(found)
    else:
        out(formatted(answer, arguments.format), arguments.raw)
    return 0


def _ask(client: Client, arguments: Namespace, value: Any, timeout: float) -> bytes:
    """Return the payload of the answer."""
    if arguments.client == BROKER:
        return packed(client.ask(arguments.path, value, timeout))
    answer: bytes = client.request(arguments.client, arguments.path, value, timeout)
    return answer


def _value(arguments: Namespace, written: str | None) -> Any:
    """Return the value of an argument, which may be standard input; None without one."""
    if written is None:
        return None
    return parserOf(arguments.as_)(content(written)) if written == "-" else argumentValue(arguments.as_, written)


#: The command.
REQ = brokerCommand("req", "Send a request to a client or the broker, and show the answer.", _prepareReq, _runReq)


def _prepareNotify(parser: ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", help="its id or name, several with commas between them, or all")
    parser.add_argument("path", metavar="PATH", nargs="?", help="the path of the notification; none with all")
    parser.add_argument("value", metavar="VALUE", nargs="?", help="the value to send; - is standard input")
    addInputOption(parser)


def _runNotify(arguments: Namespace, address: Address) -> int:
    toAll = arguments.client == "all"
    written = arguments.path if toAll else arguments.value
    if toAll and arguments.value is not None:
        raise SettingError("a broadcast has no path: give all and a VALUE")
    if not toAll and arguments.path is None:
        raise SettingError("a notification needs a PATH")
    value = _value(arguments, written)
    with address.connect() as client:
        if toAll:
            client.broadcast(value)
        else:
            client.notify([clientOf(each) for each in arguments.client.split(",")], arguments.path, value)
        client.flush()
    return 0


#: The command.
NOTIFY = brokerCommand("notify", "Send a notification to one client, several or all.", _prepareNotify, _runNotify)
