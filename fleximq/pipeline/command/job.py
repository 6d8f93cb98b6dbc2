"""The interface of a job of ``fleximq-pipeline`` and of its run, and the options that jobs share.

A job is one file of :mod:`fleximq.pipeline.jobs`. It imports PySpark inside ``run`` only, so that ``--help`` is quick
and works where Spark is not installed. Since Spark takes seconds to start, sources are checked before.

Durations are written ``500ms``, ``10s``, ``5m``, ``1h``, ``7d``.
"""

import json
import os
import re
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.errors import OptionRefused, PipelineError


def checkSource(options: Mapping[str, str]) -> None:
    """Check the source's options and its folders, without connecting to a broker.

    :raises OptionRefused: an option has an invalid value, or a named folder has no journal.
    :raises JournalError: a named folder is no journal.
    :raises PipelineError: Spark is not installed.
    """
    try:
        from fleximq.pipeline.reader.journals import Journals
        from fleximq.pipeline.reader.source_options import SourceOptions
    except ImportError as error:
        raise PipelineError(
            f"Spark is not installed ({error.msg}): pip install 'fleximq[spark]' installs it"
        ) from error
    arguments = SourceOptions.of(options)
    if not arguments.brokers:
        Journals(arguments).find()


def checkLake(lake: str) -> None:
    """Check that the folder of a lake exists; raises OptionRefused if it cannot be read."""
    try:
        os.listdir(lake)
    except OSError as error:
        raise OptionRefused(f"the lake {lake} cannot be read: {(error.strerror or str(error)).lower()}") from error


_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_WRITTEN = re.compile(r"(\d{1,9})(ms|s|m|h|d)")


def duration(name: str, value: object) -> int:
    """Parse a duration to microseconds: a number of seconds, or text with a unit; raises SettingError if it is no
    duration, or zero.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
        return value * 1_000_000
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise SettingError(f"{name} is {value!r}, but must be a duration, e.g. 500ms, 10s, 5m, 1h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def interval(microseconds: int) -> str:
    """Return a duration in Spark's format."""
    return f"{microseconds} microseconds"


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The table of the settings file for the options of :func:`addSource`.
SOURCE = "source"
#: Options that exclude each other: one on the command line overrides the other in the file.
INSTEAD = (("journal", "url"), ("subscribe", "topics"))
#: Schemes of URLs that :mod:`fleximq.client` accepts.
_SCHEMES = ("tcp", "tls", "ipc")


