"""The keys of FlexiMQ headers that concern queues and schedules, checked and read.

They are this broker's own (docs/reference/dialects.rst, "Queues"), with the texts that every PUB may have. Only headers
that have one of :data:`PUB_KEYS` or :data:`TEXT_KEYS` or, in a SUB or UNSUB, ``queue`` come here, so that all others
pay nothing. Times of messages are milliseconds.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fleximq.errors import BadRequest
from fleximq.limits import MOST_MILLISECONDS

#: The keys of a PUB that are checked here.
PUB_KEYS = frozenset({"queue", "priority", "expires_in", "deliver_in", "deliver_at", "delivery"})
#: Optional keys of every PUB that are this broker's own, and their types.
TEXT_KEYS: dict[str, tuple[type, ...]] = {
    "message_id": (str,),
    "correlation_id": (str,),
    "reply_to": (str,),
    "key": (str, bytes),
}
#: The highest priority.
MOST_PRIORITY = 9
#: Maximum of ``deliver_at``, where JavaScript's numbers end; the broker has a nearer limit.
_MOST_TIME = (1 << 53) - 1
#: Maximum number of unsettled deliveries of one consumer.
MOST_PREFETCH = 65_535
_DUE = frozenset({"deliver_in", "deliver_at"})


class QueueKeys(NamedTuple):
    """The keys of one header.

    ``queue`` is the name of the queue, None without one; for a PUB that of its topic. ``prefetch`` is a consumer's.
    ``delay`` and ``due`` are ``deliver_in`` and ``deliver_at`` of a PUB; at most one of them is not None.
    """

    queue: str | None = None
    prefetch: int = 1
    delay: int | None = None
    due: int | None = None

    @property
    def isScheduled(self) -> bool:
        """Whether the message waits for its time before it is published."""
        return self.delay is not None or self.due is not None

    def dueAt(self, now: int) -> int:
        """Return the time of a scheduled message; both are milliseconds since 1970."""
        return now + (self.delay or 0) if self.due is None else self.due


def checkTexts(fields: Mapping[Any, Any]) -> None:
    """Check the types of :data:`TEXT_KEYS`; raises BadRequest."""
    for name, types in TEXT_KEYS.items():
        if name in fields and not isinstance(fields[name], types):
            raise BadRequest(f"{name!r} must be a string" + (" or bytes" if bytes in types else ""))


def publicationKeys(fields: Mapping[Any, Any]) -> QueueKeys:
    """Return the keys of a PUB; raises BadRequest, also for a ``delivery``, by which a subscriber that consumes too
    would take the message for one of its deliveries.
    """
    if "delivery" in fields:
        raise BadRequest("'delivery' is set by the broker alone")
    isWork = fields.get("queue", False)
    if not isinstance(isWork, bool):
        raise BadRequest("'queue' of a PUB must be true or false")
    _number(fields, "priority", 0, MOST_PRIORITY)
    _number(fields, "expires_in", 1, MOST_MILLISECONDS)
    delay, due = _number(fields, "deliver_in", 0, MOST_MILLISECONDS), _number(fields, "deliver_at", 0, _MOST_TIME)
    if fields.keys() >= _DUE:
        raise BadRequest("a PUB has either 'deliver_in' or 'deliver_at'")
    if "routing" in fields and (isWork or delay is not None or due is not None):
        raise BadRequest("a PUB with 'queue', 'deliver_in' or 'deliver_at' must not have 'routing'")
    return QueueKeys(fields["topic"] if isWork else None, delay=delay, due=due)


def subscriptionKeys(fields: Mapping[Any, Any]) -> QueueKeys | None:
    """Return the keys of a SUB or UNSUB of a consumer, None if its ``queue`` is false; raises BadRequest."""
    queue = fields["queue"]
    if queue is False:
        return None
    if queue is not True and not isinstance(queue, str):
        raise BadRequest("'queue' must be true, false or the name of a queue")
    if "from" in fields:
        raise BadRequest("a consumer of a queue must not have 'from'")
    prefetch = _number(fields, "prefetch", 0, MOST_PREFETCH)
    return QueueKeys(fields["topic"] if queue is True else queue, 1 if prefetch is None else prefetch)


def _number(fields: Mapping[Any, Any], name: str, least: int, most: int) -> int | None:
    """Return a whole number within these limits, None if the key is absent."""
    if name not in fields:
        return None
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name!r} must be a whole number from {least} to {most}")
    return value
