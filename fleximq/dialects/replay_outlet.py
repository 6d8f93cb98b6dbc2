"""Passes messages from the journal to one connection as it reads them (:mod:`fleximq.broker.replay.feed`).

Replayed data is allowed in addition to the outbox limit, as the client requested it. It is read in chunks, the next one
when most of the last was sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from fleximq.broker.replay.feed import DeferredForm, IOutlet
from fleximq.broker.slices import Slices
from fleximq.dialects.outbox import Outbox
from fleximq.errors import BrokerError
from fleximq.interfaces import ISubscriber
from fleximq.limits import MEBIBYTE
from fleximq.values.records import StoredBatch

#: Bytes read from the journal at a time.
CHUNK_BYTES = MEBIBYTE
#: With more unsent bytes, a connection gets no further chunk.
LOW_WATER = 1 << 18


@implementer(IOutlet)
@dataclass(eq=False)
class ReplayOutlet:
    """Sends replayed messages to one connection.

    ``form`` renders live runs, ``render`` records, in slices if it is slow; ``take`` sends both. ``onFailed`` is called
    when the subscription of this name has failed.
    """

    subscriber: ISubscriber
    outbox: Outbox
    clock: IReactorTime
    form: DeferredForm
    render: Callable[[Sequence[StoredBatch]], bytes]
    take: Callable[[Any], None]
    onFailed: Callable[[BrokerError, str], None] = lambda error, name: None
    slices: Slices | None = None
    chunkBytes: int = CHUNK_BYTES
    _lent: int = field(default=0, init=False)

    @property
    def full(self) -> bool:
        """Whether the connection should get no more for now."""
        return self.outbox.waiting > LOW_WATER

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call in a later reactor turn, once the connection has sent its output, because a write may be in progress."""
        self.outbox.whenRelieved(lambda: self.soon(call))

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next reactor turn, after pending output was written."""
        self.clock.callLater(0, call)

    def send(self, rendered: Any) -> None:
        """Send a run, in a limit raised for this chunk, the one before, and the rest of other output."""
        size = LOW_WATER + 2 * len(rendered)
        if size > self._lent:
            self.outbox.limit += size - self._lent
            self._lent = size
        self.take(rendered)

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Send records."""
        self.send(self.render(batches))

    def failed(self, error: BrokerError, name: str) -> None:
        """Report that the subscription of this name has ended."""
        self.onFailed(error, name)

    def close(self) -> None:
        """Restore the outbox limit as soon as the output allows it."""
        if self.outbox.space == self.outbox.limit:
            self._takeBack()
        else:
            self.outbox.whenRelieved(self._takeBack)

    def _takeBack(self) -> None:
        self.outbox.limit -= self._lent
        self._lent = 0
