"""The volatile journal: everything is as safe as it will ever be at once.

It has the interface of the one on disk, so that the broker has one way of keeping a durable publication.
"""

from collections.abc import Callable, Sequence
from typing import Any

from zope.interface import implementer

from fleximq.interfaces import IJournal


@implementer(IJournal)
class MemoryJournal:
    """Keeps nothing beyond the queues' own memory, and says yes at once."""

    def append(self, envelope: Any, body: Any, count: int, committed: Callable[[str | None], None]) -> None:
        """Call ``committed(None)`` before returning."""
        committed(None)

    def whenSafe(self, call: Callable[[], None]) -> None:
        """Call before returning."""
        call()

    def acknowledged(self, queue: str, tags: Sequence[int]) -> None:
        """Nothing is kept, so there is nothing to let go."""
