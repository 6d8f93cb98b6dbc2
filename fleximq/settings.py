"""Everything an operator can set, under the names that the command line and a settings file share.

:data:`OPTIONS` is the one table of them; :meth:`Settings.of` turns what was written (text, or the values of a TOML
file) into a :class:`Settings`, which checks itself when made. Whether a listener's endpoint can be understood is
left to :mod:`fleximq.endpoints.listen`.
"""

import difflib
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from fleximq.errors import SettingError
from fleximq.extension_options import Chosen, extensions
from fleximq.limits import GIBIBYTE, KIBIBYTE, MEBIBYTE, Limits

#: No time that can be set is longer, in seconds.
LONGEST = 366 * 24 * 3600

_UNITS = {"": 1, "b": 1, "kib": KIBIBYTE, "mib": MEBIBYTE, "gib": GIBIBYTE}
_SIZE = re.compile(r"([0-9]{1,18}) *([a-z]*)", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE | re.ASCII)


class SlowConsumer(Enum):
    """What happens to the deliveries of a connection that does not read them in time."""

    DISCONNECT = "disconnect"
    DROP = "drop"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the broker is to run; times are in seconds.

    ``listen`` holds texts of the form ``[DIALECT+]ENDPOINT``. ``handshakeTimeout``: how long a connection may take
    to say who it is. ``keepalive``: how long it may be idle before the broker pings it; after three times that it is
    closed. ``requestTimeout``: after it an unanswered REQ gets 504 (0: never). ``redelivery``, ``maxDeliveries``,
    ``subscriptionGrace`` and ``queueExpiry`` rule the queues, ``consumeWait`` how long a MiniMQ CONSUME waits for
    a message. ``allowedOrigin`` names web pages that may open a WebSocket beside those that always may. ``spawn``
    holds command lines of stdio clients, ``ipcDir`` is where relative ``ipc://`` paths begin, ``tlsCertificate`` and
    ``tlsKey`` are the PEM files behind ``tls://`` and ``wss://``. ``extension`` names extensions that are turned on.

    :raises SettingError: for a value outside its range; the sentence names the option.
    """

    listen: tuple[str, ...] = ("tcp:7890",)
    allowAnonymous: bool = False
    handshakeTimeout: float = 10.0
    keepalive: float = 30.0
    requestTimeout: float = 0.0
    redelivery: float = 30.0
    maxDeliveries: int = 20
    subscriptionGrace: float = 60.0
    queueExpiry: float = 3600.0
    consumeWait: float = 0.0
    slowConsumer: SlowConsumer = SlowConsumer.DISCONNECT
    bcastEcho: bool = False
    strictFleximq: bool = False
    announceChannels: bool = False
    allowedOrigin: tuple[str, ...] = ()
    spawn: tuple[str, ...] = ()
    ipcDir: str = "/tmp"
    tlsCertificate: str | None = None
    tlsKey: str | None = None
    extension: tuple[Chosen, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.listen or not all(self.listen):
            raise SettingError("listen is empty, but must name an endpoint, e.g. tcp:7890")
        for name in ("handshakeTimeout", "keepalive", "redelivery", "queueExpiry"):
            _mustLast(name, getattr(self, name))
        for name in ("requestTimeout", "subscriptionGrace", "consumeWait"):
            _mayLast(name, getattr(self, name))
        if not 1 <= self.maxDeliveries <= 1 << 31:
            raise SettingError(f"max-deliveries is {self.maxDeliveries}, but must be between 1 and {1 << 31}")
        for origin in self.allowedOrigin:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise SettingError(f"allowed-origin is {origin!r}, but must be like https://example.com, or *")
        for line in self.spawn:
            command(line)
        if not self.ipcDir.startswith("/"):
            raise SettingError(f"ipc-dir is {self.ipcDir!r}, but must be an absolute path")

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Settings":
        """Make settings of option names and what was written for them; what is not named keeps its default.

        :raises SettingError: for an unknown name, or a value that cannot be read or is out of range.
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
    if not 0 < seconds <= LONGEST:
        raise SettingError(f"{_spelt(name)} is {seconds:g}, but must be over 0 and at most {LONGEST} seconds")


def _mayLast(name: str, seconds: float) -> None:
    if not 0 <= seconds <= LONGEST:
        raise SettingError(f"{_spelt(name)} is {seconds:g}, but must be between 0 and {LONGEST} seconds")


def _spelt(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "-" + letter[0].lower(), name)


def seconds(name: str, value: object) -> float:
    """Read a time: a number of seconds, given as such or as text."""
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise SettingError(f"{name} is {value!r}, but must be a number of seconds, e.g. 30 or 0.5")


def count(name: str, value: object) -> int:
    """Read a whole number, given as such or as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _COUNT.fullmatch(value):
        return int(value)
    raise SettingError(f"{name} is {value!r}, but must be a whole number")


def size(name: str, value: object) -> int:
    """Read a number of bytes, as a number or as text with a unit: ``65536``, ``64KiB``, ``16MiB``, ``1GiB``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found and found[2].lower() in _UNITS:
        return int(found[1]) * _UNITS[found[2].lower()]
    raise SettingError(f"{name} is {value!r}, but must be a number of bytes, e.g. 65536, 64KiB, 16MiB or 1GiB")


