"""``fleximq check-config FILE``: checks a settings file, and prints its effective settings as TOML.

With ``--against OLD`` it also predicts a reload of a broker that runs with that file.
"""

import json
import re
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from fleximq.cli.command import Command
from fleximq.cli.output import addJsonOption, say, tell
from fleximq.config.option_table import OPTIONS, TABLES, Option
from fleximq.config.option_values import formattedSize, read, size
from fleximq.config.permission_options import LIMITS, PermissionTable
from fleximq.config.rate_options import Rate, byteRate, formattedByteRate
from fleximq.config.settings import Settings
from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.rights import Action
from fleximq.security.authentication.schemes import methodsOf, shown, warnings
from fleximq.startup.advice import adviceAbout
from fleximq.startup.configuration_check import faults
from fleximq.startup.setting_changes import Difference, difference, lostProtections

#: Values of extension options with a name like this are hidden.
_SECRET = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)

_DEFAULTS = Settings()


def asToml(settings: Settings) -> list[str]:
    """Return the lines for settings that differ from the defaults, extensions (without secrets) and permissions."""
    lines = []
    for option in OPTIONS:
        value = option.of(settings)
        if option.name == "auth":
            value = tuple(map(shown, value))
        if value != option.of(_DEFAULTS) and option.name != "extension":
            lines.append(f"{option.name} = {_optionValue(option, value)}")
    for name, options in settings.extension:
        lines += ["", f"[extension.{name}]", *_extension(options)]
    for table in TABLES:
        granted = table.of(settings)
        if granted == ():
            lines += ["", f"[{table.name}]"]
        for each in granted or ():
            lines += ["", f"[{table.name}.{_key(each.name)}]", *_granted(each)]
    return lines


def _granted(table: PermissionTable) -> Iterator[str]:
    if table.roles:
        yield f"roles = {tomlValue(table.roles)}"
    for prefix, rules in ("", table.grants), ("deny.", table.denials):
        for action, patterns in rules:
            yield f"{prefix}{action} = {tomlValue(bool(patterns) if action == Action.BROADCAST else patterns)}"
    for name, value in table.limits:
        yield f"limits.{name} = {0 if value is None else _valueRead(LIMITS[name], value)}"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name, re.ASCII) else tomlValue(name)


def _optionValue(option: Option, value: Any) -> str:
    return tomlValue(formattedSize(value)) if option.read is size else _valueRead(option.read, value)


def _valueRead(read: object, value: Any) -> str:
    if isinstance(value, Rate):
        return tomlValue(formattedByteRate(value) if read is byteRate else str(value))
    return tomlValue(value)


def _extension(options: Mapping[str, object]) -> Iterator[str]:
    for key, value in options.items():
        shown = '"..."  # not shown' if _SECRET.search(key) else tomlValue(value)
        yield f"{_key(key)} = {shown}"


def tomlValue(value: object) -> str:
    """Format a value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return tomlValue(value.value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(tomlValue, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{tomlValue(key)} = {tomlValue(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # dates and times


def check(path: str) -> tuple[Settings | None, list[str]]:
    """Return the settings of a file, or None and a sentence for each fault."""
    try:
        values = read(path)
    except SettingError as error:
        return None, [str(error)]
    try:
        sentences = list(faults(values, installed(), elsewhere=True))
    except SettingError as error:
        return None, [str(error)]
    if sentences:
        return None, [f"{path}: {sentence}" for sentence in sentences]
    return Settings.of(values), []


def _prepare(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the settings file, as for twistd fleximq --config FILE")
    parser.add_argument(
        "--against", metavar="OLD", help="also predict a reload to FILE of a broker that was started with OLD"
    )
    addJsonOption(parser, "one JSON object: the faults, notes and settings, with --against also the changes")


def _run(arguments: Namespace) -> int:
    settings, sentences = check(arguments.file)
    refused: list[str] = []
    changes: Difference | None = None
    if arguments.against is not None and settings is not None:
        running, sentences = check(arguments.against)
        if running is not None:
            isEmpty = not read(arguments.file)
            refused = [f"{arguments.file} is empty"] if isEmpty else list(lostProtections(running, settings))
            changes = difference(running, settings)
    faults = [*sentences, *refused]
    if arguments.json:
        tell(arguments, "", **_asJson(settings, arguments.file, faults), **(changes._asdict() if changes else {}))
        return 1 if faults else 0
    for sentence in faults:
        say(f"fleximq: {sentence}")
    if not faults and settings is not None:
        _show(arguments.file, settings) if changes is None else _showChanges(changes)
    return 1 if faults else 0


def _asJson(settings: Settings | None, path: str, faults: Sequence[str]) -> dict[str, Any]:
    if settings is None:
        return {"file": path, "faults": faults}
    shown = tomllib.loads("\n".join(asToml(settings)))
    return {"file": path, "faults": faults, "notes": list(_notes(settings, path)), "settings": shown}


def _showChanges(found: Difference) -> None:
    print(f"# A reload changes: {', '.join(found.changed) or 'nothing in the settings'}")
    if found.waiting:
        print(f"# These need a restart to change: {', '.join(found.waiting)}")


def _notes(settings: Settings, path: str) -> Iterator[str]:
    yield from warnings(methodsOf(settings.auth), settings.principals)
    yield from adviceAbout(settings, path)


def _show(path: str, settings: Settings) -> None:
    """Print the settings that differ from the defaults."""
    lines = asToml(settings)
    print(f"# {path} is good; ports and folders are tried when the broker starts.")
    for sentence in _notes(settings, path):
        print(f"# Note: {sentence}")
    print("# Settings that differ from the defaults:" if lines else "# It sets only defaults.")
    for line in lines:
        print(line)


#: The command.
CHECK_CONFIG = Command("check-config", "Check a settings file, and show what it sets.", _prepare, _run)
