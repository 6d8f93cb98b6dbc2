"""The definition of the frameworks' queues, unless an operator or another program has defined them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleximq.client.errors import RequestFailed
from fleximq.status import Status
from fleximq.values.queue_keys import MOST_PRIORITY

#: The keyword arguments of ``define_queue``. Deliveries in effect without limit: a restart of a worker is one for all
#: messages that it has prefetched, although it has not run them, and the frameworks limit the attempts of a task
#: themselves. A queue that is full refuses, so that no task is dropped silently.
DEFINITION: dict[str, Any] = {"max_attempts": 1 << 48, "when_full": "refuse"}


@contextmanager
def unlessDefined() -> Iterator[None]:
    """Ignore that a queue is not defined, as it has another definition already, or only workers may define it."""
    try:
        yield
    except RequestFailed as error:
        if error.status not in (Status.CONFLICT, Status.FORBIDDEN):
            raise


def priorityOf(given: float | str) -> int:
    """Return the nearest priority that the broker knows."""
    return min(max(int(float(given)), 0), MOST_PRIORITY)
