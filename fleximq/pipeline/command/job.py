"""The interface of a job of ``fleximq-pipeline``, and the options that jobs share.

A job imports PySpark and Arrow inside ``run`` only, so that ``--help`` is quick and works without them. Sources are
checked before Spark starts. Durations are written ``500ms``, ``10s``, ``5m``, ``1h``, ``7d``.
"""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused
from fleximq.values.urls import urlsIn

#: The table of the settings file for the options of :func:`addSource`.
SOURCE = "source"
#: Options that exclude each other: one on the command line overrides the other in the file.
INSTEAD = (("journal", "url"), ("subscribe", "topics"))
#: The options of the source for the connection to a broker.
BROKER = ("url", "token", "caFile", "certFile", "keyFile", "brokerTimeout")
#: Schemes of URLs that :mod:`fleximq.client` accepts.
_SCHEMES = ("tcp", "tls", "ipc")
_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_WRITTEN = re.compile(r"(\d{1,9})(ms|s|m|h|d)")


class Job(NamedTuple):
    """``prepare`` adds options, ``run`` works and may raise PipelineError or SettingError. ``brief``: it ends soon."""

    prepare: Callable[[ArgumentParser], object]
    run: Callable[[Namespace, JobRun], object]
    brief: bool = False


def checkSource(options: Mapping[str, str]) -> None:
    """Check the source's options and folders, without a broker; raises OptionRefused, JournalError, ImportError."""
    from fleximq.pipeline.reader.journals import Journals
    from fleximq.pipeline.reader.source_options import SourceOptions

    arguments = SourceOptions.of(options)
    if not arguments.brokers:
        Journals(arguments).find()


def option(
    parser: Any,
    name: str,
    metavar: str | None = None,
    words: str | None = None,
    read: Callable[[str, Any], Any] | None = option_values.text,
    section: str | None = None,
    **more: Any,
) -> None:
    """Add an option with the help text ``words``, which may be in the settings file as well, to a parser or a group.

    :param read: takes the option's name, and its text or its value in the file, as :mod:`fleximq.config.option_values`
        do; called for each element of a list in the file if the option may be repeated.
    :param section: the table of the settings file; that of the job if None.
    """
    if read is not None:
        more |= {"type": partial(_typed, name.lstrip("-"), read), "metavar": metavar}
    action = parser.add_argument(name, help=words, **more)
    action.read, action.section = read, section


def flag(parser: Any, name: str, words: str, section: str | None = None) -> None:
    """Add an option without a value that may be in the settings file as well."""
    option(parser, name, None, words, None, section, action="store_true")


def _typed(name: str, read: Callable[[str, Any], Any], written: str) -> Any:
    try:
        return read(name, written)
    except (SettingError, OptionRefused) as error:
        # The parser has named the option already.
        raise ArgumentTypeError(str(error)) from error


def duration(name: str, value: object) -> int:
    """Parse a duration to microseconds: seconds as a number, or text with a unit; raises SettingError."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
        return value * 1_000_000
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if value == 0 or (found is not None and not int(found[1])):
        raise SettingError(f"{name} is {value!r}, but must be more than 0, e.g. 500ms or 10s")
    if found is None:
        raise SettingError(f"{name} is {value!r}, but must be a duration, e.g. 500ms, 10s, 5m, 1h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def interval(microseconds: int) -> str:
    """Return a duration in Spark's format."""
    return f"{microseconds} microseconds"


def place(name: str, value: object) -> str:
    """Parse the URL of a broker, or several separated by commas; raises SettingError if a client cannot use it."""
    written = option_values.text(name, value)
    for each in urlsIn(written):
        scheme, _, rest = each.partition("://")
        if scheme not in _SCHEMES or not rest:
            raise SettingError(f"{name} is {written!r}, but must be tcp://HOST:PORT, tls://HOST:PORT or ipc://PATH")
    return written


def namespace(name: str, value: object) -> str:
    """Parse the namespace of a catalog; raises SettingError for one with an empty part."""
    written = option_values.text(name, value)
    if not all(part.strip() and part.isprintable() for part in written.split(".")):
        raise SettingError(f"{name} is {written!r}, but must be a name, or several with single dots between them")
    return written


def lowered(name: str, value: object) -> str:
    """Parse a word regardless of its case."""
    return option_values.text(name, value).lower()


