"""What a job of ``fleximq-pipeline`` consists of, what it is given while it runs, and the options that jobs share.

A job is one file of :mod:`fleximq.pipeline.jobs`. It imports PySpark inside ``run`` only, so that ``--help`` is quick
and works where Spark is not installed.

Times that pass, as they are written behind options of jobs: ``500ms``, ``10s``, ``5m``, ``1h``, ``7d``.

What a job can say of its source before Spark starts, which takes seconds: that it cannot be as it was written.
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
    """Return if the source can be read with these options, as far as a look at folders tells; no broker is asked.

    :raises OptionRefused: an option has a value that it cannot have, or there is no journal where one was named.
    :raises JournalError: a folder that is named is no journal.
    :raises PipelineError: Spark is not installed.
    """
    try:
        from fleximq.pipeline.reader.journals import Journals
        from fleximq.pipeline.reader.source_options import SourceOptions
    except ImportError as error:
        raise PipelineError(f"Spark is not installed ({error.msg}): pip install 'fleximq[spark]' brings it") from error
    chosen = SourceOptions.of(options)
    if not chosen.brokers:
        Journals(chosen).find()


def checkLake(lake: str) -> None:
    """Return if the folder of a lake is there.

    :raises OptionRefused: it cannot be read.
    """
    try:
        os.listdir(lake)
    except OSError as error:
        raise OptionRefused(f"the lake {lake} cannot be read: {(error.strerror or str(error)).lower()}") from error


_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_WRITTEN = re.compile(r"(\d{1,9})(ms|s|m|h|d)")


def duration(name: str, value: object) -> int:
    """Read a time in microseconds: a number of seconds, or text with a unit.

    :raises SettingError: it is none, or nothing.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
        return value * 1_000_000
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise SettingError(f"{name} is {value!r}, but must be a time such as 500ms, 10s, 5m, 1h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def interval(microseconds: int) -> str:
    """Return a time as Spark reads one."""
    return f"{microseconds} microseconds"


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The table of the settings file in which the options of :func:`addSource` stand.
SOURCE = "source"
#: What is read instead of each other: what the command line says of the one puts aside what the file says of the other.
INSTEAD = (("journal", "url"), ("subscribe", "topics"))
#: How URLs begin at which :mod:`fleximq.client` finds a broker.
_SCHEMES = ("tcp", "tls", "ipc")


class JobContext(Protocol):
    """One run of a job: all that it needs of what surrounds it.

    ``out`` takes the result. ``stopping`` is set when the job is to end in order, with 0: by SIGINT or SIGTERM.
    """

    out: TextIO
    stopping: Event

    def session(self) -> "SparkSession":
        """Return the session, made by the first call with the chosen master and settings; it ends with the run.

        :raises PipelineError: Spark or a Java for it is not there.
        """

    def say(self, text: str) -> None:
        """Write one line about the job's progress to standard error."""

    def progress(self, name: str, done: float, total: float | None, unit: str) -> None:
        """Say how far the job is: in one line that is written over on a terminal, else in a line every ten seconds.

        :param total: None where nobody knows it.
        """


class Job(NamedTuple):
    """One word behind ``fleximq-pipeline``.

    ``words`` says in one sentence what it does, ``prepare`` adds its options to a parser, and ``run`` does it; whatever
    it raises as a :class:`~fleximq.pipeline.errors.PipelineError`, or a :class:`~fleximq.errors.SettingError`, is said
    in its one sentence, and ends with 1. ``brief``: it ends by itself, usually soon.
    """

    name: str
    words: str
    prepare: Callable[[ArgumentParser], object]
    run: Callable[[Namespace, JobContext], object]
    brief: bool = False


def option(
    parser: Any, name: str, *, read: Callable[[str, Any], Any] | None = None, section: str | None = None, **more: Any
) -> Action:
    """Add an option that may stand in the settings file as well, and return it.

    :param parser: or a group of one.
    :param read: one of :mod:`fleximq.config.option_values`, or the like: takes the option's name, and what was written
    as text
        or stands in the file. A list in the file is given to it piece by piece where the option may be repeated.
    :param section: the table of the settings file; that of the job if None.
    :param more: what ``add_argument`` takes.
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
    """Read the URL of a broker, or several with commas between them, as ``option`` wants it.

    :raises SettingError: it is none that a client can speak to.
    """
    written = option_values.text(name, value)
    for each in written.split(","):
        scheme, colon, rest = each.strip().partition("://")
        if scheme not in _SCHEMES or not rest:
            raise SettingError(f"{name} is {written!r}, but must be tcp://HOST:PORT, tls://HOST:PORT or ipc://PATH")
    return written


def counted(name: str, value: object) -> int:
    """Read a whole number of at least 1, as ``option`` wants it.

    :raises SettingError: it is none.
    """
    with suppress(SettingError):
        number = option_values.count(name, value)
        if number > 0:
            return number
    raise SettingError(f"{name} is {value!r}, but must be a whole number of at least 1")


def starting(name: str, value: object) -> str:
    """Read where a stream begins the first time, as ``option`` wants it, for the source's ``startingOffsets``.

    :raises SettingError: it is nothing of that.
    """
    from fleximq.pipeline.reader.offsets import EARLIEST, pointsOf

    written = str(value)
    try:
        pointsOf(name, written, EARLIEST)
    except OptionRefused:
        raise SettingError(f"{name} is {written!r}, but must be earliest, latest or an offset") from None
    return written


def addSource(parser: ArgumentParser) -> None:
    """Add the options that say what is read: journals or brokers, and which topics."""
    group = parser.add_argument_group("what is read")

    def add(name: str, metavar: str, words: str, **more: Any) -> None:
        option(group, name, metavar=metavar, help=words, section=SOURCE, **{"read": option_values.text, **more})

    add("--journal", "FOLDER", "the folder of a journal, or a glob of several; may be repeated", action="append")
    add(
        "--url",
        "URL",
        "a broker that is asked instead, e.g. tcp://localhost:7890; may be repeated",
        action="append",
        read=place,
    )
    add("--token", "TOKEN", "what lets in at the broker")
    add("--ca-file", "FILE", "the certificates that the broker's is to be signed by, as PEM")
    add("--cert-file", "FILE", "the own certificate, as PEM")
    add("--key-file", "FILE", "the key of it, as PEM")
    add("--subscribe", "TOPIC", "only this topic; may be repeated", action="append")
    add("--topics", "PATTERN", "only topics that match, e.g. news.*; may be repeated", action="append")


def sourceOptions(chosen: Namespace) -> dict[str, str]:
    """Return what was chosen by the options of :func:`addSource`, as options of Spark's source ``fleximq``.

    :raises OptionRefused: neither a journal nor a broker was named, or what excludes each other.
    """
    for one, other in INSTEAD:
        if getattr(chosen, one) and getattr(chosen, other):
            raise OptionRefused(f"--{one} and --{other} exclude each other")
    options = brokerOptions(chosen)
    if chosen.journal:
        options["path"] = chosen.journal[0] if len(chosen.journal) == 1 else json.dumps(chosen.journal)
    elif not chosen.url:
        raise OptionRefused("--journal FOLDER or --url URL is needed: it says what is to be read")
    for name in ("subscribe", "topics"):
        if getattr(chosen, name):
            options[name] = ",".join(getattr(chosen, name))
    return options


def brokerOptions(chosen: Namespace) -> dict[str, str]:
    """Return how the chosen brokers are reached, as options of Spark's source and sink; none where none is chosen."""
    options = {"url": ",".join(chosen.url)} if chosen.url else {}
    for name, written in (
        ("token", chosen.token),
        ("caFile", chosen.ca_file),
        ("certFile", chosen.cert_file),
        ("keyFile", chosen.key_file),
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
