"""``fleximq check-config FILE``: checks a settings file, prints its settings as TOML, and predicts a reload."""

import json
import re
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from fleximq.cli.command import argument, command
from fleximq.cli.output import jsonOption, say, tell
from fleximq.config.option_table import OPTIONS, TABLES
from fleximq.config.option_values import formattedSize, read, size
from fleximq.config.permission_options import LIMITS, PermissionTable
from fleximq.config.rate_options import Rate, byteRate, formattedByteRate
from fleximq.config.schedule_options import ScheduleTable
from fleximq.config.settings import Settings
from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.rights import Action
from fleximq.security.authentication.schemes import methodsOf, shown, warnings
from fleximq.startup.configuration_check import adviceAbout, faults
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
            written = tomlValue(formattedSize(value)) if option.read is size else _valueRead(option.read, value)
            lines.append(f"{option.name} = {written}")
    for name, options in settings.extension:
        lines += ["", f"[extension.{name}]"]
        for key, value in options.items():
            lines.append(f"{_key(key)} = " + ('"..."  # not shown' if _SECRET.search(key) else tomlValue(value)))
    for schedule in settings.schedules:
        lines += ["", f"[schedules.{_key(schedule.name)}]", *_scheduled(schedule)]
    for queue in settings.queues:
        lines += ["", f"[queues.{_key(queue.name)}]"]
        lines += [f"{key} = {tomlValue(value)}" for key, value in queue.dump().items()]
    for table in TABLES:
        if table.name in ("schedules", "queues"):
            continue
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


def _scheduled(table: ScheduleTable) -> Iterator[str]:
    yield f"topic = {tomlValue(table.topic)}"
    if table.every is not None:
        yield f"every = {table.every / 1000:g}"
    if table.cron is not None:
        yield f"cron = {tomlValue(table.cron)}"
        yield f"timezone = {tomlValue(table.timezone)}"
    yield f"catch-up = {tomlValue(table.catchUp)}"
    if table.paused:
        yield "paused = true"
    if table.payload or table.header:
        yield f"# {len(table.payload)} bytes of payload and {len(table.header)} of header, not shown"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name, re.ASCII) else tomlValue(name)


def _valueRead(read: object, value: Any) -> str:
    if isinstance(value, Rate):
        return tomlValue(formattedByteRate(value) if read is byteRate else str(value))
    return tomlValue(value)


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
        sentences = list(faults(values, installed(), elsewhere=True))
    except SettingError as error:
        return None, [str(error)]
    if sentences:
        return None, [f"{path}: {sentence}" for sentence in sentences]
    return Settings.of(values), []


@command(
    "check-config", argument("file", "FILE", "the settings file, as for twistd fleximq --config FILE"),
    argument("--against", "OLD", "also predict a reload to FILE of a broker that was started with OLD"),
    jsonOption("one JSON object: the faults, notes and settings, with --against also the changes"),
)  # fmt: skip
def checkConfig(arguments: Namespace) -> int:
    """Check a settings file, and show its settings."""
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
    notes: list[str] = []
    lines: list[str] = []
    if settings is not None:
        lines = asToml(settings)
        notes += warnings(methodsOf(settings.auth), settings.principals)
        notes += adviceAbout(settings, arguments.file)
    if arguments.json:
        shown = {} if settings is None else {"notes": notes, "settings": tomllib.loads("\n".join(lines))}
        tell(arguments, "", file=arguments.file, faults=faults, **shown, **(changes._asdict() if changes else {}))
        return 1 if faults else 0
    for sentence in faults:
        say(f"fleximq: {sentence}")
    if not faults and changes is not None:
        print(f"# A reload changes: {', '.join(changes.changed) or 'nothing in the settings'}")
        if changes.waiting:
            print(f"# These need a restart to change: {', '.join(changes.waiting)}")
    elif not faults:
        print(f"# {arguments.file} is good; ports and folders are tried when the broker starts.")
        for sentence in notes:
            print(f"# Note: {sentence}")
        print("# Settings that differ from the defaults:" if lines else "# It sets only defaults.")
        for line in lines:
            print(line)
    return 1 if faults else 0
