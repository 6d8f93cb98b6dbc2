"""``fleximq-pipeline JOB [options]``: finds the job that a command line names, and runs it.

``python -m fleximq.pipeline`` is the same, and so is this file as what ``spark-submit`` runs. Only the job that is
named is imported, and Spark only by the job itself.

What was chosen for a job: by the command line, else by the settings file, else by what the job says itself.

The file is TOML. A table of the name of the job has the job's options, ``[source]`` what is read, ``[spark]`` how Spark
runs; each option is called as on the command line, without its hyphens in front. What the file says of other jobs is
only looked at when they run.
"""

import argparse
import importlib
import os
import sys
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from fleximq import __version__
from fleximq.config import option_values
from fleximq.config.argument_parser import CommandParser
from fleximq.errors import JournalError, SettingError
from fleximq.pipeline.command.job import INSTEAD, Job, option
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused, PipelineError, sentenceOf


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
    for name, values in option_values.read(path).items():
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


PROGRAM = "fleximq-pipeline"
#: What each job does, in the order in which the help shows them; each is the module of its name.
JOBS = {
    "sql": "Ask the topics a question in SQL, and print the answer.",
    "describe": "Show journals, topics, what their payloads look like, and how far readers are.",
    "ingest": "Keep topics as lake tables, once or for ever.",
    "stats": "Count what topics get in each window of time.",
    "replay": "Publish again what a lake or a journal has.",
    "seal": "Turn the finished segments of a journal into Parquet.",
    "compact": "Join the small files of lake tables into large ones.",
    "expire": "Remove old days from lake tables.",
}


def jobOf(name: str) -> Job:
    """Return a job of the table."""
    found: Job = getattr(importlib.import_module(f"fleximq.pipeline.jobs.{name}"), name.upper())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what these words say, those of the process if None, and return the exit code: 0 if all went well.

    :raises SystemExit: for words that cannot be understood (1), and after help or version were shown (0).
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = CommandParser(prog=PROGRAM, description="Jobs on Spark over what the broker's journal keeps.")
    parser.add_argument("--version", action="version", version=f"FlexiMQ {__version__}")
    jobs = parser.add_subparsers(metavar="JOB", required=True)
    for name, does in JOBS.items():
        jobs.add_parser(name, help=does, add_help=False)
    if not words or words[0] not in JOBS:
        parser.parse_args(words)
        # Not reached with a job behind an option: there are none that leave one to run.
        parser.error("name the job first")
    return _run(words[0], words[1:])


def _run(name: str, words: Sequence[str]) -> int:
    verbose = "--verbose" in words
    try:
        job = jobOf(name)
        parser = CommandParser(prog=f"{PROGRAM} {name}", description=job.words)
        job.prepare(parser)
        _addCommon(parser)
        chosen = choose(parser, name, tuple(JOBS), words)
        verbose = chosen.verbose
        with JobRun(chosen, job.brief) as run:
            try:
                job.run(chosen, run)
                run.out.flush()
                return 0
            except (KeyboardInterrupt, Exception) as error:
                if run.stopping.is_set():
                    return 0
                run.failed = True
                # The words of an error of Spark can only be had as long as its Java is there.
                return _failed(error, verbose)
    except Exception as error:
        return _failed(error, verbose)


def _failed(error: BaseException, verbose: bool) -> int:
    """Say what went wrong, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left has nowhere to go at the end either
        return 0
    if verbose:
        traceback.print_exc()
    print(f"{PROGRAM}: {_sentence(error)}", file=sys.stderr)
    return 1


def _sentence(error: BaseException) -> str:
    if isinstance(error, (PipelineError, SettingError, JournalError)):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        words = error.strerror or str(error)
        return f"{where}{words[:1].lower()}{words[1:]}"
    return sentenceOf(error)


def _addCommon(parser: ArgumentParser) -> None:
    """Add the options that every job has."""
    group = parser.add_argument_group("how it runs")
    group.add_argument("--config", metavar="FILE", help="a settings file; the command line comes before it")
    option(
        group,
        "--master",
        section="spark",
        read=option_values.text,
        metavar="MASTER",
        help="where Spark runs; local[*], this machine, if nothing is said",
    )
    option(
        group,
        "--conf",
        section="spark",
        read=_setting,
        action="append",
        metavar="NAME=VALUE",
        help="a setting of Spark; may be repeated",
    )
    option(
        group,
        "--no-cache",
        section="spark",
        action="store_true",
        help="neither use nor make the archive of classes in ~/.cache/fleximq that lets Spark start sooner",
    )
    option(
        group, "--verbose", section="spark", action="store_true", help="show Spark's own log, and where errors arose"
    )


def _setting(name: str, value: object) -> str:
    written = option_values.text(name, value)
    key, equals, _ = written.partition("=")
    if not equals or not key.startswith("spark."):
        raise OptionRefused(
            f"{name} is {written!r}, but must be NAME=VALUE with a name of Spark, e.g. spark.ui.port=4040"
        )
    return written


if __name__ == "__main__":
    sys.exit(main())
