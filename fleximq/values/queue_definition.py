"""The definition of a named queue: where its messages are from, how they are delivered, and its bounds.

A client sends it with ``/queue/define``, an operator writes it as ``[queues.NAME]`` into the settings file, and the
journal stores it; the keys are the same everywhere. Values that are not given have their defaults, so two definitions
are equal if they mean the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from random import random
from typing import Any

from fleximq.errors import BadRequest
from fleximq.limits import MOST_MILLISECONDS, isTooLong

#: Most sources of one queue.
MAX_SOURCES = 100
#: The longest time in seconds that a definition may contain.
MOST_SECONDS = MOST_MILLISECONDS / 1000
#: The largest number of messages, bytes or attempts.
_MOST_NUMBER = 1 << 48
_DEATHS = ("drop", "dead")
_WHEN_FULL = ("refuse", "drop-oldest")


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """Growing delays in seconds before repeated attempts: ``first`` before attempt 2, then ``factor`` times the one
    before, at most ``most``; a random part of up to ``jitter`` (0 to 1) is subtracted. Raises BadRequest.
    """

    first: float = 1.0
    most: float = 3600.0
    factor: float = 2.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (("first", 0, MOST_SECONDS), ("most", 0, MOST_SECONDS), ("factor", 1, 1e6)):
            _within(f"retry.{name}", getattr(self, name), low, high)
        _within("retry.jitter", self.jitter, 0, 1)

    def after(self, attempts: int, chance: Callable[[], float] = random) -> float:
        """Return the delay after so many attempts, at least 1."""
        growth = self.factor ** min(max(attempts - 1, 0), 64)
        return min(self.first * growth, self.most) * (1 - self.jitter * chance())


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """One queue; times are in seconds, None means the broker's own setting. Raises BadRequest for a wrong value.

    ``sources``: topics and patterns whose messages it receives, in no order, besides the topic of its own name.
    ``durable``: None if it is when the broker has a journal. ``lease``: how long a delivery belongs to its consumer; 0:
    while its connection lasts. ``max_attempts``: deliveries before a message becomes a dead letter, in the topic
    ``dead_letters``; ``retry``: delays before attempts after the first. ``expired``: whether expired messages become
    dead letters. ``max_in_flight``: unsettled deliveries to all consumers. ``ordered_by``: "key" if of messages with
    equal keys only one is delivered at a time. ``when_full``: whether a full queue refuses messages or drops its oldest
    ones; None: it refuses those that are published for the queue, and drops the oldest ones for others. ``expiry``:
    after how long without consumers it is deleted. ``message_ttl``: after how long waiting messages expire.
    """

    name: str
    sources: tuple[str, ...] = ()
    durable: bool | None = None
    lease: float = 0.0
    max_attempts: int | None = None
    retry: RetryDelays | None = None
    dead_letters: str | None = None
    expired: str = "drop"
    max_in_flight: int | None = None
    ordered_by: str | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    when_full: str | None = None
    expiry: float | None = None
    message_ttl: float | None = None
    paused: bool = False

    def __post_init__(self) -> None:
        _checkTopic("queue", self.name)
        object.__setattr__(self, "sources", tuple(sorted({self.name, *self.sources})))
        if len(self.sources) > MAX_SOURCES:
            raise BadRequest(f"sources has {len(self.sources)} entries, but at most {MAX_SOURCES} are allowed")
        for source in self.sources:
            _checkTopic("a source", source)
        if self.dead_letters is not None:
            _checkTopic("dead_letters", self.dead_letters)
        for name in ("durable", "paused"):
            if type(value := getattr(self, name)) is not bool and not (name == "durable" and value is None):
                raise BadRequest(f"{name} is {value!r}, but must be true or false")
        _oneOf("expired", self.expired, _DEATHS)
        _oneOf("when_full", self.when_full, (*_WHEN_FULL, None))
        _oneOf("ordered_by", self.ordered_by, ("key", None))
        _within("lease", self.lease, 0, MOST_SECONDS)
        if self.expiry is not None:
            _within("expiry", self.expiry, 1, MOST_SECONDS)
        if self.message_ttl is not None:
            _within("message_ttl", self.message_ttl, 0.001, MOST_SECONDS)
        for name in ("max_attempts", "max_in_flight", "max_messages", "max_bytes"):
            if (number := getattr(self, name)) is not None:
                _within(name, number, 1, _MOST_NUMBER, whole=True)

    def isFilledLike(self, other: "QueueDefinition") -> bool:
        """Tell whether messages arrive in the same way with another definition: its sources, and whether priorities
        count.
        """
        return (self.sources, self.ordered_by) == (other.sources, other.ordered_by)

    @classmethod
    def read(cls, name: object, mapping: Mapping[str, Any]) -> "QueueDefinition":
        """Return the definition with these keys, which are the names of the fields without ``name``; raises BadRequest
        for an unknown key or a wrong value.
        """
        unknown = [key for key in mapping if key not in KEYS]
        if unknown:
            raise BadRequest(f"{str(unknown[0])[:100]!r} is no key of a queue; there are {', '.join(KEYS)}")
        values = dict(mapping)
        if "sources" in values:
            values["sources"] = _texts(values["sources"])
        if values.get("retry") is not None:
            values["retry"] = _retry(values["retry"])
        return cls(name, **values)  # type: ignore[arg-type]  # it is checked

    def dump(self) -> dict[str, Any]:
        """Return the values that differ from their defaults, for :meth:`read` and for MessagePack."""
        dumped = {key: getattr(self, key) for key in KEYS if getattr(self, key) != _DEFAULTS[key]}
        dumped["sources"] = [each for each in self.sources if each != self.name]
        if not dumped["sources"]:
            del dumped["sources"]
        if self.retry is not None:
            dumped["retry"] = {key: getattr(self.retry, key) for key in _RETRY_KEYS}
        return dumped


_DEFAULTS = {each.name: each.default for each in fields(QueueDefinition)}
#: The keys of a definition, without the queue's name.
KEYS = tuple(key for key in _DEFAULTS if key != "name")
_RETRY_KEYS = tuple(each.name for each in fields(RetryDelays))


def _retry(value: object) -> RetryDelays:
    if not isinstance(value, Mapping) or any(key not in _RETRY_KEYS for key in value):
        raise BadRequest(f"retry must be a table with some of the keys {', '.join(_RETRY_KEYS)}")
    return RetryDelays(**value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise BadRequest("sources must be a list of topics and patterns")
    return tuple(value)


def _checkTopic(name: str, value: object) -> None:
    if not isinstance(value, str) or not value or isTooLong(value):
        raise BadRequest(f"{name} must be a text of 1 to 1024 bytes")


def _oneOf(name: str, value: object, allowed: tuple[str | None, ...]) -> None:
    if value not in allowed:
        words = " or ".join(repr(each) for each in allowed if each)
        raise BadRequest(f"{name} is {str(value)[:100]!r}, but must be {words}")


def _within(name: str, value: object, low: float, high: float, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    if type(value) not in kinds or not low <= value <= high:  # type: ignore[operator]  # it is a number
        kind = "a whole number" if whole else "a number"
        raise BadRequest(f"{name} is {str(value)[:100]}, but must be {kind} from {low:g} to {high:.0f}")
