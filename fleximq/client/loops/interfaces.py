"""What a client needs of an event loop.

A connection as a client sees it, whichever the event loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from fleximq.client.errors import ConnectionLost
from fleximq.client.protocol.completion import Pending
from fleximq.client.settings import ClientSettings
from fleximq.values.urls import Url


class Line(ABC):
    """A connection, as a stream of bytes."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes, sooner or later."""

    @abstractmethod
    def pauseReading(self) -> None:
        """Read no more for the time being."""

    @abstractmethod
    def resumeReading(self) -> None:
        """Read again."""

    @abstractmethod
    def close(self) -> None:
        """Send what waits, and end."""

    @abstractmethod
    def abort(self) -> None:
        """End at once."""


class Listener(Protocol):
    """Who is told what happens on a line."""

    def lineMade(self, line: Line) -> None:
        """The line is there."""

    def lineHeard(self, line: Line, data: bytes) -> None:
        """Something was read."""

    def lineLost(self, line: Line, lost: ConnectionLost) -> None:
        """The line has ended."""

    def lineFull(self, line: Line) -> None:
        """So much waits to be sent that nothing more should be written."""

    def lineDrained(self, line: Line) -> None:
        """More can be written."""


T = TypeVar("T")


class Cancellable(Protocol):
    """Something that happens later, or goes on, and can be stopped."""

    def cancel(self) -> object:
        """Stop it; nothing happens if it is over."""


class Loop(ABC):
    """What a client needs of an event loop."""

    @abstractmethod
    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        """Return something to await, and what ends the wait; that may be called several times."""

    @abstractmethod
    def later(self, seconds: float, call: Callable[[], None]) -> Cancellable:
        """Call something after so many seconds, with 0 in the next turn."""

    @abstractmethod
    def start(self, work: Coroutine[Any, Any, None]) -> Cancellable:
        """Let a coroutine run by itself; it raises nothing."""

    async def rest(self, seconds: float) -> None:
        """Wait so long; with 0, let others have their turn."""
        wait, fire = self.slot()
        timer = self.later(seconds, fire)
        try:
            await wait
        finally:
            timer.cancel()

    async def wait(self, pending: Pending[T], timeout: float | None, what: str) -> T:
        """Wait for a value or an error.

        :param what: what is waited for, in the words of the TimeoutError.
        :raises TimeoutError: it did not come within so many seconds.
        """
        if not pending.done:
            wait, fire = self.slot()
            pending.told = fire
            timer = None if timeout is None else self.later(timeout, fire)
            try:
                await wait
            finally:
                pending.told = None
                if timer is not None:
                    timer.cancel()
            if not pending.done:
                raise TimeoutError(f"{what} did not come within {timeout:g} seconds")
        return pending.result()

    def user(self) -> object | None:
        """Return who runs now and may be told from others, None if that cannot be said."""
        return None

    @abstractmethod
    async def dial(self, url: Url, settings: ClientSettings, listener: Listener) -> None:
        """Make a connection, and tell it to the listener.

        :raises ConnectionLost: nobody listens there.
        :raises Untrusted: one side does not trust the other's certificate.
        """
