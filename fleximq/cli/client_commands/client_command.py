"""Commands that connect to a broker: errors are one sentence, and listings end even if the broker is hostile."""

import os
import socket
import ssl
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from fleximq.cli.client_commands.broker_options import Address, addOptions, addressOf
from fleximq.cli.command import Argument, Command
from fleximq.cli.credential_files import API_KEY_PREFIX
from fleximq.cli.output import say
from fleximq.client.blocking import Client
from fleximq.client.errors import Answered, ClientError, ConnectionLost, TopicWarning, Untrusted
from fleximq.client.payloads import unpacked
from fleximq.client.settings import isText
from fleximq.errors import SettingError
from fleximq.limits import MEBIBYTE
from fleximq.status import Status
from fleximq.values.urls import Url, addressesOf

Row = Mapping[str, Any]
#: Arguments that need not be UTF-8: values, which have their own check, files, and a program.
_BYTES = frozenset({"value", "file", "csv", "folder", "tls_authority", "tls_certificate", "tls_key", "command"})
BrokerWork = Callable[[Namespace, Address], int | None]
_PROBE_SECONDS = 1.0  #: Limit for a handshake that only finds out whether a port speaks TLS.
PAGE = 1000  #: Rows of one request for a page of a listing.
MAX_PAGES, MAX_BYTES = 10_000, 256 * MEBIBYTE  #: Limits of one listing: answers, and their bytes in all.


def clientCommand(name: str, *arguments: Argument) -> Callable[[BrokerWork], Command]:
    """Return a decorator as :func:`command`, for a function that gets the broker selected by the command's options."""
    return lambda work: Command(name, work.__doc__ or "", (*arguments, addOptions), partial(run, work))


def run(work: BrokerWork, arguments: Namespace) -> int | None:
    """Run the work of a command with the selected broker; errors are one sentence and exit code 1."""
    address = None
    try:
        _checkTexts(arguments)
        address = addressOf(arguments)
        with warnings.catch_warnings(action="ignore", category=TopicWarning):  # commands report these themselves
            return work(arguments, address)
    except (ClientError, SettingError, TimeoutError) as error:
        urls = addressesOf(address.url) if address is not None and isinstance(error, ConnectionLost) else ()
        hint = next(filter(None, (hintFor(error, url) for url in urls)), None) or _credentialHint(error, address)
        say(f"fleximq: {error}" + (f"; {hint}" if hint else ""))
        return 1


def _checkTexts(arguments: Namespace) -> None:
    """Raise SettingError if an argument that is sent as a text has bytes that are not UTF-8."""
    for name, given in vars(arguments).items():
        several = given if isinstance(given, list) else [given]
        if name not in _BYTES and any(isinstance(each, str) and not isText(each) for each in several):
            raise SettingError(f"the argument {name.rstrip('_').replace('_', '-')} is not UTF-8")


def hintFor(error: Exception, url: Url) -> str | None:
    """Return advice about a failed connection; None for an unknown cause."""
    if not isinstance(error, ConnectionLost):
        return None
    if str(error).endswith("Connection refused"):
        return "no broker listens there: fleximq broker starts one"
    if isinstance(error, Untrusted) and "mismatch" in str(error):
        return f"use a host for which the certificate is, or a certificate for {url.host}"
    if isinstance(error, Untrusted) and "this client's certificate" in str(error):
        return "--tls-certificate FILE and --tls-key FILE show one"
    if isinstance(error, Untrusted):
        return "--tls-authority FILE names the certificate to trust, which must be for the host of the URL"
    if url.isSecure and "does not use TLS" in str(error):
        return f"without TLS the URL begins with {'ws' if url.isWebSocket else 'tcp'}://"
    if url.scheme in ("tcp", "ws") and speaksTls(url):
        return f"this port speaks TLS, so the URL begins with {'wss' if url.isWebSocket else 'tls'}://"
    return None


def _credentialHint(error: Exception, address: Address | None) -> str | None:
    """Return advice about refused credentials; None for an unknown cause."""
    if address is None or not isinstance(error, Answered) or error.status != Status.UNAUTHORIZED:
        return None
    if address.credentials is None:
        return "FLEXIMQ_PASSWORD is set, --user is missing" if "FLEXIMQ_PASSWORD" in os.environ else None
    isKey = address.credentials.get("token", "").startswith(API_KEY_PREFIX)
    return "this token is an API key: give it as --api-key" if isKey else None


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
    """Raise ClientError if the block fails because an answer of the broker has an unknown shape."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        words = f"an answer of the broker cannot be read ({type(error).__name__}: {error})"
        raise ClientError(f"{words}; is it FlexiMQ of this version?") from error


def tellMissing(answer: Row) -> None:
    """Say on standard error which nodes of a mesh did not answer."""
    if answer.get("missing"):
        say(f"fleximq: no answer from the nodes {', '.join(answer['missing'])}")


def pagedRows(client: Client, path: str, key: str, timeout: float, most: int | None = None) -> Iterator[Row]:
    """Yield the rows of a listing, page by page.

    :param key: the key of the rows in the answers.
    :param most: end with the page that exceeds so many rows; without it, missing nodes are told.
    :raises ClientError: the answers do not end.
    """
    asked: dict[str, Any] = {"limit": PAGE}
    size = found = 0
    for _ in range(MAX_PAGES):
        answer = client.ask_packed(path, asked, timeout)
        size += len(answer)
        page = unpacked(answer)
        yield from page[key]
        found += len(page[key])
        if most is None:
            tellMissing(page)
        if page["next"] is None or (most is not None and found >= most):
            return
        if size > MAX_BYTES or page["next"] == asked.get("after"):
            break
        asked["after"] = page["next"]
    raise ClientError(f"the listing of {path} does not end: {found} rows in {size} bytes were read")


def publishPace(rate: float | None) -> Callable[[int], None]:
    """Return a function that counts messages, and sleeps until they are due at this rate per second; None: no limit."""
    begun, done = time.monotonic(), 0

    def wait(number: int) -> None:
        nonlocal done
        done += number
        if rate is not None:
            time.sleep(max(0.0, begun + done / rate - time.monotonic()))

    return wait


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
