"""Times that pass, as they are written behind options of jobs: ``500ms``, ``10s``, ``5m``, ``1h``, ``7d``."""

import re

from fleximq.errors import SettingError

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_WRITTEN = re.compile(r"(\d{1,9})(ms|s|m|h|d)")


def duration(name: str, value: object) -> int:
    """Read a time in microseconds: a number of seconds, or text with a unit.

    :raises SettingError: it is none, or nothing.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
        return value * 1_000_000
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise SettingError(f"{name} is {value!r}, but must be a time such as 500ms, 10s, 5m, 1h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def interval(microseconds: int) -> str:
    """Return a time as Spark reads one."""
    return f"{microseconds} microseconds"
