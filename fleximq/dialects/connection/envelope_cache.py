"""What a connection's frequent envelopes mean, so that a repeated one costs one look-up.

A connection remembers only so many. All connections of a listener together have a purse besides: when it is empty, a
connection that has more than :data:`MIN_ENTRIES` gives up its own oldest for each new one.
"""

from fleximq.broker.envelope import Envelope

#: Most envelopes that are remembered for one connection, and the most bytes of them.
MAX_ENTRIES = 4096
MAX_BYTES = 256 * 1024
#: So many are remembered for each connection, whatever others remember.
MIN_ENTRIES = 16
#: Bytes that an entry takes besides its key, and a topic that was forgotten since and is kept by it.
ENTRY_BYTES = 768
#: Most bytes that all connections of a listener take for this together, :data:`MIN_ENTRIES` for each left out.
BUDGET_BYTES = 128 * 1024 * 1024


class CacheBudget:
    """What connections may spend together. ``left`` is in bytes; what each may in any case can make it negative."""

    __slots__ = ("remaining",)

    def __init__(self, size: int = BUDGET_BYTES) -> None:
        self.remaining = size


class EnvelopeCache(dict[bytes, Envelope]):
    """A dict from the bytes of an envelope to what they mean; the oldest go when it is full.

    :param budget: what it pays from; call :meth:`clear` to pay all back.
    """

    def __init__(self, budget: CacheBudget, entries: int = MAX_ENTRIES, size: int = MAX_BYTES) -> None:
        super().__init__()
        self._budget = budget
        self._entries = entries
        self._bytes = size
        self.size = 0

    def remember(self, key: bytes, envelope: Envelope) -> None:
        """Keep a new envelope; one that is larger than the whole cache is not kept."""
        if len(key) > self._bytes or key in self:
            return
        before = len(self)
        self[key] = envelope
        self.size += len(key)
        self._budget.remaining -= len(key) + ENTRY_BYTES
        while len(self) > self._entries or self.size > self._bytes:
            self._dropOldest()
        if self._budget.remaining < 0 and len(self) > max(before, MIN_ENTRIES):
            self._dropOldest()

    def forget(self, key: bytes) -> None:
        """Keep an envelope no longer, if it is kept at all: its topic left the table."""
        if self.pop(key, None) is not None:
            self._release(key)

    def clear(self) -> None:
        """Forget everything."""
        self._budget.remaining += self.size + ENTRY_BYTES * len(self)
        self.size = 0
        super().clear()

    def _dropOldest(self) -> None:
        oldest = next(iter(self))
        del self[oldest]
        self._release(oldest)

    def _release(self, key: bytes) -> None:
        self.size -= len(key)
        self._budget.remaining += len(key) + ENTRY_BYTES
