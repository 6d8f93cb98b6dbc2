"""The common part of polled subscriptions and work queues: each has one queue, in memory or durable."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from fleximq.broker.queues.durable_queue import DurableQueue
from fleximq.broker.queues.queue import Queue


class QueueOwner(ABC):
    """A subscriber that stores its messages in ``queue``.

    ``id``, ``qos`` and ``owner`` are those of a subscription. ``everConsumed`` is True once a consumer has asked its
    queue for a message, ``idle`` are the seconds since its last use, None while it is in use.
    """

    id: int
    qos: int
    owner: str | None
    everConsumed: bool = False

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    @property
    def durable(self) -> bool:
        """Whether it survives a restart."""
        return isinstance(self.queue, DurableQueue)

    @property
    @abstractmethod
    def idle(self) -> float | None: ...

    @property
    def depth(self) -> int:
        """The number of messages that can be taken now."""
        return self.queue.depth

    @property
    def inFlight(self) -> int:
        """The number of messages that wait for their acknowledgement."""
        return self.queue.inFlight

    @property
    def size(self) -> int:
        """The cost in bytes of everything waiting and in flight."""
        return self.queue.size

    @property
    def loading(self) -> bool:
        """Whether the next message must first be read from the journal, see :meth:`whenLoaded`."""
        return self.queue.loading

    def whenLoaded(self, call: Callable[[], object]) -> None:
        """Call once after the current read; only while ``loading``."""
        self.queue.whenLoaded(call)

    @abstractmethod
    def discard(self, number: int) -> int:
        """Drop up to ``number`` of the oldest messages, as far as they are loaded, and return how many."""
