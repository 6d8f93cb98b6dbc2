"""Wrappers that return Deferreds, shared by all clients for Twisted; each wraps a client for any event loop."""

from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from twisted.internet.defer import Deferred

from fleximq.client.contexts import AsyncClosedOnExit, MessageIterator
from fleximq.client.settings import TIMEOUT, State


class Inner(Protocol):
    """The wrapped client; any dialect."""

    @property
    def url(self) -> str:
        """The broker's URL without its query."""

    @property
    def state(self) -> State:
        """The state of the connection."""

    def ping(self, timeout: float | None = TIMEOUT) -> Coroutine[Any, Any, float]:
        """Return the round-trip time in seconds."""

    def close(self, timeout: float | None = TIMEOUT) -> Coroutine[Any, Any, None]:
        """Flush, and end the connection."""

    def hang_up(self) -> None:
        """End the connection at once."""


C = TypeVar("C", bound=Inner)
S = TypeVar("S", bound=MessageIterator[Any])
T = TypeVar("T")


class DeferredClient(Generic[C]):
    """A connection to a broker; errors are in the Deferreds."""

    def __init__(self, inner: C) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.url}, {self.state.value}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            await self._inner.close()
        else:
            self._inner.hang_up()

    @property
    def url(self) -> str:
        """The broker's URL without its query, which may contain a secret."""
        return self._inner.url

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._inner.state

    def ping(self, timeout: float | None = TIMEOUT) -> "Deferred[float]":
        """Fire with the round-trip time in seconds, which includes processing everything sent before."""
        return Deferred.fromCoroutine(self._inner.ping(timeout))

    def close(self, timeout: float | None = TIMEOUT) -> "Deferred[None]":
        """Flush messages and ACKs, and end the connection; iterations end.

        The connection ends even if the flush fails. Closing again has no effect. Errors as those of the wrapped client.
        """
        return Deferred.fromCoroutine(self._inner.close(timeout))

    def hang_up(self) -> None:
        """End the connection at once, without a flush."""
        self._inner.hang_up()


class DeferredSubscription(AsyncClosedOnExit, Generic[S, T]):
    """A source of messages, read by iterating or by calling :meth:`next`."""

    def __init__(self, inner: S) -> None:
        self._inner = inner

    @property
    def waiting(self) -> int:
        """The number of unread messages."""
        return self._inner.waiting

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over the messages, waiting without a limit, until this or the client is closed."""
        return self._inner

    def next(self, timeout: float | None = None) -> "Deferred[T | None]":
        """Fire with the next message; None after ``timeout`` seconds without one, or if this is closed.

        Errors as those of the wrapped subscription.
        """
        return Deferred.fromCoroutine(self._inner.next(timeout))

    def close(self) -> None:
        """Accept no more messages; unread ones can still be read."""
        self._inner.close()
