"""``fleximq check-config FILE``: whether a broker could run with a settings file, and what would be in effect."""

import sys
from argparse import ArgumentParser, Namespace

from fleximq.checking import faults
from fleximq.cli.command import Command
from fleximq.cli.toml_text import asToml
from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.settings import Settings
from fleximq.settings_file import read


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


def _run(arguments: Namespace) -> int:
    settings, sentences = check(arguments.file)
    for sentence in sentences:
        print(f"fleximq: {sentence}", file=sys.stderr)
    if settings is None:
        return 1
    lines = asToml(settings)
    print(
        f"# {arguments.file} is good." + (" Beside the defaults, it sets:" if lines else " It sets the defaults only.")
    )
    for line in lines:
        print(line)
    return 0


#: The command.
CHECK_CONFIG = Command("check-config", "Check a settings file, and show what it sets.", _prepare, _run)
