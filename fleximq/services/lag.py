"""How late the event loop calls what is due: looked at each second, for metrics and readiness."""

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.values.histogram import Histogram

#: Seconds between two looks.
EVERY = 1.0
#: The bounds of the histogram, in seconds.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LagService(Service):
    """Measures while it runs; ``histogram`` has what was measured."""

    def __init__(self, clock: IReactorTime) -> None:
        self.histogram = Histogram(SECONDS)
        self._clock = clock
        self._measured = 0.0
        self._due = 0.0
        self._call: IDelayedCall | None = None

    @property
    def latest(self) -> float:
        """The latest lateness in seconds: that of the last call, or of the one that should have come by now."""
        late = self._clock.seconds() - self._due if self._call is not None else 0.0
        return max(self._measured, late)

    def startService(self) -> None:
        """Begin."""
        super().startService()
        self._again()

    def stopService(self) -> None:
        """End."""
        super().stopService()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _again(self) -> None:
        self._due = self._clock.seconds() + EVERY
        self._call = self._clock.callLater(EVERY, self._look)

    def _look(self) -> None:
        self._measured = max(0.0, self._clock.seconds() - self._due)
        self.histogram.add(self._measured)
        self._again()
