"""Long work on the reactor's thread in slices: one slice in each turn, of one piece of work after the other."""

from collections import deque
from collections.abc import Callable, Iterator

from fleximq.broker.deadlines import Clock


class Slices:
    """Runs iterators whose steps are slices of work: each should take 1 ms at most."""

    def __init__(self, clock: Clock, onError: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._onError = onError
        self._waiting: deque[Iterator[None]] = deque()

    def run(self, steps: Iterator[None]) -> None:
        """Run these steps in later turns."""
        self._waiting.append(steps)
        if len(self._waiting) == 1:
            self._clock.callLater(0, self._step)

    def _step(self) -> None:
        steps = self._waiting[0]
        try:
            ended = next(steps, self) is self
        except Exception as error:
            ended = True
            self._onError(error)
        self._waiting.popleft()
        if not ended:
            self._waiting.append(steps)
        if self._waiting:
            self._clock.callLater(0, self._step)
