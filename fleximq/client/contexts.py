"""How what a program uses in ``with`` or ``async with`` ends with the block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


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
