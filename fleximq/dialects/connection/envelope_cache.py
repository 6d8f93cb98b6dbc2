"""A connection's frequent envelopes, parsed, so that a repeated one costs a single look-up.

All connections of a listener share a budget too: when it is used up, a connection with more than :data:`MIN_ENTRIES`
entries drops its oldest for each new one.
"""

from typing import Generic, TypeVar

#: Maximum number of envelopes for one connection, and of their bytes.
MAX_ENTRIES = 4096
MAX_BYTES = 256 * 1024
#: Entries that each connection may have even when the shared budget is used up.
MIN_ENTRIES = 16
#: Estimated memory of one entry without its key, including a topic that only the entry still references.
ENTRY_BYTES = 768
#: The shared budget of a listener, in bytes; :data:`MIN_ENTRIES` of each connection may exceed it.
BUDGET_BYTES = 128 * 1024 * 1024


Parsed = TypeVar("Parsed")


class CacheBudget:
    """The memory that all connections of a listener share; ``remaining`` is in bytes and may become negative."""

    __slots__ = ("remaining",)

    def __init__(self, size: int = BUDGET_BYTES) -> None:
        self.remaining = size


class EnvelopeCache(dict[bytes, Parsed], Generic[Parsed]):
    """Parsed envelopes by their bytes, charged to ``budget`` until :meth:`clear`; drops the oldest when full.

    ``hasDropped``: there are more different envelopes than it holds.
    """

    __slots__ = ("_budget", "_bytes", "_entries", "hasDropped", "size")

    def __init__(self, budget: CacheBudget, entries: int = MAX_ENTRIES, size: int = MAX_BYTES) -> None:
        super().__init__()
        self._budget = budget
        self._entries = entries
        self._bytes = size
        self.size = 0
        self.hasDropped = False

    def remember(self, key: bytes, envelope: Parsed) -> None:
        """Add an envelope, unless its key is larger than the whole cache."""
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
        """Remove an envelope if present; used when its topic has left the topic table."""
        if self.pop(key, None) is not None:
            self._release(key)

    def clear(self) -> None:
        """Remove all entries and release their budget."""
        self._budget.remaining += self.size + ENTRY_BYTES * len(self)
        self.size = 0
        self.hasDropped = False
        super().clear()

    def _dropOldest(self) -> None:
        self.hasDropped = True
        oldest = next(iter(self))
        del self[oldest]
        self._release(oldest)

    def _release(self, key: bytes) -> None:
        self.size -= len(key)
        self._budget.remaining += len(key) + ENTRY_BYTES
