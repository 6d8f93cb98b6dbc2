"""The operations of a FlexiMQ client on schedules, and the reading of answers that those on queues share."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from fleximq.client.errors import ClientError
from fleximq.client.protocol.operations import Deliveries, Notifications, Operations
from fleximq.client.protocol.publications import headerFields
from fleximq.client.settings import TIMEOUT
from fleximq.client.times import Duration, milliseconds, moment
from fleximq.client.topic_warnings import literalDoubt, literalTopic, warnOf
from fleximq.values.occurrences import LEAST_EVERY

T = TypeVar("T")
#: Rows of one answer, and limit of the answers of one listing.
_PAGE, _MAX_PAGES = 1000, 10_000


class ScheduleOperations(Operations[Deliveries, Notifications]):
    """The operations of one client, with those on schedules."""

    @literalTopic
    async def schedule(
        self,
        topic: str,
        value: object,
        /,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        queue: bool = False,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Have the broker publish a value later, to all subscribers at that time; return the id of the schedule.

        The broker has stored it then, on disk if the topic is durable. :meth:`enqueue` with a delay does not wait.

        :param value: of a type that MessagePack can encode, whatever the ``codec``.
        :param delay: seconds, or ``at``: a time with a zone; ValueError without both.
        :param queue: publish it into the queue of the topic, which is made if there is none.
        :param headers: fields of its header, e.g. ``priority`` or ``key``.
        :raises RequestFailed: a value is wrong, something is not permitted, or there are too many schedules.
        """
        if (delay is None) == (at is None):
            raise ValueError("a schedule needs either a delay or a time")
        asked: dict[str, Any] = {"topic": topic, "payload": value, **_header(queue, headers)}
        if at is not None:
            asked["deliver_at"] = moment("at", at)
        elif delay is not None:
            asked["deliver_in"] = milliseconds("delay", delay)
        return valueOf(await self.ask("/schedule/add", asked, timeout), "id", int)

    async def repeat(
        self,
        name: str,
        topic: str,
        value: object = None,
        /,
        *,
        every: Duration | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        catch_up: Literal["none", "last", "all"] = "none",
        queue: bool = False,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = TIMEOUT,
    ) -> None:
        """Define a recurring schedule: the broker publishes a value again and again. The same name replaces it.

        :param every: seconds between two publications, or ``cron``: an expression such as ``"0 7 * * mon-fri"``.
        :param timezone: of the expression, e.g. "Europe/Rome"; UTC without it.
        :param catch_up: which publications are made up for after the broker was down.
        :param value: and ``queue``, ``headers``: as for :meth:`schedule`.
        :raises ValueError: both or neither of ``every`` and ``cron``, or an interval of less than a second.
        :raises RequestFailed: a value is wrong, or something is not permitted.
        """
        warnOf(literalDoubt(topic))
        if (every is None) == (cron is None):
            raise ValueError("a recurring schedule needs either every or cron")
        interval = None if every is None else milliseconds("every", every)
        if interval is not None and interval < LEAST_EVERY:
            raise ValueError(f"every is {every}, but must be at least {LEAST_EVERY // 1000} second")
        times = {"every": interval, "cron": cron, "timezone": timezone}
        asked: dict[str, Any] = {"name": name, "topic": topic, "payload": value, "catch_up": catch_up}
        asked |= _header(queue, headers) | {key: each for key, each in times.items() if each is not None}
        await self.ask("/schedule/repeat", asked, timeout)

    async def schedules(
        self, timeout: float | None = TIMEOUT, *, topic: str | None = None, prefix: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the schedules that this client may see: recurring ones, with a ``name``, then single ones by their
        ``due`` time, with an ``id``. Times are milliseconds since 1970. Errors as :meth:`ask`.

        :param topic: only those of this topic.
        :param prefix: only recurring ones whose names begin with it.
        """
        chosen = {key: each for key, each in (("topic", topic), ("prefix", prefix)) if each is not None}
        return await self._pages("/schedule/list", ("repeats", "schedules"), timeout, **chosen)

    async def cancel_schedule(self, schedule: int | str, timeout: float | None = TIMEOUT) -> bool:
        """Remove a schedule, and return whether it waited.

        :param schedule: the id of a single one, or the name of a recurring one, as :meth:`schedules` has them.
        :raises RequestFailed: and others, as :meth:`ask`.
        """
        asked = {"id" if isinstance(schedule, int) else "name": schedule}
        return valueOf(await self.ask("/schedule/cancel", asked, timeout), "cancelled", bool)

    async def pause_schedule(self, name: str, paused: bool = True, timeout: float | None = TIMEOUT) -> bool:
        """Pause a recurring schedule, or resume it; return whether there is one of this name. Errors as :meth:`ask`."""
        asked = {"name": name, "paused": paused}
        return valueOf(await self.ask("/schedule/pause", asked, timeout), "found", bool)

    async def _pages(
        self, path: str, keys: Sequence[str], timeout: float | None, **arguments: Any
    ) -> list[dict[str, Any]]:
        """Return all rows of a listing; an answer may have rows under several keys."""
        asked: dict[str, Any] = {"limit": _PAGE, **arguments}
        rows: list[dict[str, Any]] = []
        for _ in range(_MAX_PAGES):
            answer = await self.ask(path, asked, timeout)
            for key in keys:
                rows += valueOf(answer, key, list)
            after = answer.get("next")
            if after is None or after == asked.get("after"):
                return rows
            asked["after"] = after
        raise ClientError(f"the listing of {path} does not end")


def valueOf(answer: Any, key: str, kind: type[T]) -> T:
    """Return an answer's value of a key; raises ClientError if it is of another kind."""
    found = answer.get(key) if isinstance(answer, Mapping) else None
    if not isinstance(found, kind):
        raise ClientError(f"the broker answered {str(answer)[:100]}; is it FlexiMQ of this version?")
    return found


def _header(queue: bool, headers: Mapping[str, Any] | None) -> dict[str, Any]:
    header = headerFields(headers, queue=queue or None)
    return {"header": header} if header else {}
