"""Options of durable topics: patterns, retention, time to live, and when messages are safe.

Patterns are those of subscriptions: levels are separated by ``.`` or ``/``, a level ``*`` matches one level, a last
level ``#`` any number of them (docs/reference/dialects.rst). If several lines match a topic, the first applies.
"""

import re
from typing import NamedTuple

from fleximq.config.option_values import size
from fleximq.errors import SettingError
from fleximq.limits import TOPIC_BYTES
from fleximq.values.patterns import faultIn

MAX_AGE = 100 * 366 * 24 * 3600  #: Maximum age, in seconds: a hundred years.
MAX_INTERVAL = 60_000  #: Maximum interval of syncs, in milliseconds.
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_RETENTION = re.compile(r"(.*)=(?:([0-9]{1,12})([smhdw])(?:,([^,]+))?|([^,]+))", re.ASCII | re.DOTALL)
_INTERVAL = re.compile(r"interval:([0-9]{1,9})", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", re.ASCII)


class RetentionRule(NamedTuple):
    """Retention of the topics that match: seconds and bytes of each topic, 0 for no bound."""

    pattern: str
    age: int
    bytes: int


class TimeToLive(NamedTuple):
    """Messages of the topics that match expire after so many seconds."""

    pattern: str
    seconds: float


class Fsync(NamedTuple):
    """When a message is safe: ``mode`` is always, interval or never; ``milliseconds`` belong to interval."""

    mode: str
    milliseconds: int = 0


def checkPattern(name: str, value: str, pattern: str) -> None:
    """Check that topics of clients can match a pattern; ``value`` is the option's full text, for the sentence.

    :raises SettingError: it is empty, too long, has a fault of :func:`faultIn`, or begins with ``$sys``, where messages
        are never durable.
    """
    if not pattern or len(pattern.encode("utf-8", "surrogatepass")) > TOPIC_BYTES:
        raise SettingError(f"{name} is {value!r}, but needs a pattern of 1 to {TOPIC_BYTES} bytes, e.g. orders.#")
    fault = faultIn(pattern)
    if fault:
        raise SettingError(f"{name} is {value!r}, but {fault}")
    if pattern.startswith(("$sys.", "$sys/")) or pattern == "$sys":
        raise SettingError(f"{name} is {value!r}, but what the broker says of itself is not kept")


def retentionOf(line: str) -> RetentionRule:
    """Parse ``PATTERN=AGE[,SIZE]``, or ``PATTERN=SIZE``: ``orders.#=7d,10GiB``; raises SettingError if it is neither.

    An age is a number and one of the letters s, m, h, d and w.
    """
    found = _RETENTION.fullmatch(line)
    if not found:
        raise _noRetention(line)
    pattern, number, unit, most = found[1], found[2] or 0, found[3] or "s", found[4] or found[5] or 0
    try:
        retention = RetentionRule(pattern, int(number) * _UNITS[unit], size("retention", most))
    except SettingError:
        raise _noRetention(line) from None
    if retention.age > MAX_AGE or not (retention.age or retention.bytes):
        raise _noRetention(line)
    checkPattern("retention", line, pattern)
    return retention


def timeToLiveOf(line: str) -> TimeToLive:
    """Parse ``PATTERN=SECONDS``; raises SettingError if it is malformed."""
    pattern, equals, rest = line.rpartition("=")
    if not equals or not _SECONDS.fullmatch(rest) or not 0 < float(rest) <= MAX_AGE:
        form = f"PATTERN=SECONDS, e.g. prices.#=60, with seconds over 0 and up to {MAX_AGE}"
        raise SettingError(f"message-ttl is {line!r}, but must be {form}")
    checkPattern("message-ttl", line, pattern)
    return TimeToLive(pattern, float(rest))


def fsyncOf(written: str) -> Fsync:
    """Parse ``always``, ``interval:MILLISECONDS`` or ``never``; raises SettingError for others, or over a minute."""
    if written in ("always", "never"):
        return Fsync(written)
    found = _INTERVAL.fullmatch(written)
    if found and 1 <= int(found[1]) <= MAX_INTERVAL:
        return Fsync("interval", int(found[1]))
    words = f"always, never, or interval: and 1 to {MAX_INTERVAL} milliseconds"
    raise SettingError(f"fsync is {written!r}, but must be {words}")


def _noRetention(line: str) -> SettingError:
    return SettingError(
        f"retention is {line!r}, but must be PATTERN=AGE[,SIZE] or PATTERN=SIZE, e.g. orders.#=7d,10GiB, with an age "
        "in s, m, h, d or w, over 0 and up to 100 years, and a size over 0 in B, KiB, MiB or GiB"
    )