def positiveNumber(name: str, value: object) -> int:
    """Parse a whole number of at least 1; raises SettingError if it is none."""
    with suppress(SettingError):
        number = option_values.count(name, value)
        if number > 0:
            return number
    raise SettingError(f"{name} is {value!r}, but must be a whole number of at least 1")


def streamStart(name: str, value: object) -> str:
    """Parse the start of a new stream: earliest, latest or an offset; raises SettingError for others."""
    from fleximq.pipeline.reader.offsets import EARLIEST, pointsOf

    written = str(value)
    try:
        pointsOf(name, written, EARLIEST)
    except OptionRefused:
        raise SettingError(f"{name} is {written!r}, but must be earliest, latest or an offset") from None
    return written


def _seconds(name: str, value: object) -> str:
    return f"{option_values.seconds(name, value):g}"


def addSource(parser: ArgumentParser, mayLose: bool = False) -> None:
    """Add the options of the source: journals or brokers, topics, and whether to read on where records are missing."""
    group = parser.add_argument_group("source")
    add = partial(option, group, section=SOURCE)
    addJournal(group)
    words = "a broker to read from instead, e.g. tcp://localhost:7890; may be repeated"
    add("--url", "URL", words, place, action="append")
    add("--token", "TOKEN", "a token for the broker")
    add("--ca-file", "FILE", "the certificates of the broker's authority, as PEM")
    add("--cert-file", "FILE", "the client certificate, as PEM")
    add("--key-file", "FILE", "the key of the client certificate, as PEM")
    add("--broker-timeout", "SECONDS", "how long to wait for a broker that is away (30)", _seconds)
    add("--subscribe", "TOPIC", "only this topic; may be repeated", action="append")
    add("--topics", "PATTERN", "only topics that match, e.g. news.*; may be repeated", action="append")
    if mayLose:
        flag(parser, "--allow-data-loss", "continue after messages that are damaged or removed")


def addJournal(group: Any) -> None:
    """Add the option for the folders of journals."""
    words = "the folder of a journal, or a glob of several; may be repeated"
    option(group, "--journal", "FOLDER", words, section=SOURCE, action="append")


def addStream(group: Any, checkpoint: str, trigger: int) -> None:
    """Add the options of a query; they have a default folder for the checkpoint and interval in microseconds."""
    option(group, "--checkpoint", "FOLDER", f"the folder of Spark's checkpoint ({checkpoint})")
    words = f"how often it looks for messages ({trigger // 1_000_000}s)"
    option(group, "--trigger", "TIME", words, duration, default=trigger)
    flag(group, "--once", "end after the messages that exist now")


def addStart(group: Any) -> None:
    """Add the option for the start of a stream."""
    words = "the start of a new query: earliest, latest or an offset (earliest)"
    option(group, "--starting", "WHERE", words, streamStart, default="earliest")


def addLake(parser: Any, words: str = "the folder in which each table has its own") -> None:
    """Add the options that name a lake."""
    option(parser, "--lake", "FOLDER|URL", f"{words}, or a place in an object store, as s3://bucket/prefix")
    words = "only this process writes to the lake: its store cannot keep two apart"
    flag(parser, "--single-writer", words)


def addTables(parser: ArgumentParser) -> None:
    """Add the options that name a lake and its tables."""
    addLake(parser)
    option(parser, "--table", "NAME", "only this table; may be repeated", action="append")


def sourceOptions(arguments: Namespace) -> dict[str, str]:
    """Return the arguments of :func:`addSource` as options of the source ``fleximq``; raises OptionRefused."""
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
    if getattr(arguments, "allow_data_loss", False):
        options["failOnDataLoss"] = "false"
    return options


def sourceAlone(arguments: Namespace) -> dict[str, str]:
    """Return the same; credentials beside a folder are for another broker, and left out."""
    options = sourceOptions(arguments)
    return options if "url" in options else {name: value for name, value in options.items() if name not in BROKER}


def brokerOptions(arguments: Namespace) -> dict[str, str]:
    """Return the arguments for a broker's connection, as options of Spark's source and sink; empty without a broker."""
    names = ("token", "ca_file", "cert_file", "key_file", "broker_timeout")
    given = {option: getattr(arguments, name) for option, name in zip(BROKER[1:], names, strict=True)}
    options = {"url": ",".join(arguments.url)} if arguments.url else {}
    return options | {option: value for option, value in given.items() if value is not None}
