"""Consumers that wait for a queue to have something, served first come, first served."""

from collections import OrderedDict
from collections.abc import Callable


class WaitingConsumers:
    """Callbacks to be called once each, in the order in which they came.

    :param onError: is given what a callback raises; the queue and the other waiters go on.
    """

    __slots__ = ("_calls", "_onError", "_toWake", "_waking")

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self._calls: OrderedDict[object, Callable[[], None]] = OrderedDict()
        self._onError = onError
        self._toWake = 0
        self._waking = False

    def __len__(self) -> int:
        """Return the number of callbacks that wait."""
        return len(self._calls)

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Let ``callback`` wait; call what is returned to give that up, which is harmless once it was called."""
        place = object()
        self._calls[place] = callback

        def cancel() -> None:
            self._calls.pop(place, None)

        return cancel

    def wake(self, available: Callable[[], int]) -> None:
        """Call one waiter for each message, as long as there are both.

        :param available: returns how many messages can be taken at that moment; it is asked again before each
            call, since the one before may have taken several. Called from within a callback, the outer call does
            the work, so that a chain of consumers does not become a recursion.
        """
        self._toWake = available()
        if self._waking:
            return
        self._waking = True
        try:
            while self._calls and self._toWake > 0 and available() > 0:
                self._toWake -= 1
                self._callFirst()
        finally:
            self._waking = False

    def clear(self) -> None:
        """Forget all who wait, without calling them."""
        self._calls.clear()

    def _callFirst(self) -> None:
        _, callback = self._calls.popitem(last=False)
        try:
            callback()
        except Exception as error:
            self._onError(error)
