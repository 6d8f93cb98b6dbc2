"""What the clients of queueing dialects for programs on Twisted have in common."""

from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred

from fleximq.client.loops.deferred import DeferredSubscription
from fleximq.client.queues.prefetch import Pulled

P = TypeVar("P", bound=Pulled[Any])
T = TypeVar("T")


class DeferredPulled(DeferredSubscription[P], Generic[P, T]):
    """What comes from a queue: iterate over it, or take one by one."""

    def next(self, timeout: float | None = None) -> "Deferred[T | None]":
        """Acknowledge what was taken before, and fire with the next message; None if none came, or if this was closed.

        Errors as :meth:`fleximq.client.queues.blocking.WaitingPulled.next`.
        """
        return Deferred.fromCoroutine(self._inner.next(timeout))

    def nextMany(self, most: int, timeout: float | None = None) -> "Deferred[list[T]]":
        """Fire with up to ``most`` messages, at least one; acknowledged together. Otherwise as :meth:`next`."""
        return Deferred.fromCoroutine(self._inner.nextMany(most, timeout))
