"""The face of dialects in which a peer is sent only what it asked for.

A peer that does not read its answers is not disconnected: what it asks further is left unread, until it has taken
what it asked before. TCP passes the pressure on to it.
"""

from enum import Enum

from fleximq.dialects.stream import StreamProtocol


class Reason(Enum):
    """Why a connection is not read for now."""

    UNREAD = "its answers wait to be read"
    UNANSWERED = "a command waits for its answer"


class PatientProtocol(StreamProtocol):
    """Stops reading instead of ending the connection of a slow reader."""

    def _slow(self) -> None:
        self.reading.stop(Reason.UNREAD)
        self.outbox.whenRelieved(lambda: self.reading.go(Reason.UNREAD))
