"""Wrapper that returns Deferreds, shared by the BlipMQ and MiniMQ clients for Twisted."""

from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred

from fleximq.client.loops.deferred import DeferredSubscription
from fleximq.client.queues.prefetch import Pulled

P = TypeVar("P", bound=Pulled[Any])
T = TypeVar("T")


class DeferredPulled(DeferredSubscription[P, T], Generic[P, T]):
    """The messages of a queue: iterate over it, or call :meth:`next`."""

    def next(self, timeout: float | None = None) -> "Deferred[T | None]":
        """Acknowledge the previous messages, and fire with the next one; None if there is none, or this is closed.

        Errors as :meth:`fleximq.client.queues.blocking.BlockingPulled.next`.
        """
        return super().next(timeout)

    def next_many(self, most: int, timeout: float | None = None) -> "Deferred[list[T]]":
        """Fire with 1 to ``most`` messages, which are acknowledged together. Otherwise as :meth:`next`."""
        return Deferred.fromCoroutine(self._inner.next_many(most, timeout))
