"""What was chosen for a job: by the command line, else by the settings file, else by what the job says itself.

The file is TOML. A table of the name of the job has the job's options, ``[source]`` what is read, ``[spark]`` how Spark
runs; each option is called as on the command line, without its hyphens in front. What the file says of other jobs is
only looked at when they run.
"""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from fleximq.config import option_values, settings_file
from fleximq.errors import SettingError
from fleximq.pipeline.command.job import INSTEAD
from fleximq.pipeline.errors import OptionRefused


def choose(parser: ArgumentParser, job: str, jobs: Sequence[str], arguments: Sequence[str]) -> Namespace:
    """Return what was chosen for a job.

    :param parser: has all of its options, among them ``--config``, and those of the settings file.
    :param jobs: the names of all jobs, which may have tables in the file.
    :raises SettingError: the file cannot be read, or has what the job does not know; the sentence names the file.
    :raises SystemExit: for a command line that cannot be understood, and after the help was shown.
    """
    byName = {action.dest: action for action in parser._actions if action.dest != argparse.SUPPRESS}
    otherwise = {name: action.default for name, action in byName.items() if action.default is not argparse.SUPPRESS}
    for action in byName.values():
        action.default = argparse.SUPPRESS
    said = vars(parser.parse_args(arguments))
    filed = _filed(said["config"], job, jobs, byName) if said.get("config") else {}
    for pair in INSTEAD:
        if any(name in said for name in pair):
            for name in pair:
                filed.pop(name, None)
    return Namespace(**(otherwise | filed | said))


def _filed(path: str, job: str, jobs: Sequence[str], options: Mapping[str, argparse.Action]) -> dict[str, Any]:
    """Return what the settings file says to the job, by the names of the options."""
    sections: dict[str, dict[str, argparse.Action]] = {job: {}}
    for action in options.values():
        if hasattr(action, "section"):
            named = sections.setdefault(action.section or job, {})
            named[max(action.option_strings, key=len).lstrip("-")] = action
    chosen: dict[str, Any] = {}
    for name, values in settings_file.read(path).items():
        if name not in sections and name not in jobs and name not in ("source", "spark"):
            raise SettingError(f"{path}: there is no setting {name!r}")
        if not isinstance(values, Mapping):
            raise SettingError(f"{path}: {name} is {values!r}, but must be a table, e.g. [{name}]")
        if name not in sections:
            continue
        for key, value in values.items():
            action = sections[name].get(key)  # type: ignore[assignment]
            if action is None:
                raise SettingError(f"{path}: [{name}] has no setting {key!r}")
            try:
                chosen[action.dest] = _value(action, key, value)
            except (SettingError, OptionRefused) as error:
                raise SettingError(f"{path}: {error}") from error
    return chosen


def _value(action: argparse.Action, name: str, value: Any) -> Any:
    """Return one value of the file as the command line would have given it."""
    if action.nargs == 0:
        return option_values.flag(name, value)
    if not isinstance(action, argparse._AppendAction):
        return _one(action, name, value)
    if name == "conf" and isinstance(value, Mapping):
        return [_one(action, name, f"{key}={_spelled(each)}") for key, each in value.items()]
    return [_one(action, name, each) for each in (value if isinstance(value, list) else [value])]


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _one(action: argparse.Action, name: str, value: Any) -> Any:
    read = getattr(action, "read", None) or option_values.text
    found = read(name, value)
    if action.choices is not None and found not in action.choices:
        known = [str(each) for each in action.choices]
        raise SettingError(f"{name} is {found!r}, but must be {', '.join(known[:-1])} or {known[-1]}")
    return found
