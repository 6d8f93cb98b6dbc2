"""What a peer says while its credentials are checked.

Nothing is read from then on, but what was on its way already may still arrive. It is kept as it came, so what waits is
what the transport had at hand: one read, or what TLS made of one.

Watches when a client's credentials end.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.security.credentials import Certificate

#: The timer is set for no longer, in seconds; the system's clock may be set meanwhile.
CHECK_SECONDS = 3600.0


class CredentialExpiry:
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
        self._timer = self._clock.callLater(min(max(0.0, left), CHECK_SECONDS), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._clock.seconds() < self._moment:
            self._watch()
        else:
            self._expired()


class CredentialWait(Enum):
    """Why a connection is not read for now."""

    CHECKED = "its credentials are being checked"


class EarlyInput:
    """Keeps reads in order; ``ended`` says that the peer has ended its input behind them."""

    __slots__ = ("_reads", "ended")

    def __init__(self) -> None:
        self._reads: list[bytes] = []
        self.ended = False

    def keep(self, data: bytes) -> None:
        """Keep a read."""
        self._reads.append(data)

    def take(self) -> bytes:
        """Return all that was kept; b"" if nothing was."""
        reads, self._reads = self._reads, []
        return b"".join(reads)


def certificateOf(transport: Any) -> Certificate | None:
    """Return the certificate that the peer of a TLS transport has shown, None if it has shown none.

    It is only known when the handshake of TLS is done: when the first byte has come.
    """
    peerCertificate = getattr(transport, "getPeerCertificate", None)
    found = None if peerCertificate is None else peerCertificate()
    return None if found is None else Certificate(found.to_cryptography())
