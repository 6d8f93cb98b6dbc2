"""The operator's settings, under the names that the command line and a settings file share.

:meth:`Settings.of` turns values as written (text, or the values of a TOML file) into a :class:`Settings`, which checks
itself when made. :data:`OPTIONS` is the table of all options. :mod:`fleximq.endpoints.listen` checks listeners'
endpoints.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from fleximq.config.extension_options import EnabledExtension, extensions
from fleximq.config.journal_options import checkPattern, fsyncOf, retentionOf, timeToLiveOf
from fleximq.config.option_values import count, flag, seconds, size, text, texts
from fleximq.config.permission_options import PermissionTable, tables
from fleximq.config.rate_options import OverRate, Rate, byteRate, overRate, rate
from fleximq.errors import SettingError
from fleximq.limits import GIBIBYTE, KIBIBYTE, MEBIBYTE, Limits, within


class LogFormat(Enum):
    """The formats of the log."""

    TEXT = "text"
    JSON = "json"


def logFormat(name: str, value: object) -> LogFormat:
    """Parse the name of a log format.

    :raises SettingError: it is unknown.
    """
    try:
        return LogFormat(value)
    except ValueError:
        known = ", ".join(form.value for form in LogFormat)
        raise SettingError(f"{name} is {value!r}, but must be one of {known}") from None


#: Maximum of all times, in seconds.
MAX_SECONDS = 366 * 24 * 3600
#: The smallest and the largest file of the journal, in bytes.
SEGMENT_BYTES = 64 * KIBIBYTE, GIBIBYTE
#: Maximum history of a channel, in messages.
MAX_HISTORY = 10_000

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE | re.ASCII)


class SlowConsumer(Enum):
    """The policy for deliveries to a connection that reads too slowly."""

    DISCONNECT = "disconnect"
    DROP = "drop"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a broker; times are in seconds.

    ``http``: endpoints that serve HTTP only. ``metricsTop``: the number of topics, queues and groups that metrics name.
    ``listen``: texts ``[DIALECT+]ENDPOINT``. ``auth``: texts ``SCHEME:ARGUMENT``, parsed by
    :mod:`fleximq.security.authentication.schemes`. ``handshakeTimeout``: the time a connection may take to
    authenticate. ``keepalive``: its idle time before the broker pings it; after three times that it is closed.
    ``requestTimeout``: the time until an unanswered REQ gets 504 (0: never). ``redelivery``, ``maxDeliveries``,
    ``subscriptionGrace`` and ``queueExpiry`` control the queues. ``consumeWait``: the time a MiniMQ CONSUME waits for a
    message. ``drainTimeout``: the time connections have to close when the broker stops. ``allowedOrigin``: additional
    web origins that may open a WebSocket. ``spawn``: command lines of stdio clients. ``ipcDir``: the base of relative
    ``ipc://`` paths. ``tlsCertificate`` and ``tlsKey``: the PEM files for ``tls://`` and ``wss://``. ``extension``: the
    enabled extensions.

    ``journal``: the folder of durable messages (None: only in memory). ``durable``: the patterns of durable topics.
    ``fsync``: when their messages count as safe. ``retain``, ``retention`` and ``messageTtl`` are parsed by
    :mod:`fleximq.config.journal_options`. ``journalMaxBytes``: the maximum size of the folder (0: the disk's),
    ``journalSegment``: that of one file in it. ``idempotenceWindow``: how long a message's id is remembered, so that a
    repeat is not stored again; ``minimqIdempotent``: for MiniMQ too. ``durableGrace``: how long a durable BlipMQ
    subscription outlives its last use. ``history``: the number of past messages for a new Identity subscriber.

    ``messageRate``, ``byteRate`` and ``subscribeRate`` limit a client, ``principal...Rate`` all clients of one
    principal together; ``overRate`` is the action over these rates. ``connectRate`` and ``joinRate`` limit one address.
    After ``maxDisconnects`` disconnects in a minute (0: unlimited) a client is refused for ``flappingWait``.

    ``roles`` and ``principals`` are the permission tables, None without any: then all clients have unrestricted rights.

    :raises SettingError: for a value outside its range; the sentence names the option.
    """

    listen: tuple[str, ...] = ("tcp:7890",)
    http: tuple[str, ...] = ()
    allowAnonymous: bool = False
    auth: tuple[str, ...] = ()
    handshakeTimeout: float = 10.0
    keepalive: float = 30.0
    requestTimeout: float = 0.0
    redelivery: float = 30.0
    maxDeliveries: int = 20
    subscriptionGrace: float = 60.0
    queueExpiry: float = 3600.0
    consumeWait: float = 0.0
    metricsTop: int = 20
    logFormat: LogFormat = LogFormat.TEXT
    drainTimeout: float = 10.0
    slowConsumer: SlowConsumer = SlowConsumer.DISCONNECT
    bcastEcho: bool = False
    strictFleximq: bool = False
    announceChannels: bool = False
    allowedOrigin: tuple[str, ...] = ()
    spawn: tuple[str, ...] = ()
    ipcDir: str = "/tmp"
    tlsCertificate: str | None = None
    tlsKey: str | None = None
    extension: tuple[EnabledExtension, ...] = ()
    journal: str | None = None
    durable: tuple[str, ...] = ()
    fsync: str = "always"
    retain: tuple[str, ...] = ()
    retention: tuple[str, ...] = ()
    messageTtl: tuple[str, ...] = ()
    journalMaxBytes: int = 0
    journalSegment: int = 64 * MEBIBYTE
    idempotenceWindow: float = 120.0
    minimqIdempotent: bool = False
    durableGrace: float = 86400.0
    history: int = 0
    messageRate: Rate | None = None
    byteRate: Rate | None = None
    subscribeRate: Rate | None = None
    principalMessageRate: Rate | None = None
    principalByteRate: Rate | None = None
    principalSubscribeRate: Rate | None = None
    overRate: OverRate = OverRate.PAUSE
    connectRate: Rate | None = None
    joinRate: Rate | None = None
    maxDisconnects: int = 0
    flappingWait: float = 300.0
    roles: tuple[PermissionTable, ...] | None = None
    principals: tuple[PermissionTable, ...] | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.listen or not all(self.listen):
            raise SettingError("listen is empty, but must name an endpoint, e.g. tcp:7890")
        for name in ("handshakeTimeout", "keepalive", "redelivery", "queueExpiry", "durableGrace"):
            _mustLast(name, getattr(self, name))
        for name in (
            "requestTimeout", "subscriptionGrace", "consumeWait", "drainTimeout", "idempotenceWindow", "flappingWait",
        ):  # fmt: skip
            _mayLast(name, getattr(self, name))
        if not 1 <= self.maxDeliveries <= 1 << 31:
            raise SettingError(f"max-deliveries is {self.maxDeliveries}, but must be between 1 and {1 << 31}")
        within("max-disconnects", self.maxDisconnects, 0, 1_000)
        within("metrics-top", self.metricsTop, 0, 1000)
        for origin in self.allowedOrigin:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise SettingError(f"allowed-origin is {origin!r}, but must be like https://example.com, or *")
        for line in self.spawn:
            command(line)
        if not self.ipcDir.startswith("/"):
            raise SettingError(f"ipc-dir is {self.ipcDir!r}, but must be an absolute path")
        self._checkJournal()

    def _checkJournal(self) -> None:
        if self.journal is not None and (not self.journal or "\0" in self.journal):
            raise SettingError(f"journal is {self.journal!r}, but must name a folder")
        fsyncOf(self.fsync)
        for name, patterns in (("durable", self.durable), ("retain", self.retain)):
            for pattern in patterns:
                checkPattern(name, pattern, pattern)
        for line in self.retention:
            retentionOf(line)
        for line in self.messageTtl:
            timeToLiveOf(line)
        within("journal-segment", self.journalSegment, *SEGMENT_BYTES)
        within("history", self.history, 0, MAX_HISTORY)
        if self.journalMaxBytes:
            within("journal-max-bytes", self.journalMaxBytes, 2 * SEGMENT_BYTES[0], 1 << 60, "0, or ")

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Settings":
        """Make settings from values by option name; the others have their defaults.

        :raises SettingError: for an unknown name, or a value that cannot be parsed or is out of range.
        """
        own: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        for name, value in values.items():
            option = _BY_NAME.get(name)
            if option is None:
                raise SettingError(_unknown(name))
            (limits if option.isLimit else own)[option.field] = option.read(name, value)
        return cls(**own, limits=Limits(**limits))


