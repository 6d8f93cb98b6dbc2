"""One write per connection and reactor turn, or per a few turns.

While a read is processed, outboxes with output register here; at its end each writes once. Then follows the work for
slow readers: their policy and backlogs. Output made outside a read is written in the next reactor turn.

A few bytes for each of many outboxes would cost a write each, so after a full read they wait for the next full reads,
until :data:`POSTPONED` seconds are over at the end of one. If the next turn of the reactor has none, they are
written. Measured with 1,000 topics that have a subscriber each: twice as many messages.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.connection.write_backlog import Chunk

_log = Logger()

_FAILED = "the output of one connection could not be written"
#: Output waits if so many outboxes have some, and the last one, a sample, has less than so many bytes.
MANY, SMALL_BYTES = 64, 4096
#: After so many seconds no further read is awaited.
POSTPONED = 0.005
#: Sheets of a large backlog freed at a time, about 30 us; 64 MiB at once would take 2 ms.
_FREED = 16


def doNothing() -> None:
    """A no-op: ``afterRead`` without a busy poll."""


class TurnWriter(Protocol):
    """An object that writes at the end of a turn: an outbox, or the channel list that serves several."""

    def flush(self) -> None:
        """Write pending output."""

    @property
    def pendingBytes(self) -> int:
        """The number of bytes of the pending output."""


class WriteTurn:
    """The objects with pending output. While a read is processed, ``open`` is set and ``reader`` is its connection.

    ``afterRead`` is called at the end of each read.
    """

    __slots__ = ("_clock", "_isChecking", "_later", "_postponedSince", "_postponements", "_waiting", "afterRead",
                 "open", "reader")  # fmt: skip

    def __init__(self, clock: IReactorTime) -> None:
        self.open = False
        self.afterRead: Callable[[], None] = doNothing
        self.reader: PausablePublisher | None = None
        self._clock = clock
        self._waiting: list[TurnWriter] = []
        self._later: dict[Callable[[], None], None] = {}
        self._postponedSince: float | None = None
        self._postponements = 0
        self._isChecking = False

    def publishing(self, client: ConnectedClient | None) -> None:
        """Set the publisher of the following publications, which were read earlier."""
        self.reader = None if client is None else client.reader

    def add(self, outbox: TurnWriter) -> None:
        """Call ``flush`` of this object at the end of the turn."""
        if not self._waiting and not self.open:
            self._clock.callLater(0, self.flush)
        self._waiting.append(outbox)

    def later(self, call: Callable[[], None]) -> None:
        """Call once, after all writes of the turn."""
        if not self._waiting and not self._later and not self.open:
            self._clock.callLater(0, self.flush)
        self._later[call] = None

    def freeLater(self, pieces: deque[Chunk]) -> None:
        """Free these chunks a few at a time, in successive reactor turns."""
        for _ in range(min(_FREED, len(pieces))):
            pieces.pop()
        if pieces:
            self._clock.callLater(0, self.freeLater, pieces)

    def postpone(self, now: float) -> bool:
        """End the turn of a full read without writing, if its output may wait for the next read; False if not."""
        waiting = self._waiting
        if len(waiting) < MANY or self._later or waiting[-1].pendingBytes >= SMALL_BYTES:
            return False
        if self._postponedSince is None:
            self._postponedSince = now
        elif now - self._postponedSince > POSTPONED:
            return False
        self._postponements += 1
        if not self._isChecking:
            self._isChecking = True
            self._clock.callLater(0, self._check, 0)
        self.open = False
        self.afterRead()
        self.reader = None
        return True

    def _check(self, seen: int) -> None:
        """Write postponed output, unless another read was postponed since the last reactor turn."""
        if self._postponedSince is not None and self._postponements != seen:
            self._clock.callLater(0, self._check, self._postponements)
            return
        self._isChecking = False
        if self._postponedSince is not None:
            self.flush()

    def flush(self) -> None:
        """End the turn: write all pending output, then do the work for slow readers."""
        if self.open:
            self.open = False
            self.afterRead()
        self.reader = self._postponedSince = None
        while self._waiting or self._later:
            if not self._waiting:
                self._workLater()
            waiting = self._waiting
            self._waiting = []
            for outbox in waiting:
                try:
                    outbox.flush()
                except Exception:
                    _log.failure(_FAILED)

    def _workLater(self) -> None:
        later, self._later = self._later, {}
        for call in later:
            try:
                call()
            except Exception:
                _log.failure(_FAILED)
