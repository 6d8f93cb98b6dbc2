"""How what a program uses in ``with`` or ``async with`` ends with the block.

Iteration over what comes from a broker, with ``async for``.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar


class Leaving(ABC):
    """A client that is closed behind a ``with`` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; if the block failed, at once and without a flush."""
        if error is None:
            self.close()
        else:
            self.hangUp()

    @abstractmethod
    def close(self) -> None:
        """See that what was sent is done, and end."""

    @abstractmethod
    def hangUp(self) -> None:
        """End at once."""


class Closing(ABC):
    """Something that is closed behind an ``async with`` block, and has nothing to wait for."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Take no more."""


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
