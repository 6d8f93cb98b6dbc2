"""Liveness and readiness checks, and the delay of the event loop, measured each second for metrics and readiness."""

from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass
from typing import Any

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.broker.broker import Broker
from fleximq.services.network.listeners import ListenerService
from fleximq.values.histogram import Histogram
from fleximq.web.health_pages import Check, Look

#: Seconds between two measurements.
INTERVAL = 1.0
#: The bounds of the histogram, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LagService(Service):
    """Measures while it runs; ``histogram`` has the results."""

    def __init__(self, clock: IReactorTime) -> None:
        self.histogram = Histogram(BUCKETS)
        self._clock = clock
        self._measured = 0.0
        self._due = 0.0
        self._call: IDelayedCall | None = None

    @property
    def latest(self) -> float:
        """The latest delay in seconds: of the last timer, or of the current one if it is overdue."""
        late = self._clock.seconds() - self._due if self._call is not None else 0.0
        return max(self._measured, late)

    def startService(self) -> None:
        super().startService()
        self._again()

    def stopService(self) -> None:
        super().stopService()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _again(self) -> None:
        self._due = self._clock.seconds() + INTERVAL
        self._call = self._clock.callLater(INTERVAL, self._check)

    def _check(self) -> None:
        self._measured = max(0.0, self._clock.seconds() - self._due)
        self.histogram.add(self._measured)
        self._again()


#: Delays of the event loop, in seconds, above which the broker is not ready, or not alive.
READY_LAG, LIVE_LAG = 1.0, 30.0


@dataclass(eq=False, repr=False)
class Health:
    """The health checks: extensions may add to the lists ``live`` and ``ready``.

    ``listeners`` returns all listeners that should be open, ``stopping`` whether the broker is about to stop, and
    ``cluster`` checks the node of a cluster.
    """

    _broker: Broker
    _lag: LagService
    _listeners: Callable[[], Iterable[Any]]
    _stopping: Callable[[], bool] = lambda: False
    cluster: InitVar[Look | None] = None

    def __post_init__(self, cluster: Look | None) -> None:
        self.live: list[Look] = [lambda: self._late(LIVE_LAG)]
        self.ready: list[Look] = [self._journal, self._listening, self._draining, lambda: self._late(READY_LAG)]
        self.ready += [] if cluster is None else [cluster]

    def _late(self, maximum: float) -> Check:
        late = self._lag.latest
        return Check("event loop", late <= maximum, f"{late:.3f} seconds late, at most {maximum:g} are good")

    def _journal(self) -> Check:
        health = self._broker.journalHealth()
        if health is None:
            return Check("journal", True, "there is none")
        good = health["state"] == "ok"
        return Check("journal", good, "recovered and writable" if good else str(health["reason"]))

    def _listening(self) -> Check:
        closed = [str(each.listen) for each in self._listeners() if each.port is None]
        words = f"not open: {', '.join(closed)}" if closed else "all are open"
        return Check("listeners", not closed, words)

    def _draining(self) -> Check:
        stopping = self._stopping()
        return Check("draining", not stopping, "the broker is about to stop" if stopping else "no")


def listenersOf(service: Iterable[Any]) -> list[ListenerService]:
    """Return all listeners inside a service."""
    listeners: list[ListenerService] = []
    for each in service:
        if isinstance(each, ListenerService):
            listeners.append(each)
        elif hasattr(each, "__iter__"):
            listeners += listenersOf(each)
    return listeners
