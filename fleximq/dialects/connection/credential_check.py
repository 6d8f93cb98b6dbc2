"""What a peer says while its credentials are checked.

Nothing is read from then on, but what was on its way already may still arrive. It is kept as it came, so what waits is
what the transport had at hand: one read, or what TLS made of one.
"""

from enum import Enum
from typing import Any

from fleximq.security.credentials import Certificate


class Wait(Enum):
    """Why a connection is not read for now."""

    CHECKED = "its credentials are being checked"


class Early:
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
