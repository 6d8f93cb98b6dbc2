"""``fleximq req`` sends a request and shows the answer, ``notify`` sends a notification, ``serve`` answers requests.

The command of ``serve`` gets the request's value as text on standard input, and path and sender in ``FLEXIMQ_PATH`` and
``FLEXIMQ_SENDER``. Its output, without the end of the last line, is the answer. A failed command is answered with 500
and the last line of its standard error.
"""

import os
import subprocess
import threading
import time
from argparse import ArgumentTypeError, Namespace
from typing import Any

from fleximq.cli.client_commands.broker_options import Address, Outages, count, seconds
from fleximq.cli.client_commands.client_command import clientCommand
from fleximq.cli.client_commands.pub import content
from fleximq.cli.client_commands.texts import FORMATTERS, INPUT, OUTPUT, PARSERS, argumentValue, asJson
from fleximq.cli.command import argument
from fleximq.cli.output import jsonOption, out, outJson, say
from fleximq.client.blocking.shared_connection import SIGNAL_SECONDS
from fleximq.client.errors import Answered
from fleximq.client.events import BROKER, Request
from fleximq.client.payloads import packed
from fleximq.client.settings import Codec
from fleximq.errors import SettingError
from fleximq.status import Status

_RAW = Codec(unpack=bytes)  #: Answers are formatted from their payloads, so the client does not decode them.
_WORDS = 500  #: Limit of an error text in an answer of ``serve``, in characters.
_VALUE = argument("value", "VALUE", "the value to send; - is standard input", nargs="?")


def clientOf(text: str) -> int | str:
    """Parse the id or the name of a client, or ``broker``. For ``argparse``."""
    if text == "broker":
        return BROKER
    if text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 32:
        return int(text)
    if not text or text.startswith("/") or text.isdecimal():
        kinds = "its id, which serve and top show, the name of a service, or broker"
        raise ArgumentTypeError(f"{text!r} is not a client: give {kinds}")
    return text


@clientCommand(
    "req", argument("client", "CLIENT", "its id or name, or broker", type=clientOf),
    argument("path", "PATH", "the path of the request, e.g. /broker/about"), _VALUE, INPUT, *OUTPUT,
)  # fmt: skip
def req(arguments: Namespace, address: Address) -> None:
    """Send a request to a client or the broker, and show the answer."""
    value = _value(arguments, arguments.value)
    with address.connect(codec=_RAW) as client:
        begun = time.perf_counter()
        if arguments.client == BROKER:
            answer = packed(client.ask(arguments.path, value, address.timeout))
        else:
            answer = client.request(arguments.client, arguments.path, value, address.timeout)
        took = time.perf_counter() - begun
    if arguments.json:
        found = {"client": arguments.client, "path": arguments.path, "value": asJson(answer), "seconds": round(took, 6)}
        outJson(found)
    else:
        out(FORMATTERS[arguments.format](answer), arguments.raw)


def _value(arguments: Namespace, written: str | None) -> Any:
    """Return the value of an argument, which may be standard input; None without one."""
    if written is None:
        return None
    return PARSERS[arguments.as_](content(written)) if written == "-" else argumentValue(arguments.as_, written)


@clientCommand(
    "notify", argument("client", "CLIENT", "its id or name, several with commas between them, or all"),
    argument("path", "PATH", "the path of the notification; none with all", nargs="?"), _VALUE, INPUT,
)  # fmt: skip
def notify(arguments: Namespace, address: Address) -> None:
    """Send a notification to one client, several or all."""
    toAll = arguments.client == "all"
    written = arguments.path if toAll else arguments.value
    if toAll and arguments.value is not None:
        raise SettingError("a broadcast has no path: give all and a VALUE")
    if not toAll and arguments.path is None:
        raise SettingError("a notification needs a PATH")
    if not toAll and arguments.value is None and not arguments.path.startswith("/"):
        raise SettingError(f"{arguments.path!r} is the PATH, and a VALUE is missing: notify CLIENT PATH VALUE")
    value = _value(arguments, written)
    with address.connect() as client:
        if toAll:
            client.broadcast(value)
        else:
            client.notify([clientOf(each) for each in arguments.client.split(",")], arguments.path, value)
        client.flush()


class CommandService:
    """Answers requests by running a command."""

    def __init__(self, arguments: Namespace) -> None:
        self._arguments = arguments
        self._read = PARSERS[arguments.as_]
        self._left = arguments.count
        self.over = threading.Event()

    def __call__(self, request: Request) -> Any:
        """Return the answer; raises Answered if the command failed, took too long, or printed an invalid value."""
        status, words, value = self._answer(request)
        if self._arguments.json:
            outJson({"path": request.path, "sender": request.sender, "status": int(status)})
        elif status is not Status.OK:
            say(f"a request of client {request.sender} was answered with {int(status)}: {words}")
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.over.set()
        if status is not Status.OK:
            raise Answered(status, words)
        return value

    def _answer(self, request: Request) -> tuple[Status, str, Any]:
        variables = {**os.environ, "FLEXIMQ_PATH": request.path, "FLEXIMQ_SENDER": str(request.sender)}
        try:
            done = subprocess.run(
                self._arguments.command, input=FORMATTERS["text"](request.payload).removesuffix(b"\n"),
                shell=True, capture_output=True, timeout=self._arguments.limit, env=variables,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Status.GATEWAY_TIMEOUT, f"the command took longer than {self._arguments.limit:g} seconds", None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return Status.INTERNAL_SERVER_ERROR, (said[-1] if said else f"exit code {done.returncode}")[:_WORDS], None
        try:
            return Status.OK, "", self._read(done.stdout.removesuffix(b"\n"))
        except SettingError as error:
            return Status.INTERNAL_SERVER_ERROR, str(error), None


@clientCommand(
    "serve", argument("path", "PATH", "the path to serve, e.g. /time"),
    argument("command", "COMMAND", "shell command to run for each request, e.g. 'date +%%s'"), INPUT,
    argument("--name", "NAME", "answer requests to this name, with all others that have it"),
    argument("--limit", "SECONDS", "limit for one run [60]", type=seconds, default=60.0),
    argument("--count", "N", "end after this many answers", type=count),
    jsonOption("report each request as one line of JSON"),
)  # fmt: skip
def serve(arguments: Namespace, address: Address) -> None:
    """Answer requests with the output of a shell command."""
    served = CommandService(arguments)
    with address.connect(name=arguments.name, on_state=Outages("; requests may be missing")) as client:
        client.serve(arguments.path, served)
        target = arguments.name or client.id
        say(f"client {client.id} answers {arguments.path}; ask it: fleximq req {target} {arguments.path}")
        while not served.over.wait(SIGNAL_SECONDS):
            pass
