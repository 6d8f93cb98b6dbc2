"""The consumers that wait for a message of a queue."""

from collections import OrderedDict
from collections.abc import Callable


class WaitingConsumers:
    """Callbacks, each called once, in the order in which they were added; ``onError`` receives their exceptions.

    ``calls`` are those that wait: their number is asked for at each delivery.
    """

    __slots__ = ("_onError", "_toWake", "_waking", "calls")

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self.calls: OrderedDict[object, Callable[[], None]] = OrderedDict()
        self._onError = onError
        self._toWake = 0
        self._waking = False

    def __len__(self) -> int:
        return len(self.calls)

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Add a callback; return a function that removes it, a no-op after the callback was called."""
        place = object()
        self.calls[place] = callback

        def cancel() -> None:
            self.calls.pop(place, None)

        return cancel

    def wake(self, available: Callable[[], int]) -> None:
        """Call one callback for each message; if a callback calls this method, the outer call continues the work.

        :param available: returns how many messages can be taken now; asked before each call, since one may take
            several.
        """
        self._toWake = known = available()
        if self._waking:
            return
        self._waking = True
        try:
            while self.calls and self._toWake > 0 and (known or available()) > 0:
                self._toWake -= 1
                known = 0  # the callback may take some
                _, callback = self.calls.popitem(last=False)
                try:
                    callback()
                except Exception as error:
                    self._onError(error)
        finally:
            self._waking = False

    def clear(self) -> None:
        """Remove all callbacks without calling them."""
        self.calls.clear()
