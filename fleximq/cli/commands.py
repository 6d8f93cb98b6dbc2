"""The commands of ``fleximq``, their parser, and the commands ``broker`` and ``completion``."""

import sys
from argparse import REMAINDER, Namespace
from collections.abc import Sequence

from fleximq import __version__
from fleximq.cli.bench.command import bench
from fleximq.cli.check_config import checkConfig
from fleximq.cli.client_commands.doctor import doctor, ping
from fleximq.cli.client_commands.operator_commands import BAN, CLIENTS, DEAD_LETTERS, QUEUES, TOPICS
from fleximq.cli.client_commands.pub import produce, pub
from fleximq.cli.client_commands.requests import notify, req, serve
from fleximq.cli.client_commands.schedule_commands import SCHEDULES
from fleximq.cli.client_commands.sub import consume, sub, tail
from fleximq.cli.client_commands.top import top
from fleximq.cli.client_commands.value_commands import VALUES
from fleximq.cli.client_commands.work import enqueue, work
from fleximq.cli.cluster import CLUSTER
from fleximq.cli.command import addCommands, argument, command
from fleximq.cli.credential_files import APIKEY, KEYPAIR, PASSWD, TOKEN
from fleximq.cli.journal import JOURNAL
from fleximq.compiled.choice import IMPLEMENTATION
from fleximq.config.argument_parser import CommandParser

SHELLS = ("bash", "zsh", "fish", "tcsh")  #: The shells supported by shtab.


@command(
    "broker",
    lambda parser: setattr(parser, "prefix_chars", "\0"),  # no word is an option of this parser
    argument("options", "OPTION", "as for twistd fleximq; --help lists them", nargs=REMAINDER),
)
def broker(arguments: Namespace) -> None:
    """Run a broker in the foreground, with the options of twistd fleximq."""
    if "--help" in arguments.options:
        from fleximq.startup.options import Options

        options = Options()
        options.synopsis = f"Usage: fleximq broker {options.synopsis}"
        print(options)
        return
    from twisted.scripts import twistd  # loads slowly

    sys.argv = ["twistd", "--nodaemon", "--pidfile=", "fleximq", *arguments.options]
    twistd.run()


@command("completion", argument("shell", "SHELL", f"one of {', '.join(SHELLS)}", choices=SHELLS))
def completion(arguments: Namespace) -> None:
    """Print a script for completion, e.g. for: source <(fleximq completion bash)"""
    import shtab  # used only here

    sys.stdout.write(shtab.complete(parser(), arguments.shell))


#: All commands, in the order of the help.
COMMANDS = (
    broker, doctor, pub, sub, enqueue, work, produce, consume, req, serve, notify, tail, top, ping,
    TOPICS, QUEUES, SCHEDULES, VALUES, DEAD_LETTERS, CLIENTS, BAN, bench, checkConfig, JOURNAL, CLUSTER, PASSWD,
    APIKEY, TOKEN, KEYPAIR, completion,
)  # fmt: skip


def parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(prog="fleximq", description="Tools for a FlexiMQ broker, and the broker itself.")
    parser.add_argument("--version", action="version", version=f"FlexiMQ {__version__} ({IMPLEMENTATION})")
    addCommands(parser, COMMANDS, "chosen")
    return parser


_HELP = ("-h", "--help")
_OPTIONS_WITHOUT_COMMAND = (*_HELP, "--version")  #: Options that need no command.
_LISTING = ("schedules", "values", "ban")  #: Groups of commands that list what there is if no command follows.


def run(words: Sequence[str]) -> int:
    """Run a command line, and return its exit code; raises SystemExit as :func:`fleximq.cli.main.main`."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words:
        parser().print_help()
        return 0
    if words[0].startswith("-") and not any(own.startswith(words[0]) for own in _OPTIONS_WITHOUT_COMMAND):
        names = {each.name for each in COMMANDS}
        named = next((word for word in words if word in names), "COMMAND")
        option = words[0].partition("=")[0]
        parser().error(f"options follow the command: fleximq {named} {option}")
    if words[0] in _LISTING and all(word.startswith("-") and word not in _HELP for word in words[1:2]):
        words = [words[0], "ls", *words[1:]]
    arguments, strange = parser().parse_known_args(words)
    work, own = arguments.chosen
    if strange:
        own.refuse(strange)
    code: int | None = work(arguments)
    return code or 0
