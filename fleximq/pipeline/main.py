"""``fleximq-pipeline JOB [options]``: finds the job of a command line, merges its settings, and runs it. Also for
``spark-submit``. Only the selected job is imported, and Spark only by the job itself. Settings come from the command
line, else the settings file, else the job's defaults. The TOML file has tables ``[source]``, ``[spark]`` and one for
each job, of which only the selected one is checked.
"""

import argparse
import importlib
import os
import sys
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fleximq import __version__
from fleximq.config import option_values
from fleximq.config.argument_parser import CommandParser
from fleximq.errors import JournalError, SettingError, systemReason
from fleximq.pipeline.command.job import INSTEAD, Job, flag, option
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused, PipelineError, sentenceOf
from fleximq.values.printable import printable


def mergeSettings(parser: ArgumentParser, job: str, jobs: Sequence[str], arguments: Sequence[str]) -> Namespace:
    """Return the merged settings of a job, one of ``jobs``, from a parser that has all of its options and ``--config``.
    Raises SettingError for a file that cannot be read or has an unknown setting, and SystemExit as the parser does.
    """
    byName = {action.dest: action for action in parser._actions if action.dest != argparse.SUPPRESS}
    otherwise = {name: action.default for name, action in byName.items() if action.default is not argparse.SUPPRESS}
    for action in byName.values():
        action.default = argparse.SUPPRESS
    given = vars(parser.parse_args(arguments))
    filed = _fileSettings(given["config"], job, jobs, byName) if given.get("config") else {}
    for pair in INSTEAD:
        if any(name in given for name in pair):
            for name in pair:
                filed.pop(name, None)
    return Namespace(**(otherwise | filed | given))


def _fileSettings(path: str, job: str, jobs: Sequence[str], options: Mapping[str, argparse.Action]) -> dict[str, Any]:
    """Return the settings of the file for the job, by the names of the options."""
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
    """Return one value of the file as the command line would have parsed it."""
    if action.nargs == 0:
        return option_values.flag(name, value)
    if not isinstance(action, argparse._AppendAction):
        return _one(action, name, value)
    if name == "conf" and isinstance(value, Mapping):
        value = [f"{key}={str(each).lower() if isinstance(each, bool) else each}" for key, each in value.items()]
    return [_one(action, name, each) for each in (value if isinstance(value, list) else [value])]


def _one(action: argparse.Action, name: str, value: Any) -> Any:
    found = (getattr(action, "read", None) or option_values.text)(name, value)
    if found == "":
        raise SettingError(f"{name} is empty, but must be {action.metavar}")
    if action.choices is not None and found not in action.choices:
        known = [str(each) for each in action.choices]
        raise SettingError(f"{name} is {found!r}, but must be {', '.join(known[:-1])} or {known[-1]}")
    return found


PROGRAM = "fleximq-pipeline"
#: The help text of each job, in the order of the help.
JOBS = {
    "sql": "Query topics in SQL, and print the result.",
    "describe": "Show journals, topics, the shape of their payloads, and the progress of readers.",
    "ingest": "Write topics to lake tables, once or continuously.",
    "stats": "Count the messages of each topic in windows of time.",
    "replay": "Publish the messages of a lake or a journal again.",
    "backfill": "Fill a lake table with messages from before its first batch.",
    "redecode": "Decode the payloads of lake tables again after their schema was mended.",
    "seal": "Write the finished segments of a journal to Parquet.",
    "compact": "Merge the small files of lake tables into large ones.",
    "expire": "Remove old days from lake tables.",
    "audit": "Prove that lake tables are complete.",
    "repair": "Complete what a lake table has recorded and its format has refused.",
    "catalog": "Show where the tables of a lake are, in which catalog, and what they have.",
    "rename": "Give the folders of lake tables names in ASCII.",
}


#: The jobs that share the module ``upkeep``; each other one is the module of its name.
_UPKEEP = ("backfill", "redecode", "compact", "expire", "audit", "repair", "rename")


def jobOf(name: str) -> Job:
    """Return a job of the table."""
    module = importlib.import_module(f"fleximq.pipeline.jobs.{'upkeep' if name in _UPKEEP else name}")
    found: Job = getattr(module, name.upper())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run these arguments, or those of the process, and return the exit code; raises SystemExit as a parser does."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = CommandParser(prog=PROGRAM, description="Jobs on Spark over the broker's journal.")
    parser.add_argument("--version", action="version", version=f"FlexiMQ {__version__}")
    jobs = parser.add_subparsers(metavar="JOB", required=True)
    for name, does in JOBS.items():
        jobs.add_parser(name, help=does, add_help=False)
    if not words or words[0] not in JOBS:
        parser.parse_args(words)
        # Not reached with a job after an option: no option leaves one to run.
        parser.error("name the job first")
    return _run(words[0], words[1:])


def _run(name: str, words: Sequence[str]) -> int:
    verbose = "--verbose" in words
    try:
        job = jobOf(name)
        parser = CommandParser(prog=f"{PROGRAM} {name}", description=JOBS[name])
        job.prepare(parser)
        _addCommon(parser)
        chosen = mergeSettings(parser, name, tuple(JOBS), words)
        verbose = chosen.verbose
        if getattr(chosen, "single_writer", False):
            from fleximq.pipeline.lake.storage.object_store import ObjectStore

            ObjectStore.isAlone = True
        with JobRun(chosen, job.brief) as run:
            try:
                job.run(chosen, run)
                run.out.flush()
                return 0
            except (KeyboardInterrupt, Exception) as error:
                if run.stopping.is_set():
                    return 0
                run.failed = True
                # The text of an error of Spark is available only while its Java runs.
                return _failed(error, verbose)
    except Exception as error:
        return _failed(error, verbose)


def _failed(error: BaseException, verbose: bool) -> int:
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the remaining output cannot be written at exit either
        return 0
    if verbose:
        traceback.print_exc()
    print(printable(f"{PROGRAM}: {_sentence(error)}", lines=True), file=sys.stderr)
    return error.exitCode if isinstance(error, PipelineError) else 1


def _sentence(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return f"Spark is not installed ({error.msg}): pip install '.[spark]' in a clone of FlexiMQ installs it"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{systemReason(error)}"
    sentence = str(error) if isinstance(error, (PipelineError, SettingError, JournalError)) else sentenceOf(error)
    # The sentence is about an option of the source; the command has its own option that sets it.
    return sentence.replace("the option failOnDataLoss=false", "--allow-data-loss")


def _addCommon(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("how it runs")
    group.add_argument("--config", metavar="FILE", help="a settings file; the command line overrides it")
    add = partial(option, group, section="spark")
    add("--master", "MASTER", "the master of Spark; local[*], this machine, by default")
    add("--conf", "NAME=VALUE", "a setting of Spark; may be repeated", _setting, action="append")
    words = "neither use nor make the archive of classes in ~/.cache/fleximq for a quicker start"
    flag(group, "--no-cache", words, "spark")
    flag(group, "--verbose", "show Spark's own log, and tracebacks of errors", "spark")


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
