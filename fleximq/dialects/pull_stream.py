"""The face of dialects in which a peer is sent only what it asked for.

A peer that does not read its answers is not disconnected at once: what it asks further is left unread, until it has
taken what it asked before. TCP passes the pressure on to it. But one that takes nothing for :data:`READ_TIMEOUT`
seconds
is cut off, for what waits for it would never be freed.
"""

from enum import Enum

from twisted.internet.interfaces import IDelayedCall

from fleximq.dialects.session import ConnectionState
from fleximq.dialects.stream import StreamProtocol

#: Seconds for which a peer with unread answers may take nothing.
READ_TIMEOUT = 60.0
#: A session takes messages out of its queues in portions of about so many bytes, and asks then whether there is room.
CHUNK_BYTES = 1 << 18


class PullPause(Enum):
    """Why a connection is not read for now."""

    UNREAD = "its answers wait to be read"
    UNANSWERED = "a command waits for its answer"


class PullStreamProtocol(StreamProtocol):
    """Stops reading instead of ending the connection of a slow reader."""

    _look: IDelayedCall | None = None
    _room = 0

    def _slow(self) -> None:
        self.waitForReader()

    def waitForReader(self) -> None:
        """Read no more until the peer has taken all that waits, then :meth:`readerCaughtUp`."""
        if self._look is None:
            self.readPauses.pause(PullPause.UNREAD)
            self._watch()
            self.outbox.whenRelieved(self._relieved)

    def readerCaughtUp(self) -> None:
        """Go on with what the session left undone, in a moment: this may be the middle of a write."""
        if self.session.suspended:
            self._context.clock.callLater(0, self._continue)

    def _continue(self) -> None:
        if self.session.state is ConnectionState.OPEN:
            self.work(b"")

    def _watch(self) -> None:
        self._room = self.outbox.space
        self._look = self._context.clock.callLater(READ_TIMEOUT, self._lookAtReader)

    def _lookAtReader(self) -> None:
        if self.outbox.space > self._room:
            self._watch()
        else:
            self.session.slow()

    def _relieved(self) -> None:
        if self._look is not None and self._look.active():
            self._look.cancel()
        self._look = None
        self.readPauses.resume(PullPause.UNREAD)
        self.readerCaughtUp()
