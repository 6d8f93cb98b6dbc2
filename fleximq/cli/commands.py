"""The commands of ``fleximq``, their parser, and the commands ``broker`` and ``completion``.

Only the chosen command is imported: all of them need ten times as long.
"""

import sys
from argparse import REMAINDER, Namespace
from collections.abc import Iterable, Sequence
from importlib import import_module

from fleximq import __version__
from fleximq.cli.command import Command, addCommands, argument, command
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


_CLIENT = "client_commands"
#: All commands, in the order of the help: the module of each in fleximq.cli, and its name there.
COMMANDS = {
    "broker": ("commands", "broker"),
    "doctor": (f"{_CLIENT}.doctor", "doctor"),
    "pub": (f"{_CLIENT}.pub", "pub"),
    "sub": (f"{_CLIENT}.sub", "sub"),
    "enqueue": (f"{_CLIENT}.work", "enqueue"),
    "work": (f"{_CLIENT}.work", "work"),
    "produce": (f"{_CLIENT}.pub", "produce"),
    "consume": (f"{_CLIENT}.sub", "consume"),
    "req": (f"{_CLIENT}.requests", "req"),
    "serve": (f"{_CLIENT}.requests", "serve"),
    "notify": (f"{_CLIENT}.requests", "notify"),
    "tail": (f"{_CLIENT}.sub", "tail"),
    "top": (f"{_CLIENT}.top", "top"),
    "ping": (f"{_CLIENT}.doctor", "ping"),
    "topics": (f"{_CLIENT}.operator_commands", "TOPICS"),
    "queues": (f"{_CLIENT}.operator_commands", "QUEUES"),
    "schedules": (f"{_CLIENT}.schedule_commands", "SCHEDULES"),
    "values": (f"{_CLIENT}.value_commands", "VALUES"),
    "dead-letters": (f"{_CLIENT}.operator_commands", "DEAD_LETTERS"),
    "clients": (f"{_CLIENT}.operator_commands", "CLIENTS"),
    "ban": (f"{_CLIENT}.operator_commands", "BAN"),
    "sql": ("sql", "sql"),
    "bench": ("bench.command", "bench"),
    "check-config": ("check_config", "checkConfig"),
    "journal": ("journal", "JOURNAL"),
    "cluster": ("cluster", "CLUSTER"),
    "passwd": ("credential_files", "PASSWD"),
    "apikey": ("credential_files", "APIKEY"),
    "token": ("credential_files", "TOKEN"),
    "keypair": ("credential_files", "KEYPAIR"),
    "completion": ("commands", "completion"),
}


def commandOf(name: str) -> Command:
    """Return a command of the table."""
    module, attribute = COMMANDS[name]
    found: Command = getattr(import_module(f"fleximq.cli.{module}"), attribute)
    return found


def parser(names: Iterable[str] = tuple(COMMANDS)) -> CommandParser:
    """Return the parser of the command line, which knows these commands."""
    parser = CommandParser(prog="fleximq", description="Tools for a FlexiMQ broker, and the broker itself.")
    parser.add_argument("--version", action="version", version=f"FlexiMQ {__version__} ({IMPLEMENTATION})")
    addCommands(parser, map(commandOf, names), "chosen")
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
        named = next((word for word in words if word in COMMANDS), "COMMAND")
        option = words[0].partition("=")[0]
        parser().error(f"options follow the command: fleximq {named} {option}")
    if words[0] in _LISTING and all(word.startswith("-") and word not in _HELP for word in words[1:2]):
        words = [words[0], "ls", *words[1:]]
    chosen = parser([words[0]]) if words[0] in COMMANDS else parser()
    arguments, strange = chosen.parse_known_args(words)
    work, own = arguments.chosen
    if strange:
        own.refuse(strange)
    code: int | None = work(arguments)
    return code or 0
