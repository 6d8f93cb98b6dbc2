"""Size limits for clients.

Limits that a document fixes are constants; those that an operator may change are fields of :class:`Limits`. All sizes
are in bytes unless the name says otherwise.
"""

from dataclasses import dataclass, field, fields
from typing import Any

from fleximq.errors import SettingError

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
GIBIBYTE = 1024 * MEBIBYTE

#: FlexiMQ document 7.1: the longest header, inclusive.
HEADER_BYTES = 64 * KIBIBYTE
#: FlexiMQ document 7.1: base header without header and payload.
BASE_BYTES = 34
#: Most routing entries in one header.
ROUTING_ENTRIES = 1000
#: Longest topic name as UTF-8.
TOPIC_BYTES = 1024
#: Prefix of the topics of the broker itself, where only it publishes: presence, and in the journal the records of
#: values and schedules, which nobody reads.
SYSTEM = "$sys/"
#: Prefix of the topic for undeliverable messages. Only the broker publishes there.
DEAD = "$dead/"
#: Prefixes of the topics that feed only the queue of a name, and only the BlipMQ subscription with an id. Only the
#: broker publishes there.
FEED, SUBSCRIPTION_FEED = "$queue/", "$subscription/"
#: The longest time that a message, a queue or a schedule may have, also until it is due: ten years.
MOST_MILLISECONDS = 10 * 365 * 86_400_000
#: BlipMQ document, "Frame Layout": the most that a frame's length field may announce.
BLIP_FRAME_BYTES = 16 * MEBIBYTE


def _limit(name: str, default: int, low: int = 1, high: int = 1 << 48) -> Any:
    """Return the field of an option with its default and range."""
    return field(default=default, metadata={"name": name, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an operator may change; :data:`fleximq.config.option_table.OPTIONS` describes them.

    For a durable queue ``queueMemory`` bounds its part in memory, and ``queueBytes`` does not apply. Dead letters, and
    topics found at the start, may add to ``durableTopics``. ``queues`` is applied three times: to MiniMQ queues,
    dead-letter queues and BlipMQ subscriptions. Raises SettingError for a value outside its range.
    """

    message: int = _limit("max-message", 16 * MEBIBYTE, KIBIBYTE, GIBIBYTE)
    line: int = _limit("max-line", 16 * MEBIBYTE, KIBIBYTE, GIBIBYTE)
    text: int = _limit("max-text", MEBIBYTE, KIBIBYTE, GIBIBYTE)
    queueMessages: int = _limit("queue-messages", 1_000_000)
    queueBytes: int = _limit("queue-bytes", 256 * MEBIBYTE)
    queueMemory: int = _limit("queue-memory", 16 * MEBIBYTE)
    outboxBytes: int = _limit("outbox-bytes", 64 * MEBIBYTE)
    clients: int = _limit("max-clients", 100_000)
    waiting: int = _limit("max-waiting", 10_000)
    unadmittedBytes: int = _limit("unadmitted-bytes", 32 * MEBIBYTE)
    clientsPerAddress: int = _limit("max-clients-per-address", 1_000)
    subscriptions: int = _limit("max-subscriptions", 10_000)
    topics: int = _limit("max-topics", 100_000)
    durableTopics: int = _limit("max-durable-topics", 100_000)
    queues: int = _limit("max-queues", 100_000)
    requests: int = _limit("max-requests", 10_000)
    schedules: int = _limit("max-schedules", 10_000_000)
    schedulesPerPrincipal: int = _limit("max-schedules-per-principal", 1_000_000)
    values: int = _limit("max-values", 10_000_000)
    valuesPerPrincipal: int = _limit("max-values-per-principal", 1_000_000)

    def __post_init__(self) -> None:
        for each in fields(self):
            within(value=getattr(self, each.name), **each.metadata)


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """The limits of one principal, anonymous clients being one; None: no limit of its own.

    ``clients``: its connections. ``topics``: the topics it has made that still exist. ``queueBytes``: of a volatile
    queue, for each of its BlipMQ subscriptions, and for its messages in MiniMQ queues. ``rates``: pairs of an option's
    name and a rate (:class:`fleximq.config.rate_options.Rate`, None: unlimited), in place of the option's value.
    """

    clients: int | None = None
    topics: int | None = None
    queueBytes: int | None = None
    rates: tuple[tuple[str, Any], ...] = ()


#: No limits of its own.
NO_LIMITS = OwnLimits()


def isTooLong(name: str) -> bool:
    """Return whether a topic's name is over :data:`TOPIC_BYTES`; the prefix of a dead-letter topic does not count."""
    return len(name) * 4 > TOPIC_BYTES and len(name.removeprefix(DEAD).removeprefix(FEED).encode()) > TOPIC_BYTES


def within(name: str, value: int, low: int, high: int, otherwise: str = "") -> None:
    """Check a value's range; raises SettingError. ``otherwise``: words of the error for valid values outside of it."""
    if not low <= value <= high:
        raise SettingError(f"{name} is {value}, but must be {otherwise}between {low} and {high}")