def _unknown(name: str) -> str:
    nearest = difflib.get_close_matches(name, _BY_NAME, 1)
    return f"there is no setting named {name}" + (f", did you mean {nearest[0]}?" if nearest else "")


def _mustLast(name: str, seconds: float) -> None:
    if not 0 < seconds <= MAX_SECONDS:
        raise SettingError(f"{_spelt(name)} is {seconds:g}, but must be over 0 and at most {MAX_SECONDS} seconds")


def _mayLast(name: str, seconds: float) -> None:
    if not 0 <= seconds <= MAX_SECONDS:
        raise SettingError(f"{_spelt(name)} is {seconds:g}, but must be between 0 and {MAX_SECONDS} seconds")


def _spelt(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "-" + letter[0].lower(), name)


def slowConsumer(name: str, value: object) -> SlowConsumer:
    """Parse the name of a policy."""
    try:
        return SlowConsumer(value)
    except ValueError:
        known = ", ".join(policy.value for policy in SlowConsumer)
        raise SettingError(f"{name} is {value!r}, but must be one of {known}") from None


def command(line: str) -> list[str]:
    """Split a command line of ``spawn`` into its words, as a shell does.

    :raises SettingError: it is empty, has an open quotation, or contains a NUL.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SettingError(f"spawn is {line!r}, but cannot be split: {str(error).lower()}") from error
    if not words or not words[0] or "\0" in line:
        raise SettingError(f"spawn is {line!r}, but must be a program and its arguments")
    return words


class Option(NamedTuple):
    """One option: its name, its field, the parser of its value, its help text."""

    name: str
    field: str
    read: Callable[[str, object], object]
    words: str
    isLimit: bool = False

    @property
    def default(self) -> Any:
        """Its default value."""
        settings = Settings()
        return getattr(settings.limits if self.isLimit else settings, self.field)


#: All options, in the order of the help text.
OPTIONS = (
    Option("listen", "listen", texts, "Where to listen, as [DIALECT+]ENDPOINT or URL; may be given several times."),
    Option("http", "http", texts, "Where to serve HTTP alone: metrics, health, API; may be given several times."),
    Option("log-format", "logFormat", logFormat, "How the log is written: text, or lines of JSON."),
    Option("metrics-top", "metricsTop", count, "Number of topics, queues and groups that metrics name."),
    Option("allow-anonymous", "allowAnonymous", flag, "Admit clients without credentials, from every address."),
    Option(
        "auth",
        "auth",
        texts,
        "How to check the credentials of clients, as SCHEME:ARGUMENT, e.g. passwords:FILE; may be given several times.",
    ),
    Option(
        "allowed-origin",
        "allowedOrigin",
        texts,
        "A further web origin that may open a WebSocket, e.g. https://example.com, or * for all; "
        "may be given several times.",
    ),
    Option(
        "spawn",
        "spawn",
        texts,
        "A program and its arguments to run as a FlexiMQ client over its standard input and output; "
        "may be given several times.",
    ),
    Option("ipc-dir", "ipcDir", text, "The folder of relative ipc:// paths."),
    Option("tls-certificate", "tlsCertificate", text, "A PEM file with the certificate chain for tls:// and wss://."),
    Option("tls-key", "tlsKey", text, "A PEM file with its private key, if not in the same file."),
    Option("handshake-timeout", "handshakeTimeout", seconds, "Seconds a connection may take for its handshake."),
    Option(
        "keepalive",
        "keepalive",
        seconds,
        "Idle seconds before a PING; after three times that the connection is closed.",
    ),
    Option("request-timeout", "requestTimeout", seconds, "Seconds until an unanswered REQ gets 504; 0 is never."),
    Option("redelivery", "redelivery", seconds, "Seconds until an unacknowledged message is delivered again."),
    Option("max-deliveries", "maxDeliveries", count, "Deliveries after which a message becomes a dead letter."),
    Option("subscription-grace", "subscriptionGrace", seconds, "Seconds a BlipMQ subscription outlives its client."),
    Option("queue-expiry", "queueExpiry", seconds, "Seconds a MiniMQ queue lives without a CONSUME."),
    Option("consume-wait", "consumeWait", seconds, "Seconds until a MiniMQ CONSUME gets NO_MSG; 0 is at once."),
    Option("drain-timeout", "drainTimeout", seconds, "Seconds that connections have to close when the broker stops."),
    Option(
        "slow-consumer",
        "slowConsumer",
        slowConsumer,
        "Policy for deliveries over outbox-bytes: disconnect, drop or block.",
    ),
    Option("bcast-echo", "bcastEcho", flag, "Send a BCAST back to its sender too."),
    Option("strict-fleximq", "strictFleximq", flag, "Accept FlexiMQ frames only in the document's own layout."),
    Option("announce-channels", "announceChannels", flag, "Notify Identity clients when the list of channels changes."),
    Option(
        "extension",
        "extension",
        extensions,
        "An extension to enable, and its options, as NAME[:key=value,...]; may be given several times.",
    ),
    Option("journal", "journal", text, "The folder of durable messages; without it, messages are in memory only."),
    Option(
        "durable",
        "durable",
        texts,
        "Store messages of topics that match this pattern durably, e.g. orders.#; may be given several times.",
    ),
    Option("fsync", "fsync", text, "When a message counts as safe: always (synced), interval:MS or never."),
    Option(
        "retain",
        "retain",
        texts,
        "Give new subscribers of topics that match this pattern the latest message; may be given several times.",
    ),
    Option(
        "retention",
        "retention",
        texts,
        "How long messages are stored, as PATTERN=AGE[,SIZE], e.g. orders.#=7d,10GiB; may be given several times.",
    ),
    Option(
        "message-ttl",
        "messageTtl",
        texts,
        "Seconds after which a message expires, as PATTERN=SECONDS; may be given several times.",
    ),
    Option(
        "journal-max-bytes", "journalMaxBytes", size, "Maximum size of the journal in bytes; 0 is the size of the disk."
    ),
    Option("journal-segment", "journalSegment", size, "Bytes of one file of the journal."),
    Option("idempotence-window", "idempotenceWindow", seconds, "Seconds in which a repeated message id is recognised."),
    Option("minimq-idempotent", "minimqIdempotent", flag, "Treat a MiniMQ message with a known id as a repeat too."),
    Option("durable-grace", "durableGrace", seconds, "Seconds a durable BlipMQ subscription outlives its last use."),
    Option("history", "history", count, "Past messages that a new Identity subscriber of a channel receives."),
    Option("max-message", "message", size, "Bytes of a complete FlexiMQ message.", True),
    Option("max-line", "line", size, "Bytes of a MiniMQ line.", True),
    Option("max-text", "text", size, "Bytes of an Identity message, after inflation.", True),
    Option("max-clients", "clients", count, "Admitted connections.", True),
    Option("max-waiting", "waiting", count, "Connections not admitted yet.", True),
    Option("max-clients-per-address", "clientsPerAddress", count, "Connections from one other machine.", True),
    Option("max-subscriptions", "subscriptions", count, "Subscriptions of one client.", True),
    Option("max-topics", "topics", count, "Idle topics that are remembered.", True),
    Option("max-queues", "queues", count, "MiniMQ queues in all, and BlipMQ subscriptions in all.", True),
    Option("max-requests", "requests", count, "Unanswered REQs of one client.", True),
    Option("max-message-rate", "messageRate", rate, "Messages a second from one client, as RATE[,BURST]."),
    Option("max-byte-rate", "byteRate", byteRate, "Bytes a second from one client, as RATE[,BURST]."),
    Option("max-subscribe-rate", "subscribeRate", rate, "Subscriptions a second of one client, as RATE[,BURST]."),
    Option(
        "principal-message-rate",
        "principalMessageRate",
        rate,
        "Messages a second from all clients of one principal together, as RATE[,BURST].",
    ),
    Option(
        "principal-byte-rate",
        "principalByteRate",
        byteRate,
        "Bytes a second from all clients of one principal together, as RATE[,BURST].",
    ),
    Option(
        "principal-subscribe-rate",
        "principalSubscribeRate",
        rate,
        "Subscriptions a second of all clients of one principal together, as RATE[,BURST].",
    ),
    Option("over-rate", "overRate", overRate, "Action against a client over its rate: pause or refuse."),
    Option("max-connect-rate", "connectRate", rate, "New connections a second from one address, as RATE[,BURST]."),
    Option("max-join-rate", "joinRate", rate, "Join attempts a second from one address, as RATE[,BURST]."),
    Option("max-disconnects", "maxDisconnects", count, "Disconnects in a minute after which a client must wait."),
    Option("flapping-wait", "flappingWait", seconds, "Seconds that a client over max-disconnects must wait."),
    Option("queue-messages", "queueMessages", count, "Messages in one queue.", True),
    Option("queue-bytes", "queueBytes", size, "Bytes in one queue.", True),
    Option(
        "queue-memory", "queueMemory", size, "Bytes of a durable queue that are in memory as well as on disk.", True
    ),
    Option("outbox-bytes", "outboxBytes", size, "Bytes that one connection may leave unread.", True),
)

#: Options of settings files only: tables of tables.
TABLES = (
    Option("roles", "roles", tables, "The permissions of a role: [roles.NAME]."),
    Option("principals", "principals", tables, "The permissions of a principal, and its roles: [principals.NAME]."),
)

_BY_NAME = {option.name: option for option in (*OPTIONS, *TABLES)}
