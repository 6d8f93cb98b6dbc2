"""``expire``: removes the days of topics that are past their retention from lake tables. Runs without Spark.

Removed rows stay counted, so that a reader can still prove that no other row is missing.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleximq.config import option_values
from fleximq.errors import SettingError
from fleximq.pipeline.command.job import Job, addTables, duration, option
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.lake.table.file_names import tablesOf
from fleximq.values.patterns import anyOf

if TYPE_CHECKING:
    from fleximq.pipeline.lake.expiration import Rule


class Keep(NamedTuple):
    """The retention in seconds for topics that match a pattern; None: for all topics without a matching one."""

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
        raise SettingError(f"{name} is {value!r}, but must be an age, e.g. 90d, or PATTERN=AGE, e.g. news.*=30d")
    return Keep(pattern or None, seconds)


def _prepare(parser: ArgumentParser) -> None:
    addTables(parser)
    words = (
        "keep the topics that match for so long, or all others: 90d, news.*=30d; may be repeated, the first pattern "
        "that matches counts"
    )
    option(parser, "--keep", "[PATTERN=]AGE", words, keep, action="append")


def _run(arguments: Namespace, run: JobRun) -> None:
    """Remove old days from the tables; raises PipelineError if a table cannot be written."""
    # Imports of pyarrow are not needed for --help.
    from fleximq.pipeline.lake.expiration import expireDays

    if not arguments.keep:
        raise OptionRefused("--keep AGE is needed: the retention, e.g. 90d")
    rules = [(each.pattern, each.seconds) for each in arguments.keep]
    tables = tablesOf(arguments.lake, arguments.table)
    _sayUnmatched(rules, tables, run)
    for table in tables:
        gone = expireDays(table, rules, time.time())
        rows = sum(sum(each.rows.values()) for each in gone)
        run.writeLine(f"{table}: {rows} rows in {len(gone)} partitions have expired")
        if run.stopping.is_set():
            break


def _sayUnmatched(rules: "Sequence[Rule]", tables: Sequence[str], run: JobRun) -> None:
    """Report patterns that match no topic of the tables: they may be misspelled, so that the rule has no effect."""
    from fleximq.pipeline.lake.expiration import topicsOf

    patterns = {pattern for pattern, _ in rules if pattern is not None}
    if not patterns:
        return
    topics = {topic for table in tables for topic in topicsOf(table)}
    for pattern in [each for each, _ in rules if each in patterns]:
        if not any(map(anyOf([pattern]), topics)):
            run.writeLine(f"--keep {pattern}=... matches no topic of {', '.join(tables)}")


EXPIRE = Job(_prepare, _run)
