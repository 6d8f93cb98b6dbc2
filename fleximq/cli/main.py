"""Finds the command that a command line names, and runs it.

``fleximq completion SHELL``: a script by which a shell completes the words of this command.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from fleximq import __version__
from fleximq.cli.bench.command import BENCH
from fleximq.cli.check_config import CHECK_CONFIG
from fleximq.cli.client_commands.broker_command import PIPE_CLOSED
from fleximq.cli.client_commands.ping import PING
from fleximq.cli.client_commands.pub import PUB
from fleximq.cli.client_commands.req import NOTIFY, REQ
from fleximq.cli.client_commands.serve import SERVE
from fleximq.cli.client_commands.sub import SUB, TAIL
from fleximq.cli.client_commands.top import TOP
from fleximq.cli.command import Command
from fleximq.cli.credential_files import APIKEY, PASSWD, TOKEN
from fleximq.cli.journal import JOURNAL
from fleximq.config.argument_parser import CommandParser

#: What shtab writes scripts for.
SHELLS = ("bash", "zsh", "tcsh")


def completion(parser: Callable[[], ArgumentParser]) -> Command:
    """Return the command.

    :param parser: makes the parser of all words.
    """

    def prepare(own: ArgumentParser) -> None:
        own.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")

    def run(arguments: Namespace) -> int:
        import shtab  # nobody else has to load it

        sys.stdout.write(shtab.complete(parser(), arguments.shell))
        return 0

    words = "Print a script for completion, e.g. for: source <(fleximq completion bash)"
    return Command("completion", words, prepare, run)


def parser() -> CommandParser:
    """Return the parser of all words behind ``fleximq``."""
    parser = CommandParser(
        prog="fleximq",
        description="Tools beside the broker, which itself is run by twistd -n fleximq.",
    )
    parser.add_argument("--version", action="version", version=f"FlexiMQ {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.words, description=command.words)
        command.prepare(own)
        own.set_defaults(run=command.run, refuse=own.error)
    return parser


#: All commands, in the order in which the help shows them.
COMMANDS = (
    PUB, SUB, REQ, SERVE, NOTIFY, TAIL, TOP, PING, BENCH,
    CHECK_CONFIG, JOURNAL, PASSWD, APIKEY, TOKEN, completion(parser),
)  # fmt: skip
#: The options that stand in front of a command, or need none.
_OWN = ("-h", "--help", "--version")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what these words say, those of the process if None, and return the exit code: 0 if all went well.

    :raises SystemExit: for words that cannot be understood (1), and after help or version were shown (0).
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0].startswith("-") and not any(own.startswith(words[0]) for own in _OWN):
        names = {each.name for each in COMMANDS}
        command = next((word for word in words if word in names), "COMMAND")
        option = words[0].partition("=")[0]
        parser().error(f"options stand behind the command: fleximq {command} {option}")
    chosen, strange = parser().parse_known_args(words)
    if strange:
        chosen.refuse(f"unrecognized arguments: {' '.join(strange)}")
    try:
        code: int = chosen.run(chosen)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # who reads it has had enough; what is left has nowhere to go at the end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return PIPE_CLOSED
