"""``fleximq-pipeline JOB [options]``: finds the job that a command line names, and runs it.

``python -m fleximq.pipeline`` is the same, and so is this file as what ``spark-submit`` runs. Only the job that is
named is imported, and Spark only by the job itself.
"""

import importlib
import os
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Sequence

from fleximq import __version__
from fleximq.config import option_values
from fleximq.config.argument_parser import Words
from fleximq.errors import JournalError, SettingError
from fleximq.pipeline.command.job import Job, option
from fleximq.pipeline.command.job_run import OneRun
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.failures import sentenceOf
from fleximq.pipeline.settings import choose

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
    parser = Words(prog=PROGRAM, description="Jobs on Spark over what the broker's journal keeps.")
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
        parser = Words(prog=f"{PROGRAM} {name}", description=job.words)
        job.prepare(parser)
        _addCommon(parser)
        chosen = choose(parser, name, tuple(JOBS), words)
        verbose = chosen.verbose
        with OneRun(chosen, job.brief) as run:
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
