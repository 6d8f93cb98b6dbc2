"""Runs commands that connect to a broker: errors are one sentence, and a closed output ends them quietly."""

import os
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fleximq.cli.client_commands.broker_options import Address, addOptions, addressOf
from fleximq.cli.command import Command
from fleximq.client.errors import ClientError
from fleximq.errors import SettingError

#: Exit codes after Control-C and a closed pipe.
INTERRUPTED, PIPE_CLOSED = 128 + signal.SIGINT, 128 + signal.SIGPIPE

Work = Callable[[Namespace, Address], int]


def brokerCommand(name: str, words: str, prepare: Callable[[ArgumentParser], object], work: Work) -> Command:
    """Return a command whose ``work`` gets the broker selected by its options."""

    def prepared(parser: ArgumentParser) -> None:
        prepare(parser)
        addOptions(parser)

    return Command(name, words, prepared, lambda arguments: _run(work, arguments))


def _run(work: Work, arguments: Namespace) -> int:
    try:
        code = work(arguments, addressOf(arguments))
        sys.stdout.flush()
        return code
    except (ClientError, SettingError, TimeoutError) as error:
        print(f"fleximq: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # So that the final flush of Python succeeds.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def out(data: bytes) -> None:
    """Write to standard output and flush, since the reader may wait for it."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(sentence: str) -> None:
    """Print a message that is not a result, to standard error."""
    print(sentence, file=sys.stderr, flush=True)


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
