"""The definition of the frameworks' queues, unless an operator or another program has defined them."""

from typing import Any

#: The keyword arguments of ``define_queue``. Deliveries in effect without limit: a restart of a worker is one for all
#: messages that it has prefetched, although it has not run them, and the frameworks limit the attempts of a task
#: themselves. A queue that is full refuses, so that no task is dropped silently.
DEFINITION: dict[str, Any] = {"max_attempts": 1 << 48, "when_full": "refuse"}
