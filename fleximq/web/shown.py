"""Settings as they are shown over HTTP: without what may hold a secret.

Commands that are run, options of extensions and schemes of authentication may have passwords in them, so only their
first word is shown. Of files only names are set, never what is in them.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from fleximq.config.settings import OPTIONS, Settings

#: Options of which a part is shown, by name -> what each of their values becomes.
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "spawn": lambda line: line.split()[0],
    "extension": lambda chosen: chosen.name,
    "auth": lambda scheme: str(scheme).partition(":")[0],
}


def shownSettings(settings: Settings) -> dict[str, Any]:
    """Return the settings by the names of their options, as JSON can hold them."""
    return {
        option.name: _shown(option.name, getattr(settings.limits if option.isLimit else settings, option.field))
        for option in OPTIONS
    }


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
