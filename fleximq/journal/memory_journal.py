"""The volatile journal: everything is as safe as it will ever be at once.

It has the interface of the one on disk, so that the broker has one way of keeping a durable publication.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zope.interface import implementer

from fleximq.errors import NotKept
from fleximq.interfaces import IJournal
from fleximq.values.message import Message
from fleximq.values.records import BacklogSize

_NONE = "there is no journal"


@implementer(IJournal)
class MemoryJournal:
    """Keeps nothing beyond the queues' own memory, and says yes at once."""

    onDisk = False
    id = ""
    appended = decided = 0
    overloaded = False
    end = 1

    def append(self, envelope: Any, body: Any, count: int, committed: Callable[[int, str | None], None]) -> int:
        """Call ``committed(0, None)`` before returning."""
        committed(0, None)
        return 0

    def whenCommitted(self, call: Callable[[], None], number: int | None = None) -> None:
        """Call before returning."""
        call()

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call before returning."""
        call()

    def appendState(self, event: Any) -> None:
        """Nothing outlives the process, so there is nothing to note."""

    def fetch(self, offsets: Sequence[int], most: int, found: Callable[[list[Message]], None]) -> None:
        """Nothing can be read back."""
        found([])

    def read(
        self, offset: int, wanted: Callable[[str], bool], most: int, found: Callable[[Sequence[Any], int], None]
    ) -> None:
        """Nothing can be read back."""
        found([], self.end)

    def bounds(self) -> Mapping[str, Any]:
        """No topic has anything."""
        return {}

    def backlogFrom(self, offset: int) -> BacklogSize:
        """Nothing is kept."""
        return BacklogSize(0, 0)

    def offsetAt(self, time: int, found: Callable[[int], None]) -> None:
        """Nothing was ever appended."""
        found(self.end)

    def advance(
        self, start: int, end: int, records: int | None, size: int | None, found: Callable[[int, int, int], None]
    ) -> None:
        """There are no records."""
        found(max(start, end), 0, 0)

    def readBytes(self, position: int, most: int, found: Callable[[int, bytes | memoryview, int], None]) -> None:
        """There are no bytes."""
        found(0, b"", 0)

    def stage(
        self, query: str, batch: int, part: str, run: Any, found: Callable[[str | None, str | None], None]
    ) -> None:
        """Nothing can be staged."""
        found(None, _NONE)

    def commitStaged(
        self, query: str, batch: int, tokens: Sequence[str], committed: Callable[[int, str | None], None]
    ) -> None:
        """Nothing was staged.

        :raises NotKept: always.
        """
        raise NotKept(_NONE)

    def abortStaged(self, query: str, batch: int) -> None:
        """Nothing was staged."""

    def stagedTopics(self, query: str, batch: int) -> set[str]:
        """Return none: nothing was staged."""
        return set()

    def reopen(self, found: Callable[[str | None], None]) -> None:
        """There is nothing to open."""
        found(None)

    def health(self) -> Mapping[str, Any]:
        """Nothing can go wrong."""
        return {"state": "ok", "reason": ""}
