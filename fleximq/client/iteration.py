"""Iteration over what comes from a broker, with ``async for``."""

from abc import abstractmethod
from typing import Generic, Self, TypeVar

from fleximq.client.contexts import Closing

T = TypeVar("T")


class Iterating(Closing, Generic[T]):
    """Something to iterate over, or to take from one by one."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many came and were not taken."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next one, waiting as long as it takes; the iteration ends when this or the client is closed.

        Raises what :meth:`next` raises.
        """
        found = await self.next()
        if found is None:
            raise StopAsyncIteration
        return found

    @abstractmethod
    async def next(self, timeout: float | None = None) -> T | None:
        """Return the next one; None if none came within ``timeout`` seconds, or if this was closed."""
