"""Messages of a queue that are put into another one, by a consumer of the first; each is acknowledged afterwards."""

from collections.abc import Iterable
from typing import Any

from fleximq.cli.client_commands.client_command import Row
from fleximq.cli.output import say
from fleximq.client.blocking import Client, Jobs
from fleximq.client.jobs import Job
from fleximq.client.payloads import Packed
from fleximq.errors import SettingError
from fleximq.values.header_pairs import SENDER

_TOGETHER = 100  #: Messages that are moved together.
#: Fields of a header that are not those of its publisher, or no more true. A repeated id would be dropped.
_LEFT_OUT = frozenset({"topic", "queue", "delivery", "death", "schedule", "routing", "message_id", SENDER})


def move(client: Client, asked: Row, timeout: float) -> Row:
    """Move at most ``limit`` messages of ``queue`` to the queue ``to``, all that wait without it; return their number.

    If it ends in between, messages may be in both queues, and none is lost.
    """
    source, to = asked["queue"], asked.get("to")
    if to is None or to == source:
        raise SettingError("queues move needs --to with another queue")
    waiting = sum(each["messages"] for each in client.queues(timeout) if each["queue"] == source)
    left = min(waiting, asked.get("limit", waiting))
    moved = 0
    with client.consume(source, _TOGETHER, timeout) as jobs:
        while left > moved and (some := _some(jobs, min(_TOGETHER, left - moved))):
            _put(client, to, some, timeout)
            moved += len(some)
            say(f"moved {moved} of {left}") if left > _TOGETHER else None
        client.flush(timeout)
    return {"queue": source, "to": to, "moved": moved}


def _some(jobs: Jobs, most: int) -> list[Job]:
    first = jobs.take(1.0)  # others may have taken the rest
    found = [] if first is None else [first]
    while found and len(found) < most and (job := jobs.take(0)) is not None:
        found.append(job)
    return found


def _put(client: Client, to: str, jobs: Iterable[Job], timeout: float) -> None:
    for job in jobs:
        headers = {name: value for name, value in job.header.items() if name not in _LEFT_OUT}
        client.enqueue(to, Packed(job.payload), headers=headers)
    client.flush(timeout)
    for job in jobs:
        job.ack()


def definition(words: Iterable[str]) -> dict[str, Any]:
    """Return the keys of a definition from KEY=VALUE each; a key of ``retry`` is retry.KEY. Raises SettingError."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f"{word!r} is not KEY=VALUE, such as max_attempts=5")
        outer, _, inner = key.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = _value(value)
        elif key == "sources":
            found[key] = value.split(",")
        else:
            found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    for known, value in (("true", True), ("false", False)):
        if text == known:
            return value
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
