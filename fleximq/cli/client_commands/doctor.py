"""``fleximq doctor`` checks the connection to a broker, with advice for each fault; ``fleximq ping`` times it."""

import socket
import ssl
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

from fleximq import __version__
from fleximq.cli.client_commands.broker_options import Address, count, seconds
from fleximq.cli.client_commands.client_command import clientCommand, hintFor, readingAnswers
from fleximq.cli.command import argument
from fleximq.cli.output import jsonOption, out, outJson, tell
from fleximq.client.blocking import Client
from fleximq.client.errors import Answered, ClientError, JoinRefused
from fleximq.client.settings import Tls
from fleximq.errors import SettingError, systemReason
from fleximq.status import Status
from fleximq.values.urls import Url, addressesOf

#: The clocks may differ by so many seconds, and a certificate should be valid for so many days.
_SECONDS, _DAYS = 5.0, 14
GOOD, NOTE, BAD = "ok", "note", "fault"
_LOOPBACK = ("", "localhost", "127.0.0.1", "::1")


class Check(NamedTuple):
    """The result of one check, with advice unless it is good."""

    name: str
    result: str
    words: str
    advice: str = ""


def checks(url: Url, address: Address) -> Iterator[Check]:
    """Check a broker, until a fault makes the further checks impossible."""
    address = address._replace(url=str(url))
    if url.scheme != "stdio":
        reached = _address(url, address)
        yield reached
        if reached.result == BAD:
            return
    if url.scheme in ("tcp", "ws") and url.host not in _LOOPBACK:
        yield Check("tls", NOTE, "nothing is encrypted", "use tls:// or wss://, see --tls-certificate of the broker")
    try:
        client = address.connect(reconnect=None)
    except SettingError as error:
        yield Check("tls", BAD, str(error), "correct --tls-authority, --tls-certificate or --tls-key")
    except JoinRefused as error:
        if url.isSecure:
            yield _certificate(url, address)
        none = "use --user, --token, --api-key, --private-key or --profile"
        advice = none if address.credentials is None else "correct these credentials"
        yield Check("credentials", BAD, str(error), f"{advice}; the broker's log says what was wrong")
    except (ClientError, TimeoutError) as error:
        hint = hintFor(error, url)
        yield Check("tls" if hint else "broker", BAD, str(error), hint or "is this the port of a FlexiMQ broker?")
    else:
        with client:
            if url.isSecure:
                yield _certificate(url, address)
            yield Check("credentials", GOOD, f"admitted as client {client.id}")
            with readingAnswers():
                yield from _rights(client, address.timeout)


def _address(url: Url, address: Address) -> Check:
    try:
        if url.scheme == "ipc":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(url.socketPath("/tmp"))
        else:
            socket.create_connection((url.host or "localhost", url.port), address.timeout).close()
    except socket.gaierror as error:
        advice = "correct the host in the URL, or the name service of this machine"
        return Check("address", BAD, f"{url.host} has no address: {error.strerror}", advice)
    except TimeoutError:
        return Check("address", BAD, f"{url} does not answer", "check the host, and firewalls on the way")
    except OSError as error:
        advice = "start a broker there (fleximq broker), or correct the URL (--url, FLEXIMQ_URL, a profile)"
        return Check("address", BAD, f"{url}: {systemReason(error)}", advice)
    return Check("address", GOOD, f"{url} accepts connections")


def _certificate(url: Url, address: Address) -> Check:
    """Check how long the certificate will be valid; it is trusted, since a client has connected."""
    try:
        with (
            socket.create_connection((url.host, url.port), address.timeout) as plain,
            (address.tls or Tls()).context().wrap_socket(plain, server_hostname=url.host) as connection,
        ):
            until = ssl.cert_time_to_seconds(str((connection.getpeercert() or {}).get("notAfter")))
    except OSError as error:
        return Check("tls", BAD, str(error), "does the broker still run?")
    days = int((until - time.time()) / 86400)
    words = f"the certificate is trusted, and valid for {days} days"
    return Check("tls", NOTE, words, "renew it soon") if days < _DAYS else Check("tls", GOOD, words)


