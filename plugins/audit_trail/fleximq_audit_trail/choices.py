"""The operator's options: those of ``--extension audit_trail:`` or ``[extension.audit_trail]``."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleximq.api import SettingError, readCount, readFlag, readSeconds, readSize, readText


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of the trail; raises SettingError for an invalid value."""

    path: str
    rotate: int = 16 << 20  #: At so many bytes a new file begins,
    keep: int = 8  #: and so many old ones remain.
    pattern: str = "#"  #: Selects the topics.
    payloads: bool = False  #: Includes the published payloads.
    every: float = 0.5  #: The seconds between two writes.
    backlog: int = 8 << 20  #: Lines beyond so many pending bytes are lost, and counted.

    def __post_init__(self) -> None:
        folder = os.path.dirname(os.path.abspath(self.path))
        if not self.path or os.path.isdir(self.path) or not os.path.isdir(folder):
            raise SettingError(f"path is {self.path!r}, but must name a file in a folder that is there")
        for name, value, least in (
            ("rotate", self.rotate, 4096),
            ("keep", self.keep, 1),
            ("backlog", self.backlog, 4096),
        ):
            if value < least:
                raise SettingError(f"{name} is {value}, but must be at least {least}")
        if not 0.01 <= self.every <= 60:
            raise SettingError(f"every is {self.every:g}, but must be between 0.01 and 60 seconds")
        if not self.pattern or len(self.pattern.encode()) > 1024:
            raise SettingError(f"pattern is {self.pattern!r}, but must be a topic or a pattern of them")


_READ: dict[str, Callable[[str, object], Any]] = {
    "path": readText,
    "rotate": readSize,
    "keep": readCount,
    "pattern": readText,
    "payloads": readFlag,
    "every": readSeconds,
    "backlog": readSize,
}


def configure(options: Mapping[str, object]) -> Choices:
    """Return the checked options; raises SettingError for an unknown option, a missing one or a wrong value."""
    for name in options:
        if name not in _READ:
            raise SettingError(f"there is no option {name}, only {', '.join(_READ)}")
    if "path" not in options:
        raise SettingError("path is missing, but must name the file to write to")
    return Choices(**{name: _READ[name](name, value) for name, value in options.items()})
