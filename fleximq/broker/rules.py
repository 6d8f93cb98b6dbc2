"""The rules of a broker: its times, sizes and patterns, and the limits of the age of messages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from fleximq.limits import Limits
from fleximq.values.patterns import anyOf

#: Maximum number of topics in the cache of limits.
_KNOWN = 4096


class AgeLimits:
    """Limits of the age of messages, in seconds: patterns of topics, each with its limit, 0 for none.

    The first pattern that matches a topic counts. True if there are any patterns.
    """

    def __init__(self, lines: Sequence[tuple[str, float]]) -> None:
        self._lines = [(anyOf((pattern,)), round(seconds * 1_000_000)) for pattern, seconds in lines]
        #: Returns the limit for a topic in microseconds; None without one.
        self.of = lru_cache(maxsize=_KNOWN)(self._of)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def _of(self, topic: str) -> int | None:
        return next((time for matches, time in self._lines if matches(topic)), None) or None

    def seconds(self, topic: str) -> float | None:
        """Return the limit for a topic in seconds; None without one."""
        time = self.of(topic)
        return None if time is None else time / 1_000_000


@dataclass(frozen=True, slots=True)
class BrokerRules:
    """Settings of the broker; times are in seconds.

    ``requestTimeout``: an unanswered REQ is failed with 504 after it (0: never). ``redelivery``: how long a delivered
    message stays hidden while it is not acknowledged. ``maxDeliveries``: deliveries before a message becomes a dead
    letter. ``grace``: how long a subscription outlives its last connection, ``durableGrace`` a durable one.
    ``queueExpiry``: after how long without a consumer a work queue expires with its messages; None: only empty queues
    and reply queues expire. ``echoBroadcast``: a BCAST reaches its sender too.

    ``durable``: patterns of topics; all their messages are stored. ``retain``: patterns of topics; all their messages
    are stored too, and new subscribers get the latest one. ``timesToLive``: patterns, and the seconds after which their
    messages expire. ``retentions``: patterns, and the seconds after which replays leave their messages out.
    ``idempotenceWindow``: how long a message's id is remembered; ``deduplicatedDialects``: the dialects with ids in
    their messages. ``history``: how many past messages a new Identity subscriber gets.
    """

    requestTimeout: float = 0.0
    redelivery: float = 30.0
    maxDeliveries: int = 20
    grace: float = 60.0
    queueExpiry: float | None = None
    echoBroadcast: bool = False
    durable: tuple[str, ...] = ()
    retain: tuple[str, ...] = ()
    timesToLive: tuple[tuple[str, float], ...] = ()
    retentions: tuple[tuple[str, float], ...] = ()
    idempotenceWindow: float = 120.0
    deduplicatedDialects: tuple[str, ...] = ("fleximq",)
    durableGrace: float = 86400.0
    history: int = 0
    limits: Limits = field(default_factory=Limits)
