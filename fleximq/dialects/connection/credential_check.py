"""Credentials of connections: the certificate of a transport, and the expiry."""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.security.credentials import Certificate

#: The longest timer, in seconds: within it a step of the system clock is noticed.
CHECK_SECONDS = 60.0


class CredentialExpiry:
    """Calls ``expired`` when ``wall``, the seconds since 1970, reaches a time; if it is past, in the next turn."""

    def __init__(
        self, clock: IReactorTime, wall: Callable[[], float], moment: float, expired: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._moment = moment
        self._expired = expired
        self._timer: IDelayedCall | None = None
        self._watch()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        left = self._moment - self._wall()
        self._timer = self._clock.callLater(min(max(0.0, left), CHECK_SECONDS), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._wall() < self._moment:
            self._watch()
        else:
            self._expired()


def certificateOf(transport: Any) -> Certificate | None:
    """Return the client certificate of a TLS transport, known from the first received byte on; None without one."""
    peerCertificate = getattr(transport, "getPeerCertificate", None)
    found = None if peerCertificate is None else peerCertificate()
    if found is None:
        return None
    return Certificate(found.to_cryptography(), getattr(transport, "peerIsTrusted", True))
