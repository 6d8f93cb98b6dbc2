"""The line that a client has, or has not for the time being; what is sent in one turn of the loop is written at once.

A client has one connection for all its life. Only one line at a time is listened to: what happens on earlier ones is
nobody's business any more.
"""

from collections.abc import Callable
from typing import Protocol

from fleximq.client.errors import ConnectionLost
from fleximq.client.loops.interfaces import Cancellable, Line, Listener, Loop
from fleximq.client.protocol.completion import Pending
from fleximq.limits import KIBIBYTE

#: When so many bytes wait to be written, in the middle of a turn of the loop, whoever sends should drain them.
MUCH = 64 * KIBIBYTE


class Speaker(Protocol):
    """Who speaks over a connection."""

    def made(self) -> None:
        """The line is there."""

    def heard(self, data: bytes) -> None:
        """Something was read from it."""

    def lose(self, lost: ConnectionLost) -> None:
        """It has ended."""


class Connection:
    """A line to a broker, and what waits to be written to it.

    :param framed: makes what is written of what was sent; it may have something to add.
    """

    def __init__(self, loop: Loop, speaker: Speaker, framed: Callable[[bytes], bytes] = bytes) -> None:
        self._loop = loop
        self._speaker = speaker
        self._framed = framed
        #: None while there is none.
        self.line: Line | None = None
        self._ear: _Ear | None = None
        self._outgoing: list[bytes] = []
        #: How many bytes were sent in this turn of the loop; an attribute, for it is looked at with every publication.
        self.waiting = 0
        self._pushing: Cancellable | None = None
        self._full: list[Pending[None]] | None = None

    def listen(self) -> Listener:
        """Return who is told of the next line, and be deaf to those before."""
        self._ear = _Ear(self, self._speaker)
        return self._ear

    # -- sending -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the loop."""
        self._outgoing.append(data)
        self.waiting += len(data)
        if self._pushing is None:
            self._pushing = self._loop.later(0, self.push)

    async def sendPatiently(self, data: bytes) -> None:
        """Send bytes, and wait while the broker takes no more."""
        self.send(data)
        if self.waiting >= MUCH:
            await self.drain()

    def sendNow(self, data: bytes) -> None:
        """Send bytes, and what was collected before, at once."""
        self._outgoing.append(data)
        self.push()

    def push(self) -> None:
        """Write all that was collected."""
        if self._pushing is not None:
            self._pushing.cancel()
            self._pushing = None
        outgoing, self._outgoing, self.waiting = self._outgoing, [], 0
        if self.line is not None:
            data = self._framed(b"".join(outgoing))
            if data:
                self.line.write(data)

    async def drain(self) -> None:
        """Write all that was collected, and return when the broker takes more."""
        self.push()
        await self._loop.rest(0)
        while self._full is not None:
            drained: Pending[None] = Pending()
            self._full.append(drained)
            await self._loop.wait(drained, None, "")

    # -- ending ------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Have no line any more, and forget what was to be written to it."""
        line = self._leave()
        self._outgoing, self.waiting = [], 0
        self._drained()
        if line is not None:
            line.abort()

    def end(self) -> None:
        """Have no line any more, once all that was collected is written."""
        self.push()
        line = self._leave()
        self._drained()
        if line is not None:
            line.close()

    def _leave(self) -> Line | None:
        line, self.line, self._ear = self.line, None, None
        return line

    # -- what the line says ------------------------------------------------------------------------

    def _made(self, ear: "_Ear", line: Line) -> bool:
        if self._ear is not ear:
            line.abort()
            return False
        self.line = line
        self._full = None
        return True

    def _filled(self) -> None:
        if self._full is None:
            self._full = []

    def _drained(self) -> None:
        waiting, self._full = self._full or (), None
        for each in waiting:
            each.succeed(None)


class _Ear:
    """Tells a speaker what happens on one line, while that is the current one."""

    def __init__(self, connection: Connection, speaker: Speaker) -> None:
        self._connection = connection
        self._speaker = speaker

    def lineMade(self, line: Line) -> None:
        if self._connection._made(self, line):
            self._speaker.made()

    def lineHeard(self, line: Line, data: bytes) -> None:
        if self._connection.line is line:
            self._speaker.heard(data)

    def lineLost(self, line: Line, lost: ConnectionLost) -> None:
        if self._connection.line is line:
            self._speaker.lose(lost)

    def lineFull(self, line: Line) -> None:
        if self._connection.line is line:
            self._connection._filled()

    def lineDrained(self, line: Line) -> None:
        if self._connection.line is line:
            self._connection._drained()
