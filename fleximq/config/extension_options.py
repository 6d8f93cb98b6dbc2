"""Enabled extensions and their options: ``NAME[:key=value,...]``, or a table ``[extension.NAME]`` for each.

A key without a value is a switch that is on, and a backslash before a comma makes it part of the value.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fleximq.errors import SettingError

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
_COMMA = re.compile(r"(?<!\\),")


class EnabledExtension(NamedTuple):
    """One enabled extension, and its options as written."""

    name: str
    options: Mapping[str, object] = MappingProxyType({})


def extensions(name: str, value: object) -> tuple[EnabledExtension, ...]:
    """Read texts or tables by name; raises SettingError for others, an option without a name, and a name used twice."""
    chosen: list[EnabledExtension] = []
    if isinstance(value, Mapping):
        for extension, options in value.items():
            if not isinstance(options, Mapping):
                raise SettingError(f"{name}.{extension} is {options!r}, but must be a table: [{name}.{extension}]")
            chosen.append(EnabledExtension(extension, dict(options)))
        return tuple(chosen)
    written = (value,) if isinstance(value, str) else value
    if not isinstance(written, Iterable) or isinstance(written, bytes):
        raise _neither(name, value)
    for each in written:
        found = _ofText(name, each) if isinstance(each, str) else each
        if not isinstance(found, EnabledExtension):
            raise _neither(name, each)
        chosen.append(found)
    for found in chosen:
        if [other.name for other in chosen].count(found.name) > 1:
            raise SettingError(f"{name} names {found.name} twice, but an extension is turned on once")
    return tuple(chosen)


def _neither(name: str, value: object) -> SettingError:
    return SettingError(f"{name} is {value!r}, but must be NAME[:key=value,...] or a table for each: [{name}.NAME]")


def _ofText(name: str, text: str) -> EnabledExtension:
    extension, colon, rest = text.partition(":")
    options: dict[str, object] = {}
    for each in _COMMA.split(rest) if colon else ():
        key, equals, value = each.partition("=")
        if not _KEY.fullmatch(key):
            raise SettingError(f"{name} is {text!r}, but NAME: must be followed by key=value, separated by commas")
        if key in options:
            raise SettingError(f"{name} is {text!r}, but names {key} twice")
        options[key] = value.replace("\\,", ",") if equals else True
    return EnabledExtension(extension, options)
