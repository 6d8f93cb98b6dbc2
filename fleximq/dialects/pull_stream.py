"""The protocol of dialects whose peers pull: they receive only messages that they requested.

A peer that does not read its answers is not disconnected at once. Its further requests are left unread until it has
read the earlier answers, and TCP passes the pressure on. A peer that reads none for :data:`READ_TIMEOUT` seconds is
disconnected, because its answers would never be freed.
"""

from twisted.internet.interfaces import IDelayedCall

from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.pull_session import PullSession, PullState
from fleximq.dialects.session import ConnectionState
from fleximq.dialects.stream import StreamProtocol

#: Seconds for which a peer with unread answers may read none of them.
READ_TIMEOUT = 60.0
#: A session takes about so many bytes out of its queues before it checks the outbox again.
CHUNK_BYTES = 1 << 18


class PullStreamProtocol(StreamProtocol):
    """Pauses reading instead of closing the connection of a slow reader."""

    session: PullSession
    _readTimer: IDelayedCall | None = None
    _space = 0

    def _slow(self) -> None:
        self.waitForReader()

    def waitForReader(self) -> None:
        """Pause reading until the peer has read all pending output, then call :meth:`readerCaughtUp`."""
        if self._readTimer is None:
            self.readPauses.pause(ReadPause.UNREAD)
            self._watch()
            self.outbox.whenRelieved(self._relieved)

    def readerCaughtUp(self) -> None:
        """Continue the session in the next reactor turn: this may be called during a write."""
        if self.session.pullState is PullState.AWAITING_READER:
            self._context.clock.callLater(0, self._continue)

    def _continue(self) -> None:
        if self.session.state in (ConnectionState.WAITING, ConnectionState.OPEN):
            self.work(b"")

    def _watch(self) -> None:
        self._space = self.outbox.space
        self._readTimer = self._context.clock.callLater(READ_TIMEOUT, self._checkReader)

    def _checkReader(self) -> None:
        if self.outbox.space > self._space:
            self._watch()
        else:
            self.session.slow()

    def _relieved(self) -> None:
        if self._readTimer is not None and self._readTimer.active():
            self._readTimer.cancel()
        self._readTimer = None
        self.readPauses.resume(ReadPause.UNREAD)
        self.readerCaughtUp()
