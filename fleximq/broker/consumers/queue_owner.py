"""The common part of polled subscriptions and work queues: each has one queue, in memory or durable."""

from abc import ABC, abstractmethod
from collections.abc import Callable

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
    #: Whether a client or an operator defined it.
    isDefined: bool = False

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    @property
    def durable(self) -> bool:
        """Whether it survives a restart."""
        return self.queue.durable

    @property
    @abstractmethod
    def idle(self) -> float | None: ...

    @property
    def depth(self) -> int:
        """The number of messages that can be taken now."""
        return self.queue.stored.depth

    @property
    def inFlight(self) -> int:
        """The number of messages that wait for their acknowledgement."""
        return len(self.queue.stored.flying)

    @property
    def size(self) -> int:
        """The cost in bytes of everything waiting and in flight."""
        return self.queue.stored.size

    @property
    def preparing(self) -> bool:
        """Whether the next message is not ready, see :attr:`fleximq.broker.queues.queue.Queue.preparing`."""
        return self.queue.preparing

    def whenPrepared(self, call: Callable[[], object]) -> None:
        """Call once when the next message may be ready."""
        self.queue.whenPrepared(call)

    @abstractmethod
    def discard(self, number: int) -> int:
        """Drop up to ``number`` of the oldest messages, as far as they are ready, and return how many."""
