"""Reads the arguments of requests: numbers, flags and times. All errors are sentences of one form."""

from collections.abc import Mapping
from typing import TypeVar

from fleximq.errors import BadRequest
from fleximq.values.zoned_time import zonedTime

T = TypeVar("T")
#: Minimum seconds of a time that must not be 0.
SHORTEST = 0.001
_FLAGS = {"true": True, "false": False}
_DIGITS = 18


def wrong(name: str, text: str, kind: str) -> BadRequest:
    """Return the error for an argument that is not of a kind."""
    return BadRequest(f"{name} is {text[:100]!r}, but must be {kind}")


def seconds(arguments: Mapping[str, str], name: str, otherwise: T, least: float, most: float) -> float | T:
    """Return an argument in seconds from ``least`` to ``most``, ``otherwise`` without it; raises BadRequest."""
    text = arguments.get(name)
    if text is None:
        return otherwise
    try:
        found = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        found = -1.0
    if not least <= found <= most:  # NaN neither
        raise wrong(name, text, f"a number of seconds from {least:g} to {most:.15g}")
    return found


def milliseconds(arguments: Mapping[str, str], name: str, least: float, most: float) -> int:
    """Return an argument in seconds as milliseconds; it must be there. Raises BadRequest."""
    return round(seconds(arguments, name, 0.0, least, most) * 1000)


def whole(arguments: Mapping[str, str], name: str, otherwise: T, least: int, most: int) -> int | T:
    """Return a whole number from ``least`` to ``most``, ``otherwise`` without the argument; raises BadRequest."""
    text = arguments.get(name)
    if text is None:
        return otherwise
    found = int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else -1
    if not least <= found <= most:
        raise wrong(name, text, f"a whole number from {least} to {most}")
    return found


def flag(arguments: Mapping[str, str], name: str) -> bool:
    """Return whether an argument is ``true``; False without it. Raises BadRequest."""
    text = arguments.get(name, "false")
    if text not in _FLAGS:
        raise wrong(name, text, "true or false")
    return _FLAGS[text]


def moment(name: str, text: str, kind: str = "a time in ISO 8601 with a zone, e.g. 2030-01-31T12:00:00Z") -> int:
    """Return a time as milliseconds since 1970, one before that as 0; raises BadRequest.

    :param kind: what the argument must be.
    """
    found = zonedTime(text)
    if found is None:
        raise wrong(name, text, kind)
    return max(0, round(found.timestamp() * 1000))
