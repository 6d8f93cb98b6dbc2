"""What stands behind ``SCHEME:``: ``key=value`` pairs, separated by commas.

A backslash takes the meaning from a comma behind it, as in ``--extension``.
"""

import re
from collections.abc import Collection

from fleximq.errors import SettingError

_COMMA = re.compile(r"(?<!\\),")


def split(argument: str) -> list[str]:
    """Return the parts between commas; an empty argument has none."""
    return [each.replace("\\,", ",") for each in _COMMA.split(argument)] if argument else []


def pairs(parts: Collection[str], known: Collection[str]) -> dict[str, str]:
    """Return the values by their keys.

    :raises SettingError: a part is no pair, a key is unknown, comes twice or has no value.
    """
    found: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise SettingError(f"{part!r} is not of the form key=value; the keys are {', '.join(known)}")
        if key not in known:
            raise SettingError(f"there is no option {key}, only {', '.join(known)}")
        if key in found:
            raise SettingError(f"{key} is given twice")
        if not value:
            raise SettingError(f"{key} has no value")
        found[key] = value
    return found
