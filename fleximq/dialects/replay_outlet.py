"""Passes messages from the journal to one connection as it reads them (:mod:`fleximq.broker.replay.feed`).

Replayed data is allowed in addition to the outbox limit: the client requested it, and must not be disconnected as a
slow consumer because of its size. It is read in chunks, the next one when most of the last was sent.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.replay.feed import DeferredForm
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


class ReplayOutlet:
    """Sends replayed messages to one connection.

    ``form`` renders live runs, ``render`` records, in slices if it is slow. ``failed`` is called when the subscription
    of this name has failed.
    """

    def __init__(
        self,
        subscriber: ISubscriber,
        outbox: Outbox,
        clock: IReactorTime,
        form: DeferredForm,
        render: Callable[[Sequence[StoredBatch]], bytes],
        failed: Callable[[BrokerError, str], None] = lambda error, name: None,
        slices: Slices | None = None,
    ) -> None:
        self.subscriber = subscriber
        self.form = form
        self.chunkBytes = CHUNK_BYTES
        self.slices = slices
        self.failed = failed
        self._outbox = outbox
        self._clock = clock
        self._render = render
        self._lent = 0

    @property
    def full(self) -> bool:
        """Whether the connection should get no more for now."""
        return self._outbox.waiting > LOW_WATER

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call in a later reactor turn, once the connection has sent its output, because a write may be in progress."""
        self._outbox.whenRelieved(lambda: self.soon(call))

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next reactor turn, after pending output was written."""
        self._clock.callLater(0, call)

    def send(self, rendered: Any) -> None:
        """Send a run."""
        self._lend(LOW_WATER + 2 * len(rendered))
        self._outbox.take(rendered)

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Send records."""
        self.send(self._render(batches))

    def _lend(self, size: int) -> None:
        """Raise the outbox limit: for this chunk, the one before, and the rest of other output."""
        if size > self._lent:
            self._outbox.limit += size - self._lent
            self._lent = size

    def close(self) -> None:
        """Restore the outbox limit as soon as the output allows it."""
        if self._outbox.space == self._outbox.limit:
            self._takeBack()
        else:
            self._outbox.whenRelieved(self._takeBack)

    def _takeBack(self) -> None:
        self._outbox.limit -= self._lent
        self._lent = 0