def spelledSize(number: int) -> str:
    """Return a number of bytes as an operator would write it, with the largest unit that divides it."""
    for name in ("GiB", "MiB", "KiB"):
        unit = _UNITS[name.lower()]
        if number and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def flag(name: str, value: object) -> bool:
    """Read a switch: true or false, nothing else."""
    if isinstance(value, bool):
        return value
    raise SettingError(f"{name} is {value!r}, but must be true or false")


def slowConsumer(name: str, value: object) -> SlowConsumer:
    """Read the name of a policy."""
    try:
        return SlowConsumer(value)
    except ValueError:
        known = ", ".join(policy.value for policy in SlowConsumer)
        raise SettingError(f"{name} is {value!r}, but must be one of {known}") from None


def texts(name: str, value: object) -> tuple[str, ...]:
    """Read one text, or any number of them."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        given = tuple(value)
        if all(isinstance(each, str) for each in given):
            return given
    raise SettingError(f"{name} is {value!r}, but must be a text or a list of texts")


def text(name: str, value: object) -> str:
    """Read one text."""
    if isinstance(value, str):
        return value
    raise SettingError(f"{name} is {value!r}, but must be a text")


def command(line: str) -> list[str]:
    """Split a command line of ``spawn`` into its words, as a shell does.

    :raises SettingError: there are none, a quotation is not closed, or the line holds a NUL.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SettingError(f"spawn is {line!r}, but cannot be split: {str(error).lower()}") from error
    if not words or not words[0] or "\0" in line:
        raise SettingError(f"spawn is {line!r}, but must be a program and its arguments")
    return words


class Option(NamedTuple):
    """One option: its name, the field it fills, how its value is read, what it is for."""

    name: str
    field: str
    read: Callable[[str, object], object]
    words: str
    isLimit: bool = False

    @property
    def default(self) -> Any:
        """The value it has when it is not given."""
        settings = Settings()
        return getattr(settings.limits if self.isLimit else settings, self.field)


#: Every option there is, in the order in which a reader would want to meet them.
OPTIONS = (
    Option("listen", "listen", texts, "Where to listen, as [DIALECT+]ENDPOINT or URL; may be given several times."),
    Option("allow-anonymous", "allowAnonymous", flag, "Serve remote peers too, although nobody is authenticated."),
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
    Option("ipc-dir", "ipcDir", text, "The folder in which relative ipc:// paths begin."),
    Option("tls-certificate", "tlsCertificate", text, "A PEM file with the certificate chain for tls:// and wss://."),
    Option("tls-key", "tlsKey", text, "A PEM file with the key to it, if that is not in the same file."),
    Option("handshake-timeout", "handshakeTimeout", seconds, "Seconds a connection may take to introduce itself."),
    Option("keepalive", "keepalive", seconds, "Seconds of idleness before a PING; three times that ends it."),
    Option("request-timeout", "requestTimeout", seconds, "Seconds until an unanswered REQ gets 504; 0 is never."),
    Option("redelivery", "redelivery", seconds, "Seconds until an unacknowledged message comes again."),
    Option("max-deliveries", "maxDeliveries", count, "Deliveries after which a message becomes a dead letter."),
    Option("subscription-grace", "subscriptionGrace", seconds, "Seconds a BlipMQ subscription outlives its client."),
    Option("queue-expiry", "queueExpiry", seconds, "Seconds a MiniMQ queue lives without a CONSUME."),
    Option("consume-wait", "consumeWait", seconds, "Seconds until a MiniMQ CONSUME says NO_MSG; 0 is at once."),
    Option(
        "slow-consumer",
        "slowConsumer",
        slowConsumer,
        "What happens to deliveries over outbox-bytes: disconnect, drop or block.",
    ),
    Option("bcast-echo", "bcastEcho", flag, "Send a BCAST back to its sender too."),
    Option("strict-fleximq", "strictFleximq", flag, "Take FlexiMQ frames only in the document's own layout."),
    Option("announce-channels", "announceChannels", flag, "Tell Identity clients whenever the channels change."),
    Option(
        "extension",
        "extension",
        extensions,
        "An extension to turn on, and its options, as NAME[:key=value,...]; may be given several times.",
    ),
    Option("max-message", "message", size, "Bytes of a whole FlexiMQ message.", True),
    Option("max-line", "line", size, "Bytes of a MiniMQ line.", True),
    Option("max-text", "text", size, "Bytes of an Identity message, after inflation.", True),
    Option("max-clients", "clients", count, "Connections that were let in.", True),
    Option("max-waiting", "waiting", count, "Connections that were not let in yet.", True),
    Option("max-clients-per-address", "clientsPerAddress", count, "Connections from one other machine.", True),
    Option("max-subscriptions", "subscriptions", count, "Subscriptions of one client.", True),
    Option("max-topics", "topics", count, "Idle topics that are remembered.", True),
    Option("max-queues", "queues", count, "MiniMQ queues in all, and BlipMQ subscriptions in all.", True),
    Option("max-requests", "requests", count, "Unanswered REQs of one client.", True),
    Option("queue-messages", "queueMessages", count, "Messages in one queue.", True),
    Option("queue-bytes", "queueBytes", size, "Bytes in one queue.", True),
    Option("outbox-bytes", "outboxBytes", size, "Bytes that one connection may leave unread.", True),
)

_BY_NAME = {option.name: option for option in OPTIONS}
