"""Runs commands that connect to a broker; errors are one sentence."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fleximq.cli.client_commands.broker_options import Address, addOptions, addressOf
from fleximq.cli.command import Command
from fleximq.cli.output import say
from fleximq.client.errors import ClientError
from fleximq.errors import SettingError

Work = Callable[[Namespace, Address], int]


def brokerCommand(name: str, words: str, prepare: Callable[[ArgumentParser], object], work: Work) -> Command:
    """Return a command whose ``work`` gets the broker selected by its options."""

    def prepared(parser: ArgumentParser) -> None:
        prepare(parser)
        addOptions(parser)

    return Command(name, words, prepared, lambda arguments: runWith(work, arguments))


def runWith(work: Work, arguments: Namespace) -> int:
    """Run the work of a command with the broker selected by its options; returns the exit code."""
    try:
        return work(arguments, addressOf(arguments))
    except (ClientError, SettingError, TimeoutError) as error:
        say(f"fleximq: {error}")
        return 1


class PublishRate:
    """Limits a rate per second; None: no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._begun = time.monotonic()
        self._done = 0

    def wait(self, number: int = 1) -> None:
        """Count ``number`` messages, and sleep until they are due."""
        self._done += number
        if self._rate is not None:
            time.sleep(max(0.0, self._begun + self._done / self._rate - time.monotonic()))


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar if standard error is a terminal; yields the function that advances it."""
    if not sys.stderr.isatty():
        yield lambda number: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: list[Any] = [TextColumn(what), MofNCompleteColumn()]
    if total is not None:
        columns += [BarColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda number: bar.advance(task, number)
