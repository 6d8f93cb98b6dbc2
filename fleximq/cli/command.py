"""The parts of a command, and of a command that has commands of its own."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

Argument = Callable[[ArgumentParser], object]  #: Adds one argument or several.
Work = Callable[[Namespace], int | None]  #: Carries out a command; returns the exit code.


class Command(NamedTuple):
    """One command of ``fleximq``: ``words`` is its description, ``run`` returns the exit code; None is 0, success."""

    name: str
    words: str
    arguments: Sequence[Argument]
    run: Work


def command(name: str, *arguments: Argument) -> Callable[[Work], Command]:
    """Return a decorator that makes a command of the function that carries it out; its docstring is the description."""
    return lambda run: Command(name, run.__doc__ or "", arguments, run)


def group(name: str, words: str, *commands: Command) -> Command:
    """Return a command that has these commands."""
    arguments = [lambda parser: addCommands(parser, commands, "inner")]
    return Command(name, words, arguments, lambda given: given.inner[0](given))


def addCommands(parser: ArgumentParser, commands: Iterable[Command], chosen: str) -> None:
    """Add commands; the attribute ``chosen`` of the result has the function and the parser of the chosen one."""
    parsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for each in commands:
        own = parsers.add_parser(each.name, help=each.words, description=each.words)
        for add in each.arguments:
            add(own)
        own.set_defaults(**{chosen: (each.run, own)})


def argument(name: str, metavar: str | None = None, words: str | None = None, **more: Any) -> Argument:
    """Return an argument or an option; ``words`` is its help, ``more`` is for ``ArgumentParser.add_argument``."""
    return lambda parser: parser.add_argument(name, metavar=metavar, help=words, **more)


def switch(name: str, words: str) -> Argument:
    """Return an option without a value."""
    return lambda parser: parser.add_argument(name, action="store_true", help=words)
