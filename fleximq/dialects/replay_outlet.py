"""A connection's side of what the journal brings it (:mod:`fleximq.broker.replay.feed`).

What is read for a connection comes on top of what it may leave unread: it asked for it, and must not be cut off as a
slow consumer for the size of the past. It is read in portions, and the next one only when most of the last was taken.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.replay.feed import DeferredForm
from fleximq.dialects.outbox import Outbox
from fleximq.errors import BrokerError
from fleximq.interfaces import ISubscriber
from fleximq.limits import MEBIBYTE
from fleximq.values.records import StoredBatch

#: So many bytes are read at a time.
CHUNK_BYTES = MEBIBYTE
#: With more than this unread, a connection gets no further portion.
LOW_WATER = 1 << 18


class ReplayOutlet:
    """Sends what the journal has to one connection.

    :param form: how runs are handed on; ``render`` turns records into the same.
    :param failed: says that the subscription of this name has ended.
    """

    def __init__(
        self,
        subscriber: ISubscriber,
        outbox: Outbox,
        clock: IReactorTime,
        form: DeferredForm,
        render: Callable[[Sequence[StoredBatch]], bytes],
        failed: Callable[[BrokerError, str], None] = lambda error, name: None,
    ) -> None:
        self.subscriber = subscriber
        self.form = form
        self.chunkBytes = CHUNK_BYTES
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
        """Call when the connection has taken what it was given, in a moment: this may be the middle of a write."""
        self._outbox.whenRelieved(lambda: self.soon(call))

    def soon(self, call: Callable[[], None]) -> None:
        """Call when others had their turn, and what was given was written."""
        self._clock.callLater(0, call)

    def send(self, rendered: Any) -> None:
        """Send a run."""
        self._lend(LOW_WATER + 2 * len(rendered))
        self._outbox.take(rendered)

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Send records."""
        self.send(self._render(batches))

    def _lend(self, size: int) -> None:
        """Let so much come on top of the mark: this portion, one before, and what is left of others."""
        if size > self._lent:
            self._outbox.limit += size - self._lent
            self._lent = size

    def close(self) -> None:
        """Take back what was lent as soon as it is not needed."""
        if self._outbox.space == self._outbox.limit:
            self._takeBack()
        else:
            self._outbox.whenRelieved(self._takeBack)

    def _takeBack(self) -> None:
        self._outbox.limit -= self._lent
        self._lent = 0
