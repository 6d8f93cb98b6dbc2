"""Finds the command that a command line names, and runs it."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from fleximq import __version__
from fleximq.cli.check_config import CHECK_CONFIG
from fleximq.cli.journal import JOURNAL

#: All commands, in the order in which the help shows them.
COMMANDS = (CHECK_CONFIG, JOURNAL)


class Words(argparse.ArgumentParser):
    """Says in one sentence what it cannot understand, and ends with 1 like every other mistake."""

    def error(self, message: str) -> NoReturn:
        """End with this sentence.

        :raises SystemExit: always.
        """
        raise SystemExit(f"{self.prog}: {message}; {self.prog} --help says more")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what these words say, those of the process if None, and return the exit code: 0 if all went well.

    :raises SystemExit: for words that cannot be understood (1), and after help or version were shown (0).
    """
    parser = Words(prog="fleximq", description="Tools beside the broker, which itself is run by twistd -n fleximq.")
    parser.add_argument("--version", action="version", version=f"FlexiMQ {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.words, description=command.words)
        command.prepare(own)
        own.set_defaults(run=command.run)
    chosen = parser.parse_args(arguments)
    code: int = chosen.run(chosen)
    return code
