"""Watches when a client's credentials end."""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: The timer is set for no longer, in seconds; the system's clock may be set meanwhile.
LOOK = 3600.0


class Expiry:
    """Calls once a moment has come, at once if it is past.

    :param clock: its seconds count from 1970, as the reactor's do.
    :param moment: in the same seconds.
    :param expired: called then, never from here.
    """

    def __init__(self, clock: IReactorTime, moment: float, expired: Callable[[], None]) -> None:
        self._clock = clock
        self._moment = moment
        self._expired = expired
        self._timer: IDelayedCall | None = None
        self._watch()

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        left = self._moment - self._clock.seconds()
        self._timer = self._clock.callLater(min(max(0.0, left), LOOK), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._clock.seconds() < self._moment:
            self._watch()
        else:
            self._expired()