def _rights(client: Client, timeout: float) -> Iterator[Check]:
    """Check the rights to read and to admin, and the broker's report about itself."""
    try:
        begun = time.time()
        about = client.ask("/broker/about", None, timeout)
        yield Check("rights", GOOD, "may read /broker/about")
        yield from _about(about, (begun + time.time()) / 2)
    except Answered as error:
        advice = 'grant read = ["broker/#"] to this principal, and restrict what it should not see'
        yield Check("rights", NOTE, f"clock and version cannot be checked: {error}", advice)
    try:
        client.ask("/broker/bans", {"limit": 1}, timeout)
        yield Check("admin", GOOD, "may act as operator")
    except Answered as error:
        if error.status != Status.FORBIDDEN:
            raise
        advice = 'operators need admin = ["broker/#"]; see "Permissions" in the security guide'
        yield Check("admin", NOTE, "may not purge queues, return dead letters, disconnect or ban", advice)


def _about(about: Any, now: float) -> Iterator[Check]:
    apart = about["time"] / 1000 - now
    words = f"the broker's clock is {abs(apart):.1f} s {'ahead' if apart > 0 else 'behind'}"
    advice = "set both by NTP: tokens, bans and replays by time depend on them"
    yield Check("clock", GOOD, words) if abs(apart) <= _SECONDS else Check("clock", BAD, words, advice)
    words = f"broker {about['version']} ({about['implementation']}), command {__version__}"
    isSame = about["version"] == __version__
    yield Check("version", GOOD, words) if isSame else Check("version", NOTE, words, "install the same version")
    journal = about["journal"]
    if journal is not None:
        isWritable = journal["state"] == "ok"
        words = "stores messages" if isWritable else f"is read-only: {journal['reason']}"
        advice = "remove the cause, then: fleximq req broker /journal/reopen"
        if journal.get("retries"):
            advice = "remove the cause; the broker tries again by itself, at the latest after 30 seconds"
        yield Check("journal", GOOD, words) if isWritable else Check("journal", BAD, words, advice)


@clientCommand("doctor", jsonOption("one JSON object per check"))
def doctor(arguments: Namespace, address: Address) -> int:
    """Check address, TLS, credentials, rights, clock and version of each address."""
    faults = 0
    for url in addressesOf(address.url):
        for each in checks(url, address):
            advice = f"\n{'':18}{each.advice}" if each.result != GOOD else ""
            words = f"{each.result:<6}{each.name:<12}{each.words}{advice}"
            tell(arguments, words, url=url.withoutQuery, **each._asdict())
            faults += each.result == BAD
    return 1 if faults else 0


@clientCommand(
    "ping", argument("--count", "N", "number of PINGs [4]", type=count, default=4),
    argument("--interval", "SECONDS", "seconds between them [1]", type=seconds, default=1.0),
    jsonOption("one JSON object, in milliseconds"),
)  # fmt: skip
def ping(arguments: Namespace, address: Address) -> None:
    """Measure the round-trip time to the broker."""
    took: list[float] = []
    with address.connect() as client:
        for place in range(arguments.count):
            if place:
                time.sleep(arguments.interval)
            took.append(client.ping(address.timeout) * 1000)
            if not arguments.json:
                out(f"{client.url} answered in {took[-1]:.3f} ms\n".encode())
    least, middle, most = min(took), statistics.median(took), max(took)
    if arguments.json:
        found = {"min": round(least, 3), "median": round(middle, 3), "max": round(most, 3)}
        outJson({"url": client.url, "count": len(took), **found})
    elif len(took) > 1:
        out(f"{len(took)} answers: {least:.3f} / {middle:.3f} / {most:.3f} ms (min / median / max)\n".encode())
