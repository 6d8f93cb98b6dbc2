"""The result of an operation, independent of threads, asyncio and Deferreds."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """A future value or error. It is resolved once; later values are ignored.

    ``onDone`` is called when it is resolved, if it is set by then.
    """

    __slots__ = ("_value", "done", "error", "onDone")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self.onDone: Callable[[], None] | None = None
        self._value: T | None = None

    def succeed(self, value: T) -> None:
        """Resolve it with a value."""
        self._resolve(value, None)

    def fail(self, error: Exception) -> None:
        """Resolve it with an error."""
        self._resolve(None, error)

    def _resolve(self, value: T | None, error: Exception | None) -> None:
        if self.done:
            return
        self._value, self.error, self.done = value, error, True
        if self.onDone is not None:
            self.onDone()

    def result(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]


def resolveAll(waiters: list[Pending[None]], error: Exception | None = None) -> None:
    """Resolve the results in a list, with an error if there is one, and empty it."""
    resolved = waiters.copy()
    waiters.clear()
    for each in resolved:
        if error is None:
            each.succeed(None)
        else:
            each.fail(error)
