"""The times of a recurring schedule: every so many milliseconds, or those of a cron expression in a time zone.

The library cronsim reads cron expressions, with the rules of Debian's cron where clocks are set for summer time: a job
at a fixed hour that a day does not have is due at the end of the gap, and in an hour that a day has twice it is due
once; a job with ``*`` in its minutes or hours is due by elapsed time. All times are milliseconds since 1970.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from fleximq.errors import BadRequest
from fleximq.limits import MOST_MILLISECONDS
from fleximq.values.printable import shortened

#: The shortest and the longest interval in milliseconds, and the most characters of an expression.
LEAST_EVERY, MOST_EVERY, EXPRESSION = 1000, MOST_MILLISECONDS, 256
#: The most bytes of a name, and of header and payload together.
NAME_BYTES, CONTENT_BYTES = 256, 16 << 10


class CatchUp(StrEnum):
    """Which of the missed publications of a recurring schedule are made up for."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class Occurrences(Protocol):
    """The due times of a recurring schedule."""

    def after(self, time: int) -> int | None:
        """Return the first one after a time; None if there is none within fifty years."""

    def last(self, time: int) -> int | None:
        """Return the last one at a time or before; None if there is none."""


class Interval:
    """Times at a fixed distance.

    :param start: the time before the first one.
    """

    def __init__(self, start: int, every: int) -> None:
        self._start = start
        self._every = every

    def after(self, time: int) -> int:
        """See :class:`Occurrences`."""
        return self._start + self._every * max(1, (time - self._start) // self._every + 1)

    def last(self, time: int) -> int | None:
        """See :class:`Occurrences`."""
        number = (time - self._start) // self._every
        return self._start + self._every * number if number > 0 else None


class Never:
    """No times."""

    def after(self, time: int) -> None:
        """See :class:`Occurrences`."""

    def last(self, time: int) -> None:
        """See :class:`Occurrences`."""


class CronTimes:
    """The times of a cron expression of five fields, or six with seconds first.

    :raises BadRequest: the expression or the time zone is wrong, or cronsim is not installed.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        self._make = _cronSim()
        self._expression = expression
        self._zone = _zone(timezone)
        if len(expression) > EXPRESSION:
            raise BadRequest(f"a cron expression has at most {EXPRESSION} characters")
        try:
            self._make(expression, datetime.fromtimestamp(0, self._zone))
        except Exception as error:  # cronsim has one error of its own, and others for some expressions
            raise BadRequest(f"{shortened(expression)!r} is not a cron expression: {error}") from None

    def after(self, time: int) -> int | None:
        """See :class:`Occurrences`."""
        return next((each for each in self._times(time, False) if each > time), None)

    def last(self, time: int) -> int | None:
        """See :class:`Occurrences`."""
        return next((each for each in self._times(time + 1000, True) if each <= time), None)

    def _times(self, time: int, reverse: bool) -> Iterator[int]:
        moment = datetime.fromtimestamp(time / 1000, self._zone)
        for each in self._make(self._expression, moment, reverse=reverse):
            yield round(each.timestamp() * 1000)


def _cronSim() -> Any:
    try:
        from cronsim import CronSim
    except ImportError:
        raise BadRequest('cron expressions need the package cronsim: pip install "fleximq[cron]"') from None
    return CronSim


def _zone(name: str) -> Any:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise BadRequest(f"there is no time zone {shortened(name)!r}") from None
