"""Parses settings files, and single option values, as text or as in TOML.

Each function takes the option's name, for its error sentence, and the value. Other modules check ranges.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from fleximq.errors import SettingError
from fleximq.limits import GIBIBYTE, KIBIBYTE, MEBIBYTE


def read(path: str) -> dict[str, object]:
    """Return the unchecked values of a settings file; raises SettingError if it is missing, unreadable or not TOML."""
    try:
        written = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        words = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SettingError(f"{path} cannot be read: {words[:1].lower()}{words[1:]}") from error
    try:
        return tomllib.loads(written.decode())
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        raise SettingError(f"{path} is not TOML: line {line} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        words = str(error)
        raise SettingError(f"{path} is not TOML: {words[:1].lower()}{words[1:]}") from error
    except RecursionError as error:
        raise SettingError(f"{path} is not TOML that can be read: it is nested too deeply") from error


_UNITS = {"": 1, "b": 1, "kib": KIBIBYTE, "mib": MEBIBYTE, "gib": GIBIBYTE}
_SIZE = re.compile(r"([0-9]{1,18}) *([a-z]*)", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)


def seconds(name: str, value: object) -> float:
    """Parse a time in seconds: a number or a text."""
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise SettingError(f"{name} is {value!r}, but must be a number of seconds, e.g. 30 or 0.5")


def count(name: str, value: object) -> int:
    """Parse a whole number, or its text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _COUNT.fullmatch(value):
        return int(value)
    raise SettingError(f"{name} is {value!r}, but must be a whole number")


def size(name: str, value: object) -> int:
    """Parse a number of bytes, or a text with a unit: ``65536``, ``64KiB``, ``16MiB``, ``1GiB``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found and found[2].lower() in _UNITS:
        return int(found[1]) * _UNITS[found[2].lower()]
    raise SettingError(f"{name} is {value!r}, but must be a number of bytes, e.g. 65536, 64KiB, 16MiB or 1GiB")


def formattedSize(number: int) -> str:
    """Return a number of bytes as an operator would write it, with the largest unit that divides it."""
    for name in ("GiB", "MiB", "KiB"):
        unit = _UNITS[name.lower()]
        if number and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def flag(name: str, value: object) -> bool:
    """Check a switch: true or false."""
    if isinstance(value, bool):
        return value
    raise SettingError(f"{name} is {value!r}, but must be true or false")


def texts(name: str, value: object) -> tuple[str, ...]:
    """Parse one text, or a list of texts."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        given = tuple(value)
        if all(isinstance(each, str) for each in given):
            return given
    raise SettingError(f"{name} is {value!r}, but must be a text or a list of texts")


def text(name: str, value: object) -> str:
    """Check a text."""
    if isinstance(value, str):
        return value
    raise SettingError(f"{name} is {value!r}, but must be a text")


class LogFormat(Enum):
    """The formats of the log."""

    TEXT = "text"
    JSON = "json"


class SlowConsumer(Enum):
    """The policy for deliveries to a connection that reads too slowly."""

    DISCONNECT = "disconnect"
    DROP = "drop"
    BLOCK = "block"


class Sender(Enum):
    """The name of a publisher for subscribers: its client's, or the principal under which it has logged in."""

    CLIENT = "client"
    PRINCIPAL = "principal"


Choice = TypeVar("Choice", bound=Enum)


def oneOf(choices: type[Choice]) -> Callable[[str, object], Choice]:
    """Return the parser of an option with these choices."""

    def choice(name: str, value: object) -> Choice:
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(each.value for each in choices)
            raise SettingError(f"{name} is {value!r}, but must be one of {known}") from None

    return choice
