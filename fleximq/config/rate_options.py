"""Parses rates, ``RATE`` or ``RATE,BURST``; those of bytes may have units: ``10MiB,64MiB``. 0 is no limit.

``1000`` permits a thousand a second, and at once; ``1000,5000`` five thousand at once, which refill in five seconds.
"""

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from fleximq.config.option_values import formattedSize, size
from fleximq.errors import SettingError

MAX_RATE = 1e15  #: Maximum rate, in any unit.
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,6})?", re.ASCII)


class OverRate(Enum):
    """The action against a client that exceeds its rate."""

    PAUSE = "pause"
    REFUSE = "refuse"


class Rate(NamedTuple):
    """An amount per second; ``burst`` is the amount permitted at once after an idle time."""

    perSecond: float
    burst: float

    def __str__(self) -> str:
        burst = "" if self.burst == max(1.0, self.perSecond) else f",{self.burst:.15g}"
        return f"{self.perSecond:.15g}{burst}"


def rate(name: str, value: object) -> Rate | None:
    """Parse a rate of messages, connections or the like; None if unlimited; raises SettingError if it is no rate."""
    return _rate(name, value, _number, "a number", "1000 or 1000,5000")


def byteRate(name: str, value: object) -> Rate | None:
    """Parse a rate of bytes; None if unlimited; raises SettingError if it is no rate."""
    return _rate(name, value, lambda part: float(size(name, part)), "a number of bytes", "1MiB or 1MiB,16MiB")


def formattedByteRate(rate: Rate) -> str:
    """Return a rate of bytes as an operator would write it."""
    return ",".join(formattedSize(int(part)) for part in map(float, str(rate).split(",")))


def _rate(name: str, value: object, read: Callable[[object], float], what: str, examples: str) -> Rate | None:
    parts: list[object] = [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]
    try:
        perSecond, *bursts = map(read, parts)
        (burst,) = bursts or (max(1.0, perSecond),)
        if perSecond == 0:
            return None
        if 1e-6 <= perSecond <= MAX_RATE and 1 <= burst <= MAX_RATE:
            return Rate(perSecond, burst)
    except (ValueError, SettingError):
        pass
    words = f"{what} for each second, and perhaps how many may come at once, e.g. {examples}; 0 is no limit"
    raise SettingError(f"{name} is {value!r}, but must be {words}")


def _number(part: object) -> float:
    if isinstance(part, str) and _NUMBER.fullmatch(part):
        return float(part)
    if isinstance(part, int | float) and not isinstance(part, bool) and math.isfinite(part):
        return float(part)
    raise ValueError
