"""How far the consumer groups of the pipeline are with the journal; they say so, and the journal remembers.

Nothing here holds a message back: retention only warns before it removes what a group has not read.
"""

from collections.abc import Callable, Iterator
from typing import Any

from fleximq.errors import NoCapacity
from fleximq.interfaces import IJournalAppend
from fleximq.values.state_records import (
    MAX_GROUPS,
    GroupForgotten,
    GroupProgress,
    StateRecord,
    dumped,
    follow,
    groupsIn,
)

#: A group that has said nothing for so long (a day, in microseconds) makes room where there are too many.
SILENT = 86_400_000_000


class ConsumerGroups:
    """The groups by name, each with its last word.

    :param journal: is told of changes, to remember them.
    :param wall: returns the microseconds since 1970.
    """

    def __init__(self, journal: IJournalAppend, wall: Callable[[], int]) -> None:
        self.wall = wall
        self._journal = journal
        self._groups: dict[str, GroupProgress] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[GroupProgress]:
        return iter(self._groups.values())

    def get(self, name: str) -> GroupProgress | None:
        """Return the last word of a group; None if there is none of this name."""
        return self._groups.get(name)

    def reached(self, words: list[GroupProgress]) -> None:
        """Take what groups say of themselves, all of it or nothing.

        A group that is where it was costs the journal nothing. Where there would be too many groups, those are
        forgotten that have said nothing for the longest time, a day at least.

        :raises NoCapacity: there would be more groups than there may be.
        """
        self._makeRoom({word.group for word in words})
        for word in words:
            before = self._groups.get(word.group)
            word = word._replace(time=min(word.time, self.wall()))
            self._groups[word.group] = word
            if before is None or before._replace(time=word.time) != word:
                self._journal.appendState(word)

    def _makeRoom(self, names: set[str]) -> None:
        tooMany = len(self._groups.keys() | names) - MAX_GROUPS
        if tooMany <= 0:
            return
        before = self.wall() - SILENT
        silent = [word for word in self._groups.values() if word.time <= before and word.group not in names]
        if len(silent) < tooMany:
            raise NoCapacity(f"there may be {MAX_GROUPS} consumer groups, and there are {len(self._groups)}")
        for word in sorted(silent, key=lambda word: word.time)[:tooMany]:
            self.forget(word.group)

    def forget(self, name: str) -> bool:
        """Forget a group until it says something again; False if there is none of this name."""
        if self._groups.pop(name, None) is None:
            return False
        self._journal.appendState(GroupForgotten(name))
        return True

    def reading(self) -> dict[str, int]:
        """Return the offset that each group reads next."""
        return {name: word.next for name, word in self._groups.items()}

    def snapshot(self) -> list[list[Any]]:
        """Return all groups as MessagePack can hold them."""
        return dumped(self)

    def restore(self, snapshot: Any) -> None:
        """Take the groups of a broker's snapshot."""
        self._groups = groupsIn(snapshot)

    def noted(self, note: StateRecord) -> None:
        """Take in a note of the log."""
        follow(self._groups, note)
