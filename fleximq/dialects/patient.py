"""The face of dialects in which a peer is sent only what it asked for.

A peer that does not read its answers is not disconnected: what it asks further is left unread, until it has taken
what it asked before. TCP passes the pressure on to it.
"""

from enum import Enum
from typing import Any

from fleximq.dialects.stream import StreamProtocol


class Reason(Enum):
    """Why a connection is not read for now."""

    UNREAD = "its answers wait to be read"
    UNANSWERED = "a command waits for its answer"


class PatientProtocol(StreamProtocol):
    """Stops reading instead of ending the connection of a slow reader."""

    _reasons: frozenset[Reason] = frozenset()

    def stopReading(self, reason: Reason) -> None:
        """Read no more until :meth:`readOn` was called for every reason given here."""
        if not self._reasons:
            transport: Any = self.transport
            transport.pauseProducing()
        self._reasons |= {reason}

    def readOn(self, reason: Reason) -> None:
        """Take one reason back."""
        if self._reasons == {reason}:
            transport: Any = self.transport
            transport.resumeProducing()
        self._reasons -= {reason}

    def _slow(self) -> None:
        self.stopReading(Reason.UNREAD)
        self.session.outbox.whenRelieved(self._relieved)

    def _relieved(self) -> None:
        self.readOn(Reason.UNREAD)
