"""The settings as the API shows them: without secrets. Of commands to spawn, options of extensions and schemes of
authentication only the first word is shown.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from fleximq.config.option_table import OPTIONS
from fleximq.config.setting_origins import Origin
from fleximq.config.settings import Settings

#: Options that are shown in part, by name -> function of each of their values.
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "spawn": lambda line: line.split()[0],
    "extension": lambda chosen: chosen.name,
    "schedules": lambda table: table.name,
    "auth": lambda scheme: str(scheme).partition(":")[0],
}


def shownSettings(settings: Settings) -> dict[str, Any]:
    """Return the settings by option name, as values for JSON."""
    return {option.name: _shown(option.name, option.of(settings)) for option in OPTIONS}


def shownOrigins(settings: Settings, origins: Mapping[str, Origin]) -> dict[str, Any]:
    """Return the origin of each setting by option name; without any origins, settings that differ from their defaults
    are from the program.
    """
    usual, found = Settings(), {}
    for option in OPTIONS:
        isUsual = option.of(settings) == option.of(usual)
        origin = origins.get(option.name) or Origin("default" if isUsual or origins else "program")
        found[option.name] = {name: value for name, value in origin._asdict().items() if value is not None}
    return found


def _shown(name: str, value: Any) -> Any:
    part = _PARTS.get(name)
    if part is not None:
        return [part(each) for each in value or ()]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [_shown("", each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
