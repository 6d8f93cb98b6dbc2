"""``fleximq schedules``: publications that wait for their time, and recurring ones."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fleximq.cli.client_commands.broker_options import Address, seconds
from fleximq.cli.client_commands.client_command import clientCommand, readingAnswers
from fleximq.cli.client_commands.texts import INPUT, STRICT, argumentValue, checkTopics
from fleximq.cli.client_commands.work import moment
from fleximq.cli.command import argument, group, switch
from fleximq.cli.output import console, jsonOption, outJson, say, table, tell
from fleximq.errors import SettingError

_NAME = argument("schedule", "ID", "the id of a single one, or the name of a recurring one")
_RECURRING = argument("schedule", "NAME", "the name of a recurring one")


def _times(parser: ArgumentParser) -> None:
    times = parser.add_mutually_exclusive_group(required=True)
    times.add_argument("--delay", metavar="SECONDS", type=seconds, help="once, after this time")
    times.add_argument("--at", metavar="TIME", type=moment, help="once, at this time, e.g. 2030-01-31T07:00")
    times.add_argument("--every", metavar="SECONDS", type=seconds, help="again and again")
    times.add_argument("--cron", metavar="EXPRESSION", help="again and again, e.g. '0 7 * * mon-fri'")


@clientCommand("ls", jsonOption())
def _list(arguments: Namespace, address: Address) -> None:
    """List the recurring schedules, and the single ones by their time."""
    with readingAnswers(), address.connect() as client:
        rows = client.schedules(address.timeout)
        if arguments.json:
            for row in rows:
                outJson(row)
            return
        cells = [
            (str(row.get("name", row.get("id"))), row["topic"], _time(row), _interval(row), _messageId(row))
            for row in rows
        ]
    console().print(table(("schedule", "topic", "next", "repeats", "message"), cells, expand=False))


def _messageId(row: Mapping[str, Any]) -> str:
    return row.get("message_id") or row.get("correlation_id") or ""


def _time(row: Mapping[str, Any]) -> str:
    due = row.get("due", row.get("next"))
    if due is None:
        return "paused" if row.get("paused") else "never"
    return f"{datetime.fromtimestamp(due / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _interval(row: Mapping[str, Any]) -> str:
    if row.get("cron"):
        return f"{row['cron']} {row['timezone']}"
    return f"every {row['every'] / 1000:g} s" if row.get("every") else ""


@clientCommand(
    "add", argument("topic", "TOPIC"), argument("value", "VALUE", "the value to publish"), INPUT, _times, STRICT,
    argument("--name", "NAME", "the name of a recurring one, which replaces that of this name"),
    argument("--timezone", "ZONE", "of the expression, e.g. Europe/Rome [UTC]"),
    argument("--catch-up", None, "which are made up for after the broker was down [none]",
             choices=("none", "last", "all"), default="none"),
    switch("--queue", "publish into the queue of the topic, which is made if there is none"), jsonOption(),
)  # fmt: skip
def _add(arguments: Namespace, address: Address) -> None:
    """Have the broker publish a value later, or again and again."""
    checkTopics([arguments.topic], arguments.strict, publishes=True)
    topic, value = arguments.topic, argumentValue(arguments.as_, arguments.value)
    isRecurring = arguments.every is not None or arguments.cron is not None
    if isRecurring != (arguments.name is not None):
        wants = "a recurring schedule needs" if isRecurring else "a single schedule takes no"
        raise SettingError(f"{wants} --name")
    with address.connect() as client:
        if not isRecurring:
            found = client.schedule(topic, value, delay=arguments.delay, at=arguments.at, queue=arguments.queue)
            tell(arguments, f"schedule {found} publishes to {topic}", id=found, topic=topic)
            return
        client.repeat(
            arguments.name, topic, value, every=arguments.every, cron=arguments.cron, timezone=arguments.timezone,
            catch_up=arguments.catch_up, queue=arguments.queue,
        )  # fmt: skip
        tell(arguments, f"schedule {arguments.name} publishes to {topic}", name=arguments.name, topic=topic)


@clientCommand("rm", _NAME)
def _remove(arguments: Namespace, address: Address) -> int:
    """Remove a schedule."""
    with address.connect() as client:
        word = arguments.schedule
        isId = word.isascii() and word.isdecimal()
        found = client.cancel_schedule(int(word) if isId else word) or (isId and client.cancel_schedule(word))
    return _found(found, arguments)


def _paused(name: str, paused: bool, words: str) -> Any:
    def work(arguments: Namespace, address: Address) -> int:
        with address.connect() as client:
            return _found(client.pause_schedule(arguments.schedule, paused), arguments)

    work.__doc__ = words
    return clientCommand(name, _RECURRING)(work)


def _found(found: bool, arguments: Namespace) -> int:
    if not found:
        say(f"fleximq: there is no schedule {arguments.schedule}")
    return 0 if found else 1


SCHEDULES = group(
    "schedules", "List, add, remove and pause schedules.", _list, _add, _remove,
    _paused("pause", True, "Publish nothing for a recurring schedule until it is resumed."),
    _paused("resume", False, "Resume a recurring schedule."),
)  # fmt: skip