class JobContext(Protocol):
    """The context of one run of a job.

    ``out`` is for the result. ``stopping`` is set by SIGINT or SIGTERM: the job then ends in order, with 0.
    """

    out: TextIO
    stopping: Event

    def session(self) -> "SparkSession":
        """Return the session, made by the first call with the selected master and settings; it ends with the run.
        Raises PipelineError if Spark or a Java for it is missing.
        """

    def writeLine(self, text: str) -> None:
        """Write one line about the job's progress to standard error."""

    def progress(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Show the job's progress: on a terminal in one line that is overwritten, else in a line every ten seconds.

        :param total: None if unknown.
        """


class Job(NamedTuple):
    """One job of the command ``fleximq-pipeline``.

    ``words`` is its help text, ``prepare`` adds its options to a parser, and ``run`` does the work; a
    :class:`~fleximq.pipeline.errors.PipelineError` or a :class:`~fleximq.errors.SettingError` from it is printed as its
    sentence, with exit code 1. ``brief``: it ends by itself, usually soon.
    """

    name: str
    words: str
    prepare: Callable[[ArgumentParser], object]
    run: Callable[[Namespace, JobContext], object]
    brief: bool = False


def option(
    parser: Any, name: str, *, read: Callable[[str, Any], Any] | None = None, section: str | None = None, **more: Any
) -> Action:
    """Add an option that may be in the settings file as well, and return it.

    :param parser: or a group of one.
    :param read: a parser such as those of :mod:`fleximq.config.option_values`: takes the option's name, and its text or
        its value in the file. It is called for each element of a list in the file if the option may be repeated.
    :param section: the table of the settings file; that of the job if None.
    :param more: arguments of ``add_argument``.
    """
    if read is not None:
        more["type"] = _typed(name.lstrip("-"), read)
    action: Action = parser.add_argument(name, **more)
    action.read = read  # type: ignore[attr-defined]
    action.section = section  # type: ignore[attr-defined]
    return action


def _typed(name: str, read: Callable[[str, Any], Any]) -> Callable[[str], Any]:
    def typed(written: str) -> Any:
        try:
            return read(name, written)
        except (SettingError, OptionRefused) as error:
            # The parser has named the option already.
            raise ArgumentTypeError(str(error)) from error

    return typed


def place(name: str, value: object) -> str:
    """Parse the URL of a broker, or several separated by commas, for ``option``; raises SettingError if a client cannot
    use it.
    """
    written = option_values.text(name, value)
    for each in written.split(","):
        scheme, colon, rest = each.strip().partition("://")
        if scheme not in _SCHEMES or not rest:
            raise SettingError(f"{name} is {written!r}, but must be tcp://HOST:PORT, tls://HOST:PORT or ipc://PATH")
    return written


def positiveNumber(name: str, value: object) -> int:
    """Parse a whole number of at least 1, for ``option``; raises SettingError if it is none."""
    with suppress(SettingError):
        number = option_values.count(name, value)
        if number > 0:
            return number
    raise SettingError(f"{name} is {value!r}, but must be a whole number of at least 1")


def streamStart(name: str, value: object) -> str:
    """Parse the start of a new stream, for ``option``, as the source's ``startingOffsets``; raises SettingError if it
    is neither earliest, latest nor an offset.
    """
    from fleximq.pipeline.reader.offsets import EARLIEST, pointsOf

    written = str(value)
    try:
        pointsOf(name, written, EARLIEST)
    except OptionRefused:
        raise SettingError(f"{name} is {written!r}, but must be earliest, latest or an offset") from None
    return written


def addSource(parser: ArgumentParser) -> None:
    """Add the options of the source: journals or brokers, and topics."""
    group = parser.add_argument_group("source")

    def add(name: str, metavar: str, words: str, **more: Any) -> None:
        option(group, name, metavar=metavar, help=words, section=SOURCE, **{"read": option_values.text, **more})

    add("--journal", "FOLDER", "the folder of a journal, or a glob of several; may be repeated", action="append")
    add(
        "--url",
        "URL",
        "a broker to read from instead, e.g. tcp://localhost:7890; may be repeated",
        action="append",
        read=place,
    )
    add("--token", "TOKEN", "a token for the broker")
    add("--ca-file", "FILE", "the certificates of the broker's authority, as PEM")
    add("--cert-file", "FILE", "the client certificate, as PEM")
    add("--key-file", "FILE", "the key of the client certificate, as PEM")
    add("--subscribe", "TOPIC", "only this topic; may be repeated", action="append")
    add("--topics", "PATTERN", "only topics that match, e.g. news.*; may be repeated", action="append")


def sourceOptions(arguments: Namespace) -> dict[str, str]:
    """Return the arguments for the options of :func:`addSource`, as options of Spark's source ``fleximq``; raises
    OptionRefused if neither a journal nor a broker was named, or arguments exclude each other.
    """
    for one, other in INSTEAD:
        if getattr(arguments, one) and getattr(arguments, other):
            raise OptionRefused(f"--{one} and --{other} exclude each other")
    options = brokerOptions(arguments)
    if arguments.journal:
        options["path"] = arguments.journal[0] if len(arguments.journal) == 1 else json.dumps(arguments.journal)
    elif not arguments.url:
        raise OptionRefused("--journal FOLDER or --url URL is needed: the source to read")
    for name in ("subscribe", "topics"):
        if getattr(arguments, name):
            options[name] = ",".join(getattr(arguments, name))
    return options


def brokerOptions(arguments: Namespace) -> dict[str, str]:
    """Return the arguments for a broker's connection, as options of Spark's source and sink; empty without a broker."""
    options = {"url": ",".join(arguments.url)} if arguments.url else {}
    for name, written in (
        ("token", arguments.token),
        ("caFile", arguments.ca_file),
        ("certFile", arguments.cert_file),
        ("keyFile", arguments.key_file),
    ):
        if written is not None:
            options[name] = written
    return options


def addTables(parser: ArgumentParser) -> None:
    """Add the options that name a lake and its tables."""
    option(
        parser, "--lake", read=option_values.text, metavar="FOLDER", help="the folder in which each table has its own"
    )
    option(
        parser,
        "--table",
        read=option_values.text,
        metavar="NAME",
        action="append",
        help="only this table; may be repeated",
    )
