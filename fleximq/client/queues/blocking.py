"""What the blocking clients of queueing dialects have in common: faces of what a thread does."""

from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from fleximq.client.contexts import Leaving
from fleximq.client.queues.prefetch import Pulled
from fleximq.client.queues.reconnecting_link import Link
from fleximq.client.queues.thread import theThread
from fleximq.client.settings import PATIENCE, State

L = TypeVar("L", bound=Link)
P = TypeVar("P", bound=Pulled[Any])
T = TypeVar("T")


class WaitingClient(Leaving, Generic[L]):
    """A connection to a broker."""

    def __init__(self, inner: L) -> None:
        self._inner = inner
        self._thread = theThread()

    @property
    def state(self) -> State:
        """Where the client stands."""
        return self._inner.state

    def ping(self, timeout: float | None = PATIENCE) -> float:
        """Return how many seconds the broker takes to answer; everything that was sent before is done then."""
        return self._thread.run(self._inner.ping, timeout)

    def close(self, timeout: float | None = PATIENCE) -> None:
        """See that all that was sent is done, ACKs included, and end the connection; iterations end."""
        self._thread.run(self._inner.close, timeout)

    def hangUp(self) -> None:
        """End the connection at once, without a flush."""
        self._thread.call(self._inner.hangUp)


class WaitingPulled(Generic[P, T]):
    """What comes from a queue: iterate over it, or take one by one."""

    def __init__(self, inner: P) -> None:
        self._inner = inner
        self._thread = theThread()

    @property
    def waiting(self) -> int:
        """How many messages were fetched and not taken."""
        return self._inner.waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Return the next message, waiting as long as it takes; the iteration ends when this or the client is closed.

        Raises what :meth:`next` raises.
        """
        message = self.next()
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: float | None = None) -> T | None:
        """Acknowledge what was taken before, and return the next message; None if none came, or if this was closed.

        :param timeout: seconds; with 0 the broker is asked once. None: wait as long as it takes.
        :raises ConnectionLost: the connection ended, and there will be none.
        :raises SubscribeFailed: or ConsumeFailed: the broker refuses, or does not know the subscription.
        """
        found: T | None = self._thread.run(self._inner.next, timeout)
        return found

    def nextMany(self, most: int, timeout: float | None = None) -> list[T]:
        """Return up to ``most`` messages, at least one; they are acknowledged together. Otherwise as :meth:`next`."""
        return self._thread.run(self._inner.nextMany, most, timeout)

    def close(self) -> None:
        """Fetch no more; what was fetched before can still be taken."""
        self._thread.call(self._inner.close)
