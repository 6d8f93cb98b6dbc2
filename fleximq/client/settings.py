"""What a client may be told when it connects; the same words in all three forms."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypedDict

from fleximq.client.backoff import Backoff
from fleximq.client.events import unpacked
from fleximq.client.protocol.conversation import packed
from fleximq.client.protocol.inbox import FULL
from fleximq.errors import SettingError
from fleximq.limits import MEBIBYTE

#: Seconds that joining, a request or a flush may take unless told otherwise.
PATIENCE = 30.0
#: Seconds of silence after which a client asks whether the broker is there; after three times as long it is not.
KEEP_ALIVE = 30.0
#: FlexiMQ document 3.7 and docs/dialects.rst: what the broker takes for an interval, in seconds.
_SHORTEST, _LONGEST = 5, 300
#: Where a subscription may begin: "first", "last", an offset, or ``{"time": milliseconds}``.
Start = str | int | Mapping[str, int]


class State(Enum):
    """Where a client stands."""

    JOINED = "joined"
    """There is a connection, and all subscriptions are in place."""
    AWAY = "away"
    """The connection was lost, and another one is being made; the error's ``missing`` names who misses something."""
    CLOSED = "closed"
    """There is no connection, and there will be none."""


#: Is told each new state, and why, if it was an error.
Watcher = Callable[[State, Exception | None], None]


@dataclass(frozen=True, slots=True)
class Codec:
    """How values become payloads and payloads values; by default MessagePack.

    Whatever is no MessagePack reaches subscribers of other dialects as bytes. ``unpack`` raises ValueError for what it
    cannot read.
    """

    pack: Callable[[Any], bytes] = packed
    unpack: Callable[[bytes | memoryview], Any] = unpacked


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust and what to show inside TLS, as paths of PEM files.

    ``authority``: trust these certificates and no others, instead of the system's. ``certificate``: show this one,
    whose private key is in ``key``, or in the same file.
    """

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return what the standard library makes of it: the certificate must be for the host of the URL.

        :raises SettingError: a file cannot be read or used.
        """
        try:
            context = ssl.create_default_context(cafile=self.authority)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise SettingError(f"the files for TLS cannot be used: {error}") from error
        return context


class Wishes(TypedDict, total=False):
    """The keyword arguments of every ``connect``, see :class:`ClientSettings`."""

    credentials: Mapping[str, str] | None
    name: str | None
    timeout: float
    tls: Any
    reconnect: Backoff | None
    buffer: int
    prefetch: int
    keepAlive: float | None
    codec: Codec
    onState: Watcher | None
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a client was told.

    ``credentials``: who this is, e.g. ``{"type": "token", "token": "..."}`` (FlexiMQ document 5.2). ``name``: the
    client's own name for itself. ``timeout``: seconds for a connection, and again for joining. ``tls``: a :class:`Tls`,
    or the context of the form's own library. ``reconnect``: how to connect again when the connection is lost; None: do
    not. ``buffer``: the most bytes of payload to keep for the broker while it is away. ``prefetch``: while more bytes
    than this wait to be taken, read no more. ``keepAlive``: seconds of silence after which to ask whether the broker is
    there; None: do not ask. ``codec``: how values are written. ``onState``: is told each new state. ``threads``: in the
    blocking form, how many requests to served paths are answered at once; the others know no such bound.

    :raises SettingError: for a value that makes no sense.
    """

    credentials: Mapping[str, str] | None = field(default=None, repr=False)
    name: str | None = None
    timeout: float = PATIENCE
    tls: Any = None
    reconnect: Backoff | None = Backoff()
    buffer: int = 8 * MEBIBYTE
    prefetch: int = FULL
    keepAlive: float | None = KEEP_ALIVE
    codec: Codec = Codec()
    onState: Watcher | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if self.timeout <= 0 or (self.keepAlive is not None and self.keepAlive <= 0):
            raise SettingError("timeout and keepAlive must be more than 0 seconds")
        if self.buffer < 0 or self.prefetch < 1:
            raise SettingError("buffer must be at least 0 bytes and prefetch at least 1")
        if self.threads < 1:
            raise SettingError(f"threads is {self.threads}, but must be at least 1")

    @property
    def interval(self) -> int:
        """The seconds of silence after which the broker is asked to ping; it gives up after three times as long."""
        return _LONGEST if self.keepAlive is None else min(max(round(self.keepAlive), _SHORTEST), _LONGEST)

    def context(self) -> ssl.SSLContext:
        """Return the context for TLS with the standard library."""
        return self.tls if isinstance(self.tls, ssl.SSLContext) else (self.tls or Tls()).context()
