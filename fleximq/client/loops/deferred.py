"""Wrappers that return Deferreds, shared by all clients for Twisted; each wraps a client for any event loop."""

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from twisted.internet.defer import Deferred

from fleximq.client.contexts import AsyncClosedOnExit, MessageIterator
from fleximq.client.reconnecting import Reconnecting
from fleximq.client.wrapper import ClientWrapper, Wrapper, resultOf, returning

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", bound=Reconnecting)
S = TypeVar("S", bound=MessageIterator[Any])


def fired(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], "Deferred[T]"]:
    """Return a method of a :class:`Wrapper` with a Deferred for the inner object's coroutine of this name."""
    name = method.__name__

    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> "Deferred[T]":
        return Deferred.fromCoroutine(getattr(self._inner, name)(*arguments, **more))

    return returning(f"Deferred[{resultOf(method)}]", update_wrapper(call, method))


def firedWrapping(
    kind: Callable[[T], R], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], "Deferred[R]"]:
    """Like :func:`fired`, but wrap the result."""
    plain = fired(method)

    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> "Deferred[R]":
        return plain(self, *arguments, **more).addCallback(kind)

    return returning(f"Deferred[{kind.__name__}]", update_wrapper(call, method))


class DeferredClient(ClientWrapper[C]):
    """A connection to a broker; errors are in the Deferreds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            await self._inner.close()
        else:
            self._inner.hang_up()

    ping = fired(Reconnecting.ping)
    close = fired(Reconnecting.close)


class DeferredSubscription(Wrapper[S], AsyncClosedOnExit, Generic[S, T]):
    """A source of messages, read by iterating or by calling :meth:`next`."""

    @property
    def waiting(self) -> int:
        """The number of unread messages."""
        return self._inner.waiting

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over the messages, waiting without a limit, until this or the client is closed."""
        return self._inner

    def next(self, timeout: float | None = None) -> "Deferred[T | None]":
        """Fire with the next message; None after ``timeout`` seconds without one, or if this is closed."""
        return Deferred.fromCoroutine(self._inner.next(timeout))

    def close(self) -> None:
        """Accept no more messages; unread ones can still be read."""
        self._inner.close()
