"""``expire``: what a lake need not keep any longer leaves its tables, a day of a topic at a time.

Spark is not needed for it. What has gone stays counted, so that a reader can still prove that nothing else is missing.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.command.job import Job, JobContext, addTables, duration, option
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.lake.table.file_names import tablesOf
from fleximq.values.patterns import anyOf

if TYPE_CHECKING:
    from fleximq.pipeline.lake.expiration import Rule


class Keep(NamedTuple):
    """For how many seconds the topics that match a pattern are kept; None: all topics that no other one matches."""

    pattern: str | None
    seconds: float


def keep(name: str, value: object) -> Keep:
    """Read ``90d`` or ``PATTERN=90d``."""
    text = option_values.text(name, value)
    pattern, separator, age = text.rpartition("=")
    try:
        seconds = duration(name, age) / 1_000_000
    except SettingError:
        seconds = 0.0
    if not seconds or (separator and not pattern):
        raise SettingError(f"{name} is {value!r}, but must be an age such as 90d, or PATTERN=AGE such as news.*=30d")
    return Keep(pattern or None, seconds)


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)
    option(
        parser,
        "--keep",
        read=keep,
        metavar="[PATTERN=]AGE",
        action="append",
        help="keep the topics that match for so long, or all others: 90d, news.*=30d; may be repeated, the first "
        "pattern that matches counts",
    )


def _run(chosen: Namespace, run: JobContext) -> None:
    """Let the tables lose what is older.

    :raises PipelineError: a table cannot be written.
    """
    # What needs pyarrow is not needed for --help.
    from fleximq.pipeline.lake.expiration import agedOut

    if not chosen.keep:
        raise OptionRefused("--keep AGE is needed: it says what stays, such as 90d")
    rules = [(each.pattern, each.seconds) for each in chosen.keep]
    tables = tablesOf(chosen.lake, chosen.table)
    _sayUnmatched(rules, tables, run)
    for table in tables:
        gone = agedOut(table, rules, time.time())
        rows = sum(sum(each.rows.values()) for each in gone)
        run.say(f"{table}: {rows} rows in {len(gone)} partitions have expired")
        if run.stopping.is_set():
            break


def _sayUnmatched(rules: "Sequence[Rule]", tables: Sequence[str], run: JobContext) -> None:
    """Say which patterns match no topic of the tables: they may be written wrong, and no topic be kept for so long."""
    from fleximq.pipeline.lake.expiration import topicsOf

    patterns = {pattern for pattern, _ in rules if pattern is not None}
    if not patterns:
        return
    topics = {topic for table in tables for topic in topicsOf(table)}
    for pattern in [each for each, _ in rules if each in patterns]:
        if not any(map(anyOf([pattern]), topics)):
            run.say(f"--keep {pattern}=... matches no topic of {', '.join(tables)}")


EXPIRE = Job("expire", "Remove old days from lake tables.", _prepare, _run)
