"""``fleximq completion SHELL``: a script by which a shell completes the words of this command."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from fleximq.cli.command import Command

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
