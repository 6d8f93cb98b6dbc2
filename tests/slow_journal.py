"""A journal that commits, or refuses, only when a test says so, as a disk does."""

from collections.abc import Callable
from typing import Any

from fleximq.journal.memory import MemoryJournal


class SlowJournal(MemoryJournal):
    """Gives offsets from 1; ``notes`` holds what was noted, ``kept`` each run's envelope, body and count."""

    onDisk = True

    def __init__(self) -> None:
        self.appended = self.safe = 0
        self.end = self._next = 1
        self.notes: list[Any] = []
        self.kept: list[tuple[Any, Any, int]] = []
        self._waiting: list[tuple[int, Callable[[str | None], None]]] = []

    def append(self, envelope: Any, body: Any, count: int, committed: Callable[[int, str | None], None]) -> int:
        """Keep a run until :meth:`commit`."""
        self.appended += 1
        offset = self._next
        self._next += count
        self.kept.append((envelope, body, count))

        def told(reason: str | None) -> None:
            if reason is None:
                self.end = offset + count
            committed(offset if reason is None else 0, reason)

        self._waiting.append((self.appended, told))
        return self.appended

    def whenSafe(self, call: Callable[[], None], number: int | None = None) -> None:
        """Call behind the run of this number, or behind all."""
        number = self.appended if number is None else number
        if number <= self.safe:
            call()
            return
        places = [place for place, (of, _) in enumerate(self._waiting) if of <= number]
        self._waiting.insert(places[-1] + 1, (number, lambda reason: call()))

    def note(self, event: Any) -> None:
        """Remember what was noted."""
        self.notes.append(event)

    def commit(self, reason: str | None = None) -> None:
        """Say of everything appended so far that it is safe, or why it is not kept."""
        waiting, self._waiting = self._waiting, []
        for number, told in waiting:
            self.safe = max(self.safe, number)
            told(reason)
