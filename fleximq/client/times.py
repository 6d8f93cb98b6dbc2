"""Durations and times of the client's calls: seconds or ``timedelta``, and ``datetime`` with a zone; in milliseconds.

A time without a zone is refused: it means another moment on another machine.
"""

from datetime import datetime, timedelta

Duration = float | timedelta


def seconds(name: str, duration: Duration) -> float:
    """Return a duration in seconds.

    :param name: the argument, for the error.
    :raises TypeError: it is not a number or a timedelta.
    :raises ValueError: it is negative or not finite.
    """
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise TypeError(f"{name} is {duration!r}, but must be seconds or a timedelta")
    found = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= found < float("inf"):
        raise ValueError(f"{name} is {duration}, but must be at least 0 and finite")
    return found


def milliseconds(name: str, duration: Duration) -> int:
    """Return a duration in whole milliseconds, at least 1 unless it is 0; errors as :func:`seconds`."""
    found = seconds(name, duration)
    return max(round(found * 1000), 1) if found else 0


def moment(name: str, at: datetime) -> int:
    """Return a time in milliseconds since 1970.

    :raises TypeError: it is not a datetime.
    :raises ValueError: it has no zone, or is before 1970.
    """
    if not isinstance(at, datetime):
        raise TypeError(f"{name} is {at!r}, but must be a datetime with a zone")
    if at.utcoffset() is None:
        raise ValueError(f"{name} is {at}, which has no zone; datetime.now(UTC) and astimezone() have one")
    since = round(at.timestamp() * 1000)
    if since < 0:
        raise ValueError(f"{name} is {at}, but must not be before 1970")
    return since
