"""What a connection's frequent envelopes mean, so that a repeated one costs one look-up."""

from fleximq.broker.values import Envelope

#: Most envelopes that are remembered for one connection, and the most bytes of them.
MOST_ENTRIES = 4096
MOST_BYTES = 256 * 1024


class EnvelopeCache(dict[bytes, Envelope]):
    """A dict from the bytes of an envelope to what they mean; the oldest go when it is full."""

    def __init__(self, entries: int = MOST_ENTRIES, size: int = MOST_BYTES) -> None:
        super().__init__()
        self._entries = entries
        self._bytes = size
        self.size = 0

    def remember(self, key: bytes, envelope: Envelope) -> None:
        """Keep a new envelope; one that is larger than the whole cache is not kept."""
        if len(key) > self._bytes or key in self:
            return
        self[key] = envelope
        self.size += len(key)
        while len(self) > self._entries or self.size > self._bytes:
            oldest = next(iter(self))
            del self[oldest]
            self.size -= len(oldest)

    def forget(self, key: bytes) -> None:
        """Keep an envelope no longer, if it is kept at all: its topic left the table."""
        if self.pop(key, None) is not None:
            self.size -= len(key)
