"""Settings as the text of a settings file, as far as they are not the defaults."""

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from fleximq.config.option_values import size, spelledSize
from fleximq.config.permission_options import Granted
from fleximq.config.rate_options import Rate, byteRate, spelledByteRate
from fleximq.config.settings import OPTIONS, TABLES, Option, Settings
from fleximq.rights import Action
from fleximq.security.authentication.schemes import shown

#: An option of an extension by such a name is not shown.
_SECRET = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)


def asToml(settings: Settings) -> list[str]:
    """Return the lines that set what differs from the defaults; then extensions without their secrets, and rights."""
    lines = []
    for option in OPTIONS:
        value = getattr(settings.limits if option.isLimit else settings, option.field)
        if option.name == "auth":
            value = tuple(map(shown, value))
        if value != option.default and option.name != "extension":
            lines.append(f"{option.name} = {_shown(option, value)}")
    for name, options in settings.extension:
        lines += ["", f"[extension.{name}]", *_extension(options)]
    for table in TABLES:
        granted = getattr(settings, table.field)
        if granted == ():
            lines += ["", f"[{table.name}]"]
        for each in granted or ():
            lines += ["", f"[{table.name}.{_key(each.name)}]", *_granted(each)]
    return lines


def _granted(table: Granted) -> Iterator[str]:
    if table.roles:
        yield f"roles = {spelled(table.roles)}"
    for action, patterns in table.grants:
        yield f"{action} = {spelled(bool(patterns) if action == Action.BROADCAST else patterns)}"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name, re.ASCII) else spelled(name)


def _shown(option: Option, value: Any) -> str:
    if option.read is size:
        return spelled(spelledSize(value))
    if isinstance(value, Rate):
        return spelled(spelledByteRate(value) if option.read is byteRate else str(value))
    return spelled(value)


def _extension(options: Mapping[str, object]) -> Iterator[str]:
    for key, value in options.items():
        shown = '"..."  # not shown' if _SECRET.search(key) else spelled(value)
        yield f"{_key(key)} = {shown}"


def spelled(value: object) -> str:
    """Return a value as TOML spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return spelled(value.value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spelled, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{spelled(key)} = {spelled(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # the dates and times of TOML
