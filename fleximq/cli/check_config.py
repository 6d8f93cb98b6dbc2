"""``fleximq check-config FILE``: whether a broker could run with a settings file, and what would be in effect.

With ``--against OLD`` it also tells what a reload would do in a broker that runs with that file.

Settings as the text of a settings file, as far as they are not the defaults.
"""

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from fleximq.cli.command import Command
from fleximq.config.option_values import formattedSize, read, size
from fleximq.config.permission_options import PermissionTable
from fleximq.config.rate_options import Rate, byteRate, formattedByteRate
from fleximq.config.settings import OPTIONS, TABLES, Option, Settings
from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.rights import Action
from fleximq.security.authentication.schemes import shown, warnings
from fleximq.startup.configuration_check import faults
from fleximq.startup.setting_changes import Difference, difference, lostProtections

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


def _granted(table: PermissionTable) -> Iterator[str]:
    if table.roles:
        yield f"roles = {spelled(table.roles)}"
    for action, patterns in table.grants:
        yield f"{action} = {spelled(bool(patterns) if action == Action.BROADCAST else patterns)}"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name, re.ASCII) else spelled(name)


def _shown(option: Option, value: Any) -> str:
    if option.read is size:
        return spelled(formattedSize(value))
    if isinstance(value, Rate):
        return spelled(formattedByteRate(value) if option.read is byteRate else str(value))
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


def check(path: str) -> tuple[Settings | None, list[str]]:
    """Return the settings of a file; or None, and a sentence for everything that is wrong with it."""
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
        "--against", metavar="OLD", help="tell what a reload of FILE does in a broker that was started with OLD"
    )


def _run(arguments: Namespace) -> int:
    settings, sentences = check(arguments.file)
    _complain(sentences)
    if settings is None:
        return 1
    if arguments.against is None:
        _show(arguments.file, settings)
        return 0
    running, sentences = check(arguments.against)
    _complain(sentences)
    if running is None:
        return 1
    if _isEmpty(arguments.file):
        refused = [f"{arguments.file} is empty"]
    else:
        refused = list(lostProtections(running, settings))
    _complain(refused)
    if not refused:
        _foresee(difference(running, settings))
    return 1 if refused else 0


def _foresee(found: Difference) -> None:
    """Say what a reload would do."""
    print(f"# A reload changes: {', '.join(found.changed) or 'nothing in the settings'}")
    if found.waiting:
        print(f"# These need a restart to change: {', '.join(found.waiting)}")


def _isEmpty(path: str) -> bool:
    return not read(path)


def _complain(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(f"fleximq: {sentence}", file=sys.stderr)


def _show(path: str, settings: Settings) -> None:
    """Print what the settings change of the defaults."""
    lines = asToml(settings)
    print(f"# {path} is good." + (" Beside the defaults, it sets:" if lines else " It sets the defaults only."))
    for sentence in warnings(settings.auth):
        print(f"# Note: {sentence}")
    for line in lines:
        print(line)


#: The command.
CHECK_CONFIG = Command("check-config", "Check a settings file, and show what it sets.", _prepare, _run)
