"""Size limits for clients.

Limits that a document fixes are constants; those that an operator may change are fields of :class:`Limits`. All sizes
are in bytes unless the name says otherwise.
"""

from dataclasses import dataclass
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
#: Prefix of the topic for undeliverable messages. Only the broker publishes there.
DEAD = "$dead/"
#: BlipMQ document, "Frame Layout": the most that a frame's length field may announce.
BLIP_FRAME_BYTES = 16 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an operator may change; :data:`fleximq.config.option_table.OPTIONS` says what they mean.

    For a durable queue ``queueMemory`` bounds its part in memory, and ``queueBytes`` does not apply. Dead letters, and
    topics found at the start, may add to ``durableTopics``. ``queues`` is applied three times: to MiniMQ queues,
    dead-letter queues and BlipMQ subscriptions.

    :raises SettingError: for a value outside its range.
    """

    message: int = 16 * MEBIBYTE
    line: int = 16 * MEBIBYTE
    text: int = MEBIBYTE
    queueMessages: int = 1_000_000
    queueBytes: int = 256 * MEBIBYTE
    queueMemory: int = 16 * MEBIBYTE
    outboxBytes: int = 64 * MEBIBYTE
    clients: int = 100_000
    waiting: int = 10_000
    unadmittedBytes: int = 32 * MEBIBYTE
    clientsPerAddress: int = 1_000
    subscriptions: int = 10_000
    topics: int = 100_000
    durableTopics: int = 100_000
    queues: int = 100_000
    requests: int = 10_000

    def __post_init__(self) -> None:
        for name in ("message", "line", "text"):
            within(f"max-{name}", getattr(self, name), KIBIBYTE, GIBIBYTE)
        for name, value in (
            ("queue-messages", self.queueMessages),
            ("queue-bytes", self.queueBytes),
            ("queue-memory", self.queueMemory),
            ("outbox-bytes", self.outboxBytes),
            ("max-clients", self.clients),
            ("max-waiting", self.waiting),
            ("unadmitted-bytes", self.unadmittedBytes),
            ("max-clients-per-address", self.clientsPerAddress),
            ("max-subscriptions", self.subscriptions),
            ("max-topics", self.topics),
            ("max-durable-topics", self.durableTopics),
            ("max-queues", self.queues),
            ("max-requests", self.requests),
        ):
            within(name, value, 1, 1 << 48)


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """The limits of one principal, anonymous clients being one; None: no limit of its own.

    ``clients``: its connections. ``topics``: the topics it has made that still exist. ``queueBytes``: of a volatile
    queue, for each of its BlipMQ subscriptions, and for what it produces in MiniMQ. ``rates``: pairs of an option's
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
    return len(name) * 4 > TOPIC_BYTES and len(name.removeprefix(DEAD).encode()) > TOPIC_BYTES


def within(name: str, value: int, low: int, high: int, otherwise: str = "") -> None:
    """Check that a value is in its range; raises SettingError, in a sentence that names the option.

    :param otherwise: a further permitted value, as words before the range.
    """
    if not low <= value <= high:
        raise SettingError(f"{name} is {value}, but must be {otherwise}between {low} and {high}")
