"""Runs commands that connect to a broker; errors are one sentence."""

import socket
import ssl
import sys
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fleximq.cli.client_commands.broker_options import Address, addOptions, addressOf
from fleximq.cli.command import Command
from fleximq.cli.output import say
from fleximq.client.errors import ClientError, ConnectionLost, TopicWarning, Untrusted
from fleximq.errors import SettingError
from fleximq.values.urls import Url, addressesOf

Work = Callable[[Namespace, Address], int]
#: Limit for a handshake that only finds out whether a port speaks TLS.
_PROBE_SECONDS = 1.0


def brokerCommand(name: str, words: str, prepare: Callable[[ArgumentParser], object], work: Work) -> Command:
    """Return a command whose ``work`` gets the broker selected by its options."""

    def prepared(parser: ArgumentParser) -> None:
        prepare(parser)
        addOptions(parser)

    return Command(name, words, prepared, lambda arguments: runWith(work, arguments))


def runWith(work: Work, arguments: Namespace) -> int:
    """Run the work of a command with the broker selected by its options; returns the exit code."""
    address = None
    try:
        address = addressOf(arguments)
        with warnings.catch_warnings(action="ignore", category=TopicWarning):  # commands report these themselves
            return work(arguments, address)
    except (ClientError, SettingError, TimeoutError) as error:
        urls = addressesOf(address.url) if address is not None and isinstance(error, ConnectionLost) else ()
        hint = next(filter(None, (hintFor(error, url) for url in urls)), None)
        say(f"fleximq: {error}" + (f"; {hint}" if hint else ""))
        return 1


def hintFor(error: Exception, url: Url) -> str | None:
    """Return what to do about a connection that could not be made; None for an unknown cause."""
    if not isinstance(error, ConnectionLost):
        return None
    if str(error).endswith("Connection refused"):
        return "no broker listens there: fleximq broker starts one"
    if isinstance(error, Untrusted) and "mismatch" in str(error):
        return f"use a host for which the certificate is, or a certificate for {url.host}"
    if isinstance(error, Untrusted):
        return "--tls-authority FILE names the certificate to trust, which must be for the host of the URL"
    if url.isSecure and "does not use TLS" in str(error):
        return f"without TLS the URL begins with {'ws' if url.isWebSocket else 'tcp'}://"
    if url.scheme in ("tcp", "ws") and speaksTls(url):
        return f"this port speaks TLS, so the URL begins with {'wss' if url.isWebSocket else 'tls'}://"
    return None


def speaksTls(url: Url) -> bool:
    """Tell whether a port answers a TLS handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((url.host or "localhost", url.port), _PROBE_SECONDS) as connection,
            context.wrap_socket(connection),
        ):
            return True
    except (OSError, UnicodeError):  # also a host name that cannot be one
        return False


@contextmanager
def readingAnswers() -> Iterator[None]:
    """Report an answer of the broker that has an unknown shape in one sentence.

    :raises ClientError: the block failed because of a value.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        words = f"an answer of the broker cannot be read ({type(error).__name__}: {error})"
        raise ClientError(f"{words}; is it FlexiMQ of this version?") from error


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
