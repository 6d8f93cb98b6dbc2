"""One write per connection and reactor turn.

While a read is processed, outboxes with output register here; at its end each writes once. Then follows the work for
slow readers: their policy and backlogs. Output made outside a read is written in the next reactor turn.

Few bytes for each of many outboxes would cost a write each, so after a full read they wait for the next reads, at most
:data:`HELD` seconds. Measured with 1,000 topics that have a subscriber each: three times as many messages.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.connection.shared_output import CAN_SHARE, SHARERS, SharedOutput
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.connection.write_backlog import Chunk

_log = Logger()

_FAILED = "the output of one connection could not be written"
#: Output waits for the next reads if so many outboxes have output, and the last one less than so many bytes.
MANY, SMALL_BYTES = 64, 4096
#: The longest wait, in seconds.
HELD = 0.005
#: Sheets of a large backlog freed at a time, about 30 us; 64 MiB at once would take 2 ms.
_FREED = 16


def doNothing() -> None:
    """Do nothing after a read, the default."""


class TurnWriter(Protocol):
    """An object that writes at the end of a turn: an outbox, or the channel list that serves several."""

    def flush(self) -> None:
        """Write pending output."""

    @property
    def fresh(self) -> int:
        """The number of pending bytes."""

    @property
    def large(self) -> Chunk | None:
        """See :class:`~fleximq.dialects.connection.shared_output.Sender`."""


class WriteTurn:
    """The objects with pending output. While a read is processed, ``open`` is set and ``reader`` is its connection.

    ``afterRead`` is called at the end of each read. ``shared`` is the output of several connections, while they write.
    """

    __slots__ = ("_checks", "_clock", "_heldSince", "_holds", "_later", "_waiting", "afterRead", "open", "reader",
                 "shared")  # fmt: skip

    def __init__(self, clock: IReactorTime) -> None:
        self.open = False
        self.afterRead: Callable[[], None] = doNothing
        self.reader: PausablePublisher | None = None
        self._clock = clock
        self._waiting: list[TurnWriter] = []
        self._later: dict[Callable[[], None], None] = {}
        self.shared: SharedOutput | None = None
        self._heldSince: float | None = None
        self._holds = 0
        self._checks = False

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

    def hold(self, now: float) -> bool:
        """End the turn of a full read without writing, if its output may wait for the next read; False if not."""
        waiting = self._waiting
        if len(waiting) < MANY or self._later or waiting[-1].fresh >= SMALL_BYTES:
            return False
        if self._heldSince is None:
            self._heldSince = now
        elif now - self._heldSince > HELD:
            return False
        self._holds += 1
        if not self._checks:
            self._checks = True
            self._clock.callLater(0, self._check, 0)
        self._endRead()
        return True

    def _check(self, seen: int) -> None:
        """Write what was held back, if no read was held back since the last reactor turn."""
        if self._heldSince is not None and self._holds != seen:
            self._clock.callLater(0, self._check, self._holds)
            return
        self._checks = False
        if self._heldSince is not None:
            self.flush()

    def _endRead(self) -> None:
        if self.open:
            self.open = False
            self.afterRead()
        self.reader = None

    def flush(self) -> None:
        """End the turn: write all pending output, then do the work for slow readers."""
        self._endRead()
        self._heldSince = None
        while self._waiting or self._later:
            if not self._waiting:
                self._workLater()
            waiting = self._waiting
            self._waiting = []
            if CAN_SHARE and len(waiting) >= SHARERS and waiting[-1].large is not None:
                self.shared = SharedOutput(waiting)
            for outbox in waiting:
                try:
                    outbox.flush()
                except Exception:
                    _log.failure(_FAILED)
            if self.shared is not None:
                self.shared.close()
                self.shared = None

    def _workLater(self) -> None:
        later, self._later = self._later, {}
        for call in later:
            try:
                call()
            except Exception:
                _log.failure(_FAILED)
