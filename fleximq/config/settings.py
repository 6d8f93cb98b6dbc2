"""The operator's settings, checked when made. :mod:`fleximq.endpoints.listen` checks listeners' endpoints."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleximq.config.extension_options import EnabledExtension
from fleximq.config.journal_options import checkPattern, fsyncOf, retentionOf, timeToLiveOf
from fleximq.config.option_table import optionNamed
from fleximq.config.option_values import LogFormat, Sender, SlowConsumer
from fleximq.config.permission_options import PermissionTable
from fleximq.config.rate_options import OverRate, Rate
from fleximq.config.schedule_options import ScheduleTable
from fleximq.config.schema_options import schemaOf
from fleximq.errors import SettingError
from fleximq.limits import GIBIBYTE, KIBIBYTE, MEBIBYTE, Limits, within
from fleximq.values.queue_definition import QueueDefinition

MAX_SECONDS = 366 * 24 * 3600  #: Maximum of all times, in seconds.
SEGMENT_BYTES = 64 * KIBIBYTE, GIBIBYTE  #: The smallest and the largest file of the journal, in bytes.
#: The suites of TLS 1.2 by default, as OpenSSL lists them; those of TLS 1.3 are always accepted.
DEFAULT_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
MAX_HISTORY = 10_000  #: Maximum history of a channel, in messages.

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE | re.ASCII)
_NATS = re.compile(r"(?:nats|tls)://[^/?#@\s,]+", re.IGNORECASE | re.ASCII)
_AUTH = re.compile(r"(?:password|token|creds):[^\0]+", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACE = re.compile(r"(?:\[[\dA-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)


#: The fault of a broker that cannot be reached; in the process of an application it can be.
NO_ENDPOINT = "listen is empty, but must name an endpoint, e.g. tcp:7890"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a broker; times are in seconds (``busyPoll``: microseconds), sizes in bytes.

    :data:`fleximq.config.option_table.OPTIONS` describes each of them; the texts of ``listen``, ``http`` and
    ``auth`` are parsed by other rooms. ``roles`` and ``principals`` are None without any permission table: then all
    clients have unrestricted rights. Raises SettingError for a value outside its range.
    """

    listen: tuple[str, ...] = ("tcp:7890",)
    http: tuple[str, ...] = ()
    disableDialect: tuple[str, ...] = ()
    allowAnonymous: bool = False
    auth: tuple[str, ...] = ()
    handshakeTimeout: float = 10.0
    keepalive: float = 30.0
    requestTimeout: float = 0.0
    redelivery: float = 30.0
    maxDeliveries: int = 20
    subscriptionGrace: float = 60.0
    queueExpiry: float | None = None
    consumeWait: float = 0.0
    metricsTop: int = 20
    noConsole: bool = False
    busyPoll: int = 100
    logFormat: LogFormat = LogFormat.TEXT
    auditLog: str | None = None
    drainTimeout: float = 10.0
    slowConsumer: SlowConsumer = SlowConsumer.DISCONNECT
    bcastEcho: bool = False
    strictFleximq: bool = False
    announceChannels: bool = False
    sender: Sender = Sender.CLIENT
    allowedOrigin: tuple[str, ...] = ()
    spawn: tuple[str, ...] = ()
    ipcDir: str = "/tmp"
    tlsCertificate: str | None = None
    tlsKey: str | None = None
    tlsCiphers: str = DEFAULT_CIPHERS
    extension: tuple[EnabledExtension, ...] = ()
    journal: str | None = None
    durable: tuple[str, ...] = ()
    fsync: str = "always"
    cluster: tuple[str, ...] = ()
    clusterAuth: str | None = None
    clusterCa: str | None = None
    clusterCertificate: str | None = None
    clusterKey: str | None = None
    node: str | None = None
    clusterName: str = "fleximq"
    clusterBytes: int = 16 << 30
    clusterWait: float = 10.0
    mesh: bool = False
    nodeAddress: str | None = None
    retain: tuple[str, ...] = ()
    retention: tuple[str, ...] = ()
    messageTtl: tuple[str, ...] = ()
    schema: tuple[str, ...] = ()
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
    schedules: tuple[ScheduleTable, ...] = ()
    queues: tuple[QueueDefinition, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not all(self.listen):
            raise SettingError(NO_ENDPOINT)
        for name in "handshake-timeout keepalive redelivery queue-expiry durable-grace".split():
            time = optionNamed(name).of(self)
            if time is not None:
                _checkTime(name, time, mayBeZero=False)
        names = "request-timeout subscription-grace consume-wait drain-timeout idempotence-window flapping-wait"
        for name in [*names.split(), "cluster-wait"]:
            _checkTime(name, optionNamed(name).of(self), mayBeZero=True)
        within("max-deliveries", self.maxDeliveries, 1, 1 << 31)
        within("max-disconnects", self.maxDisconnects, 0, 1_000)
        within("metrics-top", self.metricsTop, 0, 1000)
        within("busy-poll", self.busyPoll, 0, 1000)
        for origin in self.allowedOrigin:
            if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
                raise SettingError(f"allowed-origin is {origin!r}, but must be like https://example.com, null or *")
        for line in self.spawn:
            command(line)
        if not self.ipcDir.startswith("/"):
            raise SettingError(f"ipc-dir is {self.ipcDir!r}, but must be an absolute path")
        self._checkJournal()
        self._checkCluster()

    def _checkCluster(self) -> None:
        for url in self.cluster:
            if "@" in url:  # it is not repeated here, since it may have a password
                raise SettingError("cluster has a URL with credentials, which belong in a file named by cluster-auth")
            if not _NATS.fullmatch(url):
                raise SettingError(f"cluster is {url!r}, but must be like nats://host:4222 or tls://host:4222")
        if self.clusterAuth is not None and not _AUTH.fullmatch(self.clusterAuth):
            # Not repeated here, since it may be a password.
            raise SettingError("cluster-auth must be password:FILE, token:FILE or creds:FILE")
        for name, value in (("node", self.node), ("cluster-name", self.clusterName)):
            if value is not None and not _NAME.fullmatch(value):
                raise SettingError(f"{name} is {value!r}, but must be 1 to 64 letters, digits, - or _")
        place = _PLACE.fullmatch(self.nodeAddress or "host:1")
        if place is None or not 0 < int(place[1]) < 1 << 16:
            raise SettingError(f"node-address is {self.nodeAddress!r}, but must be like 10.0.0.1:7800")
        within("cluster-bytes", self.clusterBytes, 1 << 16, 1 << 50)

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
        for line in self.schema:
            schemaOf(line)
        within("journal-segment", self.journalSegment, *SEGMENT_BYTES)
        within("history", self.history, 0, MAX_HISTORY)
        if self.journalMaxBytes:
            within("journal-max-bytes", self.journalMaxBytes, 2 * SEGMENT_BYTES[0], 1 << 60, "0, or ")

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Settings":
        """Make settings from values by option name, as text or as in TOML; raises SettingError for a wrong one."""
        own: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        for name, value in values.items():
            option = optionNamed(name)
            (limits if option.isLimit else own)[option.field] = option.read(name, value)
        return cls(**own, limits=Limits(**limits))


def _checkTime(name: str, seconds: float, mayBeZero: bool) -> None:
    if not 0 <= seconds <= MAX_SECONDS or not (seconds or mayBeZero):
        bounds = f"between 0 and {MAX_SECONDS}" if mayBeZero else f"over 0 and at most {MAX_SECONDS}"
        raise SettingError(f"{name} is {seconds:g}, but must be {bounds} seconds")


def command(line: str) -> list[str]:
    """Split a line of ``spawn`` as a shell does; raises SettingError if it is empty, or has a NUL or an open quote."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SettingError(f"spawn is {line!r}, but cannot be split: {str(error).lower()}") from error
    if not words or not words[0] or "\0" in line:
        raise SettingError(f"spawn is {line!r}, but must be a program and its arguments")
    return words
