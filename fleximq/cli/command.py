"""The parts of a command."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """One command of ``fleximq``.

    ``words`` is its description in one sentence, ``prepare`` adds its arguments to a parser, and ``run`` returns the
    exit code.
    """

    name: str
    words: str
    prepare: Callable[[ArgumentParser], object]
    run: Callable[[Namespace], int]
