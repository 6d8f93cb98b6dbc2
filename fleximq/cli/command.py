"""What a command of ``fleximq`` consists of."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """One word behind ``fleximq``.

    ``words`` says in one sentence what it does, ``prepare`` adds its arguments to a parser, and ``run`` does it and
    returns the exit code.
    """

    name: str
    words: str
    prepare: Callable[[ArgumentParser], object]
    run: Callable[[Namespace], int]
