"""Interfaces between a client and its event loop: :class:`Loop`, :class:`Transport` and :class:`Listener`."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from fleximq.client.errors import ConnectionLost
from fleximq.client.protocol.completion import Pending
from fleximq.client.settings import ClientSettings
from fleximq.values.urls import Url


class Transport(ABC):
    """A byte stream to the broker."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes in the background."""

    @abstractmethod
    def pauseReading(self) -> None:
        """Stop reading until :meth:`resumeReading`."""

    @abstractmethod
    def resumeReading(self) -> None:
        """Continue reading."""

    @abstractmethod
    def close(self) -> None:
        """Send buffered bytes, and close."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once, discarding buffered bytes."""


class Listener(Protocol):
    """Receives the events of a transport."""

    def transportConnected(self, transport: Transport) -> None:
        """The transport is connected."""

    def bytesReceived(self, transport: Transport, data: bytes) -> None:
        """Bytes were received."""

    def transportLost(self, transport: Transport, lost: ConnectionLost) -> None:
        """The transport was closed or lost."""

    def transportPaused(self, transport: Transport) -> None:
        """The send buffer is full; stop writing."""

    def transportResumed(self, transport: Transport) -> None:
        """The send buffer has drained; writing may continue."""


T = TypeVar("T")


class Cancellable(Protocol):
    """A timer or a running coroutine."""

    def cancel(self) -> object:
        """Cancel it; no effect if it has finished."""


class Loop(ABC):
    """An event loop."""

    @abstractmethod
    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        """Return an awaitable, and a function that completes it; calling it again has no effect."""

    @abstractmethod
    def later(self, seconds: float, call: Callable[[], None]) -> Cancellable:
        """Call a function after a delay; with 0 in the next turn of the loop."""

    @abstractmethod
    def start(self, work: Coroutine[Any, Any, None]) -> Cancellable:
        """Run a coroutine in the background; it must not raise."""

    async def sleep(self, seconds: float) -> None:
        """Wait; with 0, until the next turn of the loop."""
        wait, fire = self.slot()
        timer = self.later(seconds, fire)
        try:
            await wait
        finally:
            timer.cancel()

    async def wait(self, pending: Pending[T], timeout: float | None, what: str) -> T:
        """Return the value or raise the error of ``pending``.

        :param what: a noun for the message of the TimeoutError.
        :raises TimeoutError: there was no result within ``timeout`` seconds.
        """
        if not pending.done:
            wait, fire = self.slot()
            pending.onDone = fire
            timer = None if timeout is None else self.later(timeout, fire)
            try:
                await wait
            finally:
                pending.onDone = None
                if timer is not None:
                    timer.cancel()
            if not pending.done:
                raise TimeoutError(f"{what} did not arrive within {timeout:g} seconds")
        return pending.result()

    def currentTask(self) -> object | None:
        """Return the running task, or None if the loop has no tasks."""
        return None

    @abstractmethod
    async def dial(self, url: Url, settings: ClientSettings, listener: Listener) -> None:
        """Connect, and call the listener's ``transportConnected``.

        :raises ConnectionLost: no server accepted the connection.
        :raises Untrusted: one side does not trust the other's certificate.
        """
