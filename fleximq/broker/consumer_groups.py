"""Progress of the pipeline's consumer groups in the journal, as they report it.

Retention does not wait for groups; it only warns before it deletes records that a group has not read.
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
    follow,
    groupsIn,
)

#: Microseconds of silence (a day) after which a group may be forgotten if too many exist.
SILENT = 86_400_000_000


class ConsumerGroups:
    """The groups by name, each with its last report; ``wall`` returns the microseconds since 1970."""

    def __init__(self, journal: IJournalAppend, wall: Callable[[], int]) -> None:
        self.wall = wall
        self._journal = journal
        self._groups: dict[str, GroupProgress] = {}
        #: The dead letters of groups that have reported them since the broker started.
        self.dead: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[GroupProgress]:
        return iter(self._groups.values())

    def get(self, name: str) -> GroupProgress | None:
        """Return the last report of a group; None if it is unknown."""
        return self._groups.get(name)

    def reached(self, words: list[GroupProgress]) -> None:
        """Accept reports of groups, all or none; unchanged progress is not written. If there are too many groups, those
        silent longest, for a day at least, are forgotten; raises NoCapacity if these are too few.
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
        """Forget a group until its next report; False if it is unknown."""
        if self._groups.pop(name, None) is None:
            return False
        self.dead.pop(name, None)
        self._journal.appendState(GroupForgotten(name))
        return True

    def reading(self) -> dict[str, int]:
        """Return the offset that each group reads next."""
        return {name: word.next for name, word in self._groups.items()}

    def restore(self, snapshot: Any) -> None:
        """Load the groups of a broker's snapshot."""
        self._groups = groupsIn(snapshot)

    def noted(self, note: StateRecord) -> None:
        """Apply a state record of the log."""
        follow(self._groups, note)
