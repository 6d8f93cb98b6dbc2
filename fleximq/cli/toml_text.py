"""Settings as the text of a settings file, as far as they are not the defaults."""

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum

from fleximq.option_values import size, spelledSize
from fleximq.settings import OPTIONS, Settings

#: An option of an extension by such a name is not shown.
_SECRET = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)


def asToml(settings: Settings) -> list[str]:
    """Return the lines that set what differs from the defaults, extensions last, without their secrets."""
    lines = []
    for option in OPTIONS:
        value = getattr(settings.limits if option.isLimit else settings, option.field)
        if value != option.default and option.name != "extension":
            lines.append(f"{option.name} = {json.dumps(spelledSize(value)) if option.read is size else spelled(value)}")
    for name, options in settings.extension:
        lines += ["", f"[extension.{name}]", *_extension(options)]
    return lines


def _extension(options: Mapping[str, object]) -> Iterator[str]:
    for key, value in options.items():
        shown = '"..."  # not shown' if _SECRET.search(key) else spelled(value)
        yield f"{key if re.fullmatch('[A-Za-z0-9_-]+', key, re.ASCII) else spelled(key)} = {shown}"


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
