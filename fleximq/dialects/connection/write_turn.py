"""One write per connection and turn.

While a read is being worked through, outboxes that were given something note themselves here; at its end each
writes once. What slow readers leave is put in order behind that, when nobody waits for it. What is said outside a
read (a deadline, a lost connection) is written on the reactor's next round.
"""

from collections import deque
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.connection.write_backlog import Chunk, WriteBacklog

_log = Logger("fleximq.dialects.turn.Turn")

#: Sheets of a large backlog that are freed at a time, about 30 us; 64 MiB at once would take 2 ms.
_FREED = 16


class TurnWriter(Protocol):
    """Something that writes at the end of a turn: an outbox, or what has a word for several of them."""

    def flush(self) -> None:
        """Write what waits."""


class WriteTurn:
    """The outboxes that have something to write.

    Set ``open`` while a read is worked through, and ``reader`` to whose it is; call :meth:`flush` at its end.
    """

    __slots__ = ("_clock", "_unpacked", "_waiting", "open", "reader")

    def __init__(self, clock: IReactorTime) -> None:
        self.open = False
        self.reader: PausablePublisher | None = None
        self._clock = clock
        self._waiting: list[TurnWriter] = []
        self._unpacked: dict[WriteBacklog, None] = {}

    def publishing(self, client: ConnectedClient | None) -> None:
        """Note whose publications come next, which were read earlier."""
        self.reader = None if client is None else client.reader

    def add(self, outbox: TurnWriter) -> None:
        """Let an outbox write at the end of this turn."""
        if not self._waiting and not self.open:
            self._clock.callLater(0, self.flush)
        self._waiting.append(outbox)

    def packLater(self, held: WriteBacklog) -> None:
        """Pack what one connection holds, when everybody has written."""
        if not self._waiting and not self._unpacked and not self.open:
            self._clock.callLater(0, self.flush)
        self._unpacked[held] = None

    def freeLater(self, pieces: deque[Chunk]) -> None:
        """Let go of these by and by, a few in each of the reactor's rounds."""
        for _ in range(min(_FREED, len(pieces))):
            pieces.pop()
        if pieces:
            self._clock.callLater(0, self.freeLater, pieces)

    def flush(self) -> None:
        """Let all write that have something, and end the turn."""
        self.open = False
        self.reader = None
        while self._waiting:
            waiting = self._waiting
            self._waiting = []
            for outbox in waiting:
                try:
                    outbox.flush()
                except Exception:
                    _log.failure("what waits for one connection could not be written")
        if self._unpacked:
            for held in self._unpacked:
                held.pack()
            self._unpacked.clear()
