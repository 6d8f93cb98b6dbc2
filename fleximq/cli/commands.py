"""The commands of ``fleximq``, their parser, and the command ``completion``, which prints a completion script."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from fleximq import __version__
from fleximq.cli.bench.command import BENCH
from fleximq.cli.broker import BROKER
from fleximq.cli.check_config import CHECK_CONFIG
from fleximq.cli.client_commands.ban import BAN
from fleximq.cli.client_commands.broker_views import CLIENTS, DEAD_LETTERS, QUEUES, TOPICS
from fleximq.cli.client_commands.doctor import DOCTOR
from fleximq.cli.client_commands.ping import PING
from fleximq.cli.client_commands.pub import PUB
from fleximq.cli.client_commands.req import NOTIFY, REQ
from fleximq.cli.client_commands.serve import SERVE
from fleximq.cli.client_commands.sub import SUB, TAIL
from fleximq.cli.client_commands.top import TOP
from fleximq.cli.client_commands.work_queue import CONSUME, PRODUCE
from fleximq.cli.cluster import CLUSTER
from fleximq.cli.command import Command
from fleximq.cli.credential_files import APIKEY, KEYPAIR, PASSWD, TOKEN
from fleximq.cli.journal import JOURNAL
from fleximq.compiled.choice import IMPLEMENTATION
from fleximq.config.argument_parser import CommandParser

#: The shells supported by shtab.
SHELLS = ("bash", "zsh", "fish", "tcsh")


def completion(parser: Callable[[], ArgumentParser]) -> Command:
    """Return the command ``completion``. ``parser``: makes the complete parser."""

    def prepare(own: ArgumentParser) -> None:
        own.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")

    def run(arguments: Namespace) -> int:
        import shtab  # used only here

        sys.stdout.write(shtab.complete(parser(), arguments.shell))
        return 0

    words = "Print a script for completion, e.g. for: source <(fleximq completion bash)"
    return Command("completion", words, prepare, run)


def parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="fleximq",
        description="Tools for a FlexiMQ broker, and the broker itself.",
    )
    parser.add_argument("--version", action="version", version=f"FlexiMQ {__version__} ({IMPLEMENTATION})")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.words, description=command.words)
        command.prepare(own)
        own.set_defaults(run=command.run, refuse=own.refuse)
    return parser


#: All commands, in the order of the help.
COMMANDS = (
    BROKER, DOCTOR, PUB, SUB, PRODUCE, CONSUME, REQ, SERVE, NOTIFY, TAIL, TOP, PING,
    TOPICS, QUEUES, DEAD_LETTERS, CLIENTS, BAN, BENCH, CHECK_CONFIG, JOURNAL, CLUSTER, PASSWD,
    APIKEY, TOKEN, KEYPAIR, completion(parser),
)  # fmt: skip
#: Options that need no command.
_OPTIONS_WITHOUT_COMMAND = ("-h", "--help", "--version")


def run(words: Sequence[str]) -> int:
    """Run the command of a command line, and return its exit code.

    :raises SystemExit: the command line is invalid (1), or help or version were printed (0).
    """
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words:
        parser().print_help()
        return 0
    if words[0].startswith("-") and not any(own.startswith(words[0]) for own in _OPTIONS_WITHOUT_COMMAND):
        names = {each.name for each in COMMANDS}
        command = next((word for word in words if word in names), "COMMAND")
        option = words[0].partition("=")[0]
        parser().error(f"options follow the command: fleximq {command} {option}")
    chosen, strange = parser().parse_known_args(words)
    if strange:
        chosen.refuse(strange)
    code: int = chosen.run(chosen)
    return code
