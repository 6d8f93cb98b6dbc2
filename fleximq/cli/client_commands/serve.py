"""``fleximq serve PATH COMMAND``: answers requests with the output of a shell command.

The command gets the request's value as text on standard input, and path and sender in ``FLEXIMQ_PATH`` and
``FLEXIMQ_SENDER``. Its output, without the end of the last line, is the answer. A failed command is answered with 500
and the last line of its standard error.
"""

import os
import subprocess
import threading
from argparse import ArgumentParser, Namespace
from typing import Any

from fleximq.cli.client_commands.broker_command import brokerCommand
from fleximq.cli.client_commands.broker_options import Address, Outages, count, seconds
from fleximq.cli.client_commands.payload_text import addInputOption, formatted, parserOf
from fleximq.cli.output import outJson, say
from fleximq.client.blocking.shared_connection import SIGNAL_SECONDS
from fleximq.client.errors import Answered
from fleximq.client.events import Request
from fleximq.errors import SettingError
from fleximq.status import Status

#: Limit of an error text in an answer, in characters.
_WORDS = 500


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the path to serve, e.g. /time")
    parser.add_argument("command", metavar="COMMAND", help="shell command to run for each request, e.g. 'date +%%s'")
    addInputOption(parser)
    parser.add_argument("--name", metavar="NAME", help="answer requests to this name, with all others that have it")
    parser.add_argument("--limit", metavar="SECONDS", type=seconds, default=60.0, help="limit for one run [60]")
    parser.add_argument("--count", metavar="N", type=count, help="end after this many answers")
    parser.add_argument("--json", action="store_true", help="report each request as one line of JSON")


class CommandService:
    """Answers requests by running a command."""

    def __init__(self, arguments: Namespace) -> None:
        self._arguments = arguments
        self._read = parserOf(arguments.as_)
        self._left = arguments.count
        self.over = threading.Event()

    def __call__(self, request: Request) -> Any:
        """Return the answer; raises Answered if the command failed, took too long, or printed an invalid value."""
        status, words, value = self._answer(request)
        self._tell(request, status)
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
                self._arguments.command,
                shell=True,
                input=formatted(request.payload, "text").removesuffix(b"\n"),
                capture_output=True,
                timeout=self._arguments.limit,
                env=variables,
            )
        except subprocess.TimeoutExpired:
            return Status.GATEWAY_TIMEOUT, f"the command took longer than {self._arguments.limit:g} seconds", None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return Status.INTERNAL_SERVER_ERROR, (said[-1] if said else f"exit code {done.returncode}")[:_WORDS], None
        try:
            return Status.OK, "", self._read(done.stdout.removesuffix(b"\n"))
        except SettingError as error:
            return Status.INTERNAL_SERVER_ERROR, str(error), None

    def _tell(self, request: Request, status: Status) -> None:
        if self._arguments.json:
            found = {"path": request.path, "sender": request.sender, "status": int(status)}
            outJson(found)
        elif status is not Status.OK:
            say(f"a request of client {request.sender} was answered with {int(status)}")


def _run(arguments: Namespace, address: Address) -> int:
    served = CommandService(arguments)
    with address.connect(name=arguments.name, on_state=Outages("; requests may be missing")) as client:
        client.serve(arguments.path, served)
        target = arguments.name or client.id
        say(f"client {client.id} answers {arguments.path}; ask it: fleximq req {target} {arguments.path}")
        while not served.over.wait(SIGNAL_SECONDS):
            pass
    return 0


#: The command.
SERVE = brokerCommand("serve", "Answer requests with the output of a shell command.", _prepare, _run)
