"""Celery's ``beat_schedule`` as recurring schedules of the broker, in place of ``celery beat``.

The broker publishes the tasks at their times, also while no program of the application runs. ``celery -A APP
fleximq-schedules`` defines them, once after each change of the settings.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

try:
    import click
    from celery import Celery
    from celery.beat import BeatLazyFunc
    from celery.schedules import crontab, schedule
except ImportError as error:
    raise ImportError('schedules of Celery need Celery: pip install "fleximq[celery]"') from error

from fleximq.client.wrapper import completed
from fleximq.integrations.kombu.channel import REPEAT, Channel

#: The shortest interval in seconds.
_LEAST = 1
#: The parts of a crontab in the order of a cron expression.
_PARTS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def define_schedules(app: Celery) -> list[str]:
    """Define the recurring schedules of an application in the broker, in place of those that it had, and return their
    names.

    :raises ValueError: an entry has a schedule or an argument that the broker cannot have, or the broker is not
        FlexiMQ; nothing is changed then.
    :raises kombu.exceptions.ChannelError: the broker refuses one, in its words; those before it are defined.
    """
    app.loader.import_default_modules()
    app.finalize(auto=True)
    prefix = f"celery/{quote(app.main or 'celery', safe='')}/"
    entries = {prefix + name: (fields, _timesOf(name, fields)) for name, fields in app.conf.beat_schedule.items()}
    with app.connection_for_write() as connection:
        if not isinstance(connection.default_channel, Channel):
            raise ValueError(f"the broker of {app.main} is {connection.as_uri()}, not FlexiMQ")
        producer = app.amqp.Producer(connection)
        for name, (fields, times) in entries.items():
            times |= {"name": name, "timezone": str(app.timezone)} if "cron" in times else {"name": name}
            _define(app, producer, fields, times)
        client = connection.default_channel.connection.inner
        for row in completed(client.schedules(prefix=prefix)):
            if row["name"] not in entries:
                completed(client.cancel_schedule(row["name"]))
    return sorted(entries)


def _define(app: Celery, producer: Any, fields: Mapping[str, Any], times: Mapping[str, Any]) -> None:
    options = dict(fields.get("options") or {})
    options["headers"] = {**(options.get("headers") or {}), REPEAT: times}
    arguments = fields.get("args") or (), fields.get("kwargs") or {}
    app.send_task(fields["task"], *arguments, producer=producer, **options)


def _timesOf(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's times as arguments of ``/schedule/repeat``."""
    if any(
        isinstance(each, BeatLazyFunc) for each in (*(fields.get("args") or ()), *(fields.get("kwargs") or {}).values())
    ):
        raise ValueError(f"the entry {name!r} has an argument that only celery beat can evaluate at each time")
    times = fields["schedule"]
    if isinstance(times, crontab):
        minute, hour, day, month, weekday = (_word(getattr(times, f"_orig_{each}")) for each in _PARTS)
        if day != "*" and weekday != "*":
            raise ValueError(f"the entry {name!r} restricts the day of the month and that of the week: choose one")
        return {"cron": f"{minute} {hour} {day} {month} {weekday}"}
    if type(times) is schedule:  # others decide by code of their own
        times = times.run_every
    if isinstance(times, timedelta):
        times = times.total_seconds()
    if isinstance(times, bool) or not isinstance(times, int | float):
        raise ValueError(f"the entry {name!r} has {times!r}, but the broker knows seconds, timedelta and crontab")
    if times < _LEAST:
        raise ValueError(f"the entry {name!r} is due every {times:g} seconds, but {_LEAST} second is the least")
    return {"every": round(times * 1000)}


def _word(part: object) -> str:
    """Return a part of a crontab, which may be a number, an expression or several numbers."""
    if isinstance(part, str) or not isinstance(part, Iterable):
        return str(part)
    return ",".join(str(each) for each in part)


@click.command("fleximq-schedules")
@click.pass_context
def command(context: click.Context) -> None:
    """Define the entries of beat_schedule as recurring schedules of the broker."""
    for name in define_schedules(context.obj.app):
        click.echo(name)
