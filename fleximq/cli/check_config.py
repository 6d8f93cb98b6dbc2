"""``fleximq check-config FILE``: whether a broker could run with a settings file, and what would be in effect.

With ``--against OLD`` it also tells what a reload would do in a broker that runs with that file.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from fleximq.cli.command import Command
from fleximq.cli.toml_text import asToml
from fleximq.config.settings import Settings
from fleximq.config.settings_file import read
from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.security.authentication.schemes import warnings
from fleximq.startup.configuration_check import faults
from fleximq.startup.setting_changes import Difference, dangers, difference


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
        refused = list(dangers(running, settings))
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
