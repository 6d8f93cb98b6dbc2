"""Settings of a connection; the keyword arguments of every ``connect``."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fleximq.client.backoff import Backoff
from fleximq.client.payloads import packed, unpacked
from fleximq.errors import SettingError, systemReason
from fleximq.limits import MEBIBYTE

#: Default limit in seconds for joining, a request or a flush.
TIMEOUT = 30.0
#: Seconds of silence after which a client pings the broker; it gives up after three times as long.
KEEP_ALIVE = 30.0
#: Bytes of publications that are buffered while the broker is unreachable.
BUFFER_BYTES = 8 * MEBIBYTE
#: Bytes of unread deliveries at which a client pauses reading.
PREFETCH_BYTES = 64 * MEBIBYTE
#: Most bytes received until the broker has admitted the client.
JOINING_BYTES = MEBIBYTE
#: The type of credentials that are not sent, and their key.
PRIVATE_KEY = "private_key"
#: How a client reconnects by default.
BACKOFF = Backoff()
#: FlexiMQ document 3.7 and docs/reference/dialects.rst: the intervals that the broker accepts, in seconds.
_MIN_INTERVAL, _MAX_INTERVAL = 5, 300
#: Start of a subscription: "first", "last", an offset, or ``{"time": milliseconds since 1970}``.
Start = str | int | Mapping[str, int]


class State(Enum):
    """The state of a client's connection."""

    JOINED = "joined"
    """Connected, with all subscriptions restored."""
    AWAY = "away"
    """The connection was lost and the client is reconnecting; the error's ``missing`` lists affected subscriptions."""
    CLOSED = "closed"
    """Not connected; the client will not reconnect."""


#: Called with each new state, and the error that led to it or None.
Watcher = Callable[[State, Exception | None], None]


@dataclass(frozen=True, slots=True)
class Codec:
    """How values become payloads and payloads become values; MessagePack by default.

    Payloads in another format reach subscribers of other dialects as bytes. ``unpack`` may raise ValueError.
    """

    pack: Callable[[Any], bytes] = packed
    unpack: Callable[[bytes | memoryview], Any] = unpacked


#: MessagePack.
MESSAGEPACK = Codec()


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates for TLS, as paths of PEM files.

    ``authority``: certificates to trust instead of the system's. ``certificate``: the client's own, whose private key
    is in ``key``, or in the same file.
    """

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def check_files(self) -> None:
        """Raise SettingError if a file cannot be read."""
        for path in self._paths():
            try:
                open(path, "rb").close()
            except OSError as error:
                raise SettingError(f"{path} cannot be read: {systemReason(error)}") from error

    def context(self) -> ssl.SSLContext:
        """Return an SSL context that also checks the host name; raises SettingError if a file is unusable."""
        self.check_files()
        try:
            context = ssl.create_default_context(cafile=self.authority)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise self.refused(error) from error
        return context

    def refused(self, error: Exception) -> SettingError:
        """Return the error about files that can be read, but not used."""
        hint = ", the key may be missing" if self.certificate is not None and self.key is None else ""
        return SettingError(f"{' and '.join(self._paths())} cannot be used for TLS as PEM files{hint}: {error}")

    def _paths(self) -> list[str]:
        return [path for path in (self.authority, self.certificate, self.key) if path is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Checked settings of one client.

    ``credentials``: the client's identity, e.g. ``{"type": "token", "token": "..."}`` (FlexiMQ document 5.2), or
    ``{"type": "private_key", "private_key": "fmqs_..."}``, which signs a challenge and is not sent itself. ``name``:
    the name by which others can reach the client, and all others of that name. ``timeout``: seconds for connecting, and
    again for joining. ``tls``: a :class:`Tls`, or the context of the form's own library. ``reconnect``: delays between
    attempts to reconnect; None: do not reconnect. ``buffer``: limit in bytes of payload for publications buffered while
    the broker is unreachable. ``prefetch``: pause reading while more bytes than this are unread; while the unanswered
    requests to served paths take more, and more than 1 MiB, answer further ones with 503. ``keep_alive``: seconds of
    silence before the client pings the broker; None: do not ping. ``codec``: how values are encoded. ``on_state``:
    called with each new state. ``threads``: requests to served paths answered at once by the blocking form; the others
    answer up to 1,000.

    :raises SettingError: a value is out of range.
    """

    credentials: Mapping[str, str] | None = field(default=None, repr=False)
    name: str | None = None
    timeout: float = TIMEOUT
    tls: Any = None
    reconnect: Backoff | None = BACKOFF
    buffer: int = BUFFER_BYTES
    prefetch: int = PREFETCH_BYTES
    keep_alive: float | None = KEEP_ALIVE
    codec: Codec = MESSAGEPACK
    on_state: Watcher | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if self.timeout <= 0 or (self.keep_alive is not None and self.keep_alive <= 0):
            raise SettingError("timeout and keep_alive must be more than 0 seconds")
        if self.buffer < 0 or self.prefetch < 1:
            raise SettingError("buffer must be at least 0 bytes and prefetch at least 1")
        _checkTexts(self.credentials, self.name)
        if self.credentials is not None and self.credentials.get("type") == PRIVATE_KEY:
            from fleximq.values.key_pairs import publicKeyOf  # cryptography loads slowly

            publicKeyOf(self.credentials.get(PRIVATE_KEY, ""))
        if not isinstance(self.reconnect, Backoff | None):
            raise SettingError(f"reconnect is {self.reconnect!r}, but must be a Backoff, or None to connect once")
        if self.threads < 1:
            raise SettingError(f"threads is {self.threads}, but must be at least 1")

    @property
    def interval(self) -> int:
        """The interval to request from the broker, in seconds; it gives up after three times as long."""
        wanted = _MAX_INTERVAL if self.keep_alive is None else round(self.keep_alive)
        return min(max(wanted, _MIN_INTERVAL), _MAX_INTERVAL)

    def context(self) -> ssl.SSLContext:
        """Return the standard library's context for TLS."""
        return self.tls if isinstance(self.tls, ssl.SSLContext) else (self.tls or Tls()).context()


def _checkTexts(credentials: object, name: object) -> None:
    """Raise SettingError unless a JOIN can have these credentials and this name; the error shows no secret."""
    if credentials is None:
        credentials = {}
    if not isinstance(credentials, Mapping) or not all(isinstance(each, str) for each in credentials.values()):
        raise SettingError('credentials must be a dict of texts, e.g. {"type": "token", "token": "..."}')
    for what, text in (
        ("client's name", name),
        *((f"{key} in the credentials", credentials[key]) for key in credentials),
    ):
        if text is not None and not isText(text):
            raise SettingError(f"the {what} is not a text in UTF-8")


def isText(value: object) -> bool:
    """Return whether a value is a text that can be sent: one made of bytes that are not UTF-8 cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
