"""Parses rates, ``RATE`` or ``RATE,BURST``; those of bytes may have units: ``10MiB,64MiB``. 0 is no limit.

``1000`` permits a thousand a second, and at once; ``1000,5000`` five thousand at once, which refill in five seconds.
"""

import math
import re
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
    try:
        return _rateOf([_number(part) for part in _parts(value)])
    except ValueError:
        raise SettingError(
            f"{name} is {value!r}, but must be a number for each second, and perhaps how many may come at once, "
            "e.g. 1000 or 1000,5000; 0 is no limit"
        ) from None


def byteRate(name: str, value: object) -> Rate | None:
    """Parse a rate of bytes; None if unlimited; raises SettingError if it is no rate."""
    try:
        return _rateOf([float(size(name, part)) for part in _parts(value)])
    except (ValueError, SettingError):
        raise SettingError(
            f"{name} is {value!r}, but must be a number of bytes for each second, and perhaps how many may come at "
            "once, e.g. 1MiB or 1MiB,16MiB; 0 is no limit"
        ) from None


def formattedByteRate(rate: Rate) -> str:
    """Return a rate of bytes as an operator would write it."""
    return ",".join(formattedSize(int(part)) for part in map(float, str(rate).split(",")))


def _parts(value: object) -> list[object]:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]


def _number(part: object) -> float:
    if isinstance(part, str) and _NUMBER.fullmatch(part):
        return float(part)
    if isinstance(part, int | float) and not isinstance(part, bool) and math.isfinite(part):
        return float(part)
    raise ValueError


def _rateOf(numbers: list[float]) -> Rate | None:
    """Return the rate of one or two numbers; raises ValueError if they are out of range."""
    if len(numbers) == 1:
        numbers.append(max(1.0, numbers[0]))
    perSecond, burst = numbers
    if perSecond == 0:
        return None
    if not (1e-6 <= perSecond <= MAX_RATE and 1 <= burst <= MAX_RATE):
        raise ValueError
    return Rate(perSecond, burst)
