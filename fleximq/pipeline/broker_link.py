"""The connections of the pipeline's processes to a broker: each task makes its own :class:`BrokerLink`. Requests can be
repeated without harm, so a task waits for a broker that restarts. A wait of seconds is logged as a warning, which is
written to standard error unless the program has configured its log.
"""

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fleximq.client.blocking import Client, connect
from fleximq.client.errors import Answered, ClientError, ConnectionLost, JoinRefused, RequestFailed, Untrusted
from fleximq.errors import SettingError
from fleximq.pipeline.errors import BrokerGone, BrokerRefused, NotJournalled, OptionRefused, PayloadTooLarge
from fleximq.pipeline.wait_notice import waitNotice
from fleximq.status import Status
from fleximq.values.urls import addressesOf
from fleximq.wire.large_value import unpackLarge

_log = logging.getLogger("fleximq.pipeline")
#: Seconds to wait for a broker that is unreachable or temporarily unavailable.
TIMEOUT = 30.0
#: Seconds until the next attempt: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: A text of the connection's end that makes a second attempt useless.
_TOO_LARGE = f"{int(Status.PAYLOAD_TOO_LARGE)} payload too large"
#: How the broker's sentence begins if it has no journal.
_NO_JOURNAL = "there is no journal"

T = TypeVar("T")
#: Returns an answer, or raises :class:`Behind`.
Check = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a broker, or of a cluster's nodes, and the credentials: the map of the FlexiMQ document, section
    5.2. ``authority``, ``certificate`` and ``key`` name PEM files; ``timeout`` is in seconds. Raises OptionRefused for
    a wrong URL.
    """

    url: str
    credentials: Mapping[str, str] | None = field(default=None, repr=False)
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        with _usableUrl():
            addressesOf(self.url)

    @classmethod
    def of(cls, options: Mapping[str, str], url: str | None = None) -> "BrokerAddress":
        """Return the address that options name, with ``url`` instead of theirs, if any; raises OptionRefused."""
        named = url or options.get("url")
        if not named:
            raise OptionRefused("the option 'url' is missing: it names the broker, e.g. tcp://localhost:7890")
        authority, certificate, key = (options.get(name) for name in ("caFile", "certFile", "keyFile"))
        return cls(named, _credentials(options), authority, certificate, key, _seconds(options))

    @property
    def addresses(self) -> int:
        """The number of addresses."""
        return len(addressesOf(self.url))

    def connect(self) -> Client:
        """Return a new client; raises ConnectionLost, JoinRefused, or OptionRefused for a wrong URL or TLS file."""
        login, tls = self.credentials, self._tls()
        with _usableUrl():
            return connect(self.url, credentials=login, tls=tls, reconnect=None, keep_alive=None)

    def _tls(self) -> ssl.SSLContext | None:
        if self.authority is None and self.certificate is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authority)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise OptionRefused(f"the files of 'caFile', 'certFile' and 'keyFile' cannot be used: {error}") from error
        return context


@contextmanager
def _usableUrl() -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        raise OptionRefused(f"the option 'url' cannot be used: {error}") from error


def _credentials(options: Mapping[str, str]) -> Mapping[str, str] | None:
    token, written = options.get("token"), options.get("credentials")
    if token is not None:
        return {"type": "token", "token": token}
    if written is None:
        return None
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        # The value may be secret, so it is not shown.
        raise OptionRefused(
            'the option \'credentials\' must be a JSON map of texts, e.g. {"type": "token", "token": ".."}'
        )
    return found


def choice(options: Mapping[str, str], name: str, known: Mapping[str, T], otherwise: str) -> T:
    """Return the value that an option chooses, in any case; raises OptionRefused for an unknown one."""
    written = options.get(name, otherwise)
    if written.lower() not in known:
        raise OptionRefused(f"the option {name!r} is {written!r}, but must be {' or '.join(known)}")
    return known[written.lower()]


def flag(options: Mapping[str, str], name: str, otherwise: bool) -> bool:
    """Return an option that is true or false; raises OptionRefused for another text."""
    return choice(options, name, {"true": True, "false": False}, str(otherwise))


def _seconds(options: Mapping[str, str]) -> float:
    written = options.get("brokerTimeout", str(TIMEOUT))
    try:
        seconds = float(written)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise OptionRefused(f"the option 'brokerTimeout' is {written!r}, but must be seconds from 0 to 86400")
    return seconds


class Behind(ConnectionLost):
    """The node of a cluster that answered does not have all records that are needed."""


class BrokerLink:
    """Sends requests to one broker, or to any node of a cluster, from one process; connects on the first request, and
    again when the connection was lost, or the node cannot serve the request.
    """

    def __init__(
        self,
        place: BrokerAddress,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self._sleep = sleep
        self._now = now
        self._client: Client | None = None

    def __enter__(self) -> "BrokerLink":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection at once."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(ClientError, TimeoutError):
                client.close(0)

    @property
    def client(self) -> Client:
        """The client of the present connection, or of a new one; raises BrokerGone on timeout, or BrokerRefused."""
        return self._again(lambda client: client)

    def ask(self, path: str, arguments: Mapping[str, Any] | None = None, check: Check | None = None) -> Any:
        """Return the answer of a path of the broker; retries while the broker is away, or ``check`` raises Behind for
        it. Raises BrokerGone after the timeout, BrokerRefused for a permanent error, NotJournalled without a journal.
        """
        return self._again(lambda client: client.ask(path, arguments), check)

    def askLarge(self, path: str, arguments: Mapping[str, Any], check: Check | None = None) -> Any:
        """Do the same; a large last value of the answered map is a view of the received bytes, not a copy."""
        return self._again(lambda client: unpackLarge(client.ask_packed(path, arguments)), check)

    def _again(self, use: Callable[[Client], T], check: Callable[[T], T] | None = None) -> T:
        place, why = self.place, "it does not answer"
        deadline, pause, left = self._now() + place.timeout, _FIRST_PAUSE, place.addresses
        sentence = f"waiting for the broker at {place.url}, for {place.timeout:g} s at most"
        with waitNotice(lambda: f"{sentence}: {why}", _log.warning):
            while True:
                left -= 1
                try:
                    if self._client is None:
                        self._client = place.connect()
                    answer = use(self._client)
                    return answer if check is None else check(answer)
                except ValueError as error:
                    raise BrokerRefused(f"the broker at {place.url} sent a malformed answer: {error}") from error
                except (ConnectionLost, TimeoutError, RequestFailed, JoinRefused) as error:
                    if not _mayPass(error):
                        raise self._refused(error) from error
                    # Another node may be able to serve the request.
                    if not isinstance(error, RequestFailed) or place.addresses > 1:
                        self.close()
                    # A node that hangs may have taken all of the time.
                    if self._now() + pause > deadline and left <= 0:
                        raise self._refused(error) from error
                    why = str(error)
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _refused(self, error: Exception) -> BrokerGone | BrokerRefused | NotJournalled:
        url = self.place.url
        if isinstance(error, JoinRefused):
            return BrokerRefused(f"the broker at {url} does not let the pipeline in: {error}")
        if isinstance(error, Untrusted):
            return BrokerRefused(f"the broker at {url} and the pipeline do not trust each other: {error}")
        if _TOO_LARGE in str(error):
            return PayloadTooLarge(f"a row is larger than the broker at {url} takes, see its --max-message: {error}")
        if isinstance(error, RequestFailed):
            if error.words.startswith(_NO_JOURNAL):
                return NotJournalled(f"the broker at {url} has no journal; start it with --journal DIR")
            return BrokerRefused(f"the broker at {url} answered {error.path} with {error}")
        if isinstance(error, Behind):
            return BrokerGone(f"no node at {url} has all records: {error}")
        return BrokerGone(f"the broker at {url} is away: {error}")


def _mayPass(error: Exception) -> bool:
    if isinstance(error, Answered):
        busy = error.status in (Status.SERVICE_UNAVAILABLE, Status.TOO_MANY_REQUESTS)
        return busy and not error.words.startswith(_NO_JOURNAL)
    return _TOO_LARGE not in str(error) and not isinstance(error, Untrusted)
