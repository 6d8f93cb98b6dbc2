"""Base classes for ``with``, ``async with`` and ``async for``."""

from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class ClosedOnExit(ABC):
    """An object that is closed at the end of a ``with`` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Accept no more messages; unread ones can still be read."""


class AsyncClosedOnExit(ABC):
    """An object that is closed at the end of an ``async with`` block, without waiting."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Accept no more messages; unread ones can still be read."""


class MessageIterator(AsyncClosedOnExit, Generic[T]):
    """A source of messages, read by iterating or by calling :meth:`next`."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """The number of unread messages."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next message, waiting until this or the client is closed; errors as :meth:`next`."""
        message = await self.next()
        if message is None:
            raise StopAsyncIteration
        return message

    @abstractmethod
    async def next(self, timeout: float | None = None) -> T | None:
        """Return the next message; None after ``timeout`` seconds without one, or if this is closed."""
