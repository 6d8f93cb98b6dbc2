"""What all clients for programs on Twisted have in common: each is a thin face of one that is awaited."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from twisted.internet.defer import Deferred

from fleximq.client.contexts import Closing, Iterating
from fleximq.client.settings import PATIENCE, State


class Inner(Protocol):
    """What a client that is awaited does, whatever it speaks."""

    @property
    def state(self) -> State:
        """Where the client stands."""

    def ping(self, timeout: float | None = PATIENCE) -> Coroutine[Any, Any, float]:
        """Return how many seconds the broker takes to answer."""

    def close(self, timeout: float | None = PATIENCE) -> Coroutine[Any, Any, None]:
        """See that what was sent is done, and end the connection."""

    def hangUp(self) -> None:
        """End the connection at once."""


C = TypeVar("C", bound=Inner)
S = TypeVar("S", bound=Iterating[Any])


class DeferredClient(Generic[C]):
    """A connection to a broker; errors come in the Deferreds."""

    def __init__(self, inner: C) -> None:
        self._inner = inner

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            await self._inner.close()
        else:
            self._inner.hangUp()

    @property
    def state(self) -> State:
        """Where the client stands."""
        return self._inner.state

    def ping(self, timeout: float | None = PATIENCE) -> "Deferred[float]":
        """Fire with how many seconds the broker takes to answer; everything that was sent before is done then."""
        return Deferred.fromCoroutine(self._inner.ping(timeout))

    def close(self, timeout: float | None = PATIENCE) -> "Deferred[None]":
        """See that all that was sent is done, ACKs included, and end the connection; iterations end.

        It is ended in any case; a second time nothing happens. Errors as those of the client that is awaited.
        """
        return Deferred.fromCoroutine(self._inner.close(timeout))

    def hangUp(self) -> None:
        """End the connection at once, without a flush."""
        self._inner.hangUp()


class DeferredSubscription(Closing, Generic[S]):
    """What comes from a broker: iterate over it, or take one by one."""

    def __init__(self, inner: S) -> None:
        self._inner = inner

    @property
    def waiting(self) -> int:
        """How many came and were not taken."""
        return self._inner.waiting

    def __aiter__(self) -> S:
        """Iterate over all that comes, waiting for each as long as it takes, until this or the client is closed."""
        return self._inner

    def close(self) -> None:
        """Take part no longer; what came before can still be taken."""
        self._inner.close()
