"""The limit of the number of topics in the journal."""

from collections.abc import Collection, Iterable

from fleximq.errors import NotKept
from fleximq.limits import DEAD


class TopicLimit:
    """Limits the topics of the journal; a restart, and dead letters, may add more. ``known`` are the topics with
    committed records, ``pending`` those with uncommitted first records.
    """

    def __init__(self, most: int, known: Collection[str]) -> None:
        self._most = most
        self.known = known
        self.pending: set[str] = set()

    def check(self, topics: Iterable[str], count: int) -> set[str]:
        """Return the new topics among these. Raises NotKept for ``count`` messages if they are too many."""
        new = {each for each in topics if each not in self.known and each not in self.pending}
        most = self._most
        if new and most and len(self.known) + len(self.pending) + len(new) > most:
            if not all(each.startswith(DEAD) for each in new):
                raise NotKept(f"the journal may have at most {most} topics", range(count))
        return new

    def settled(self) -> None:
        """Count the topics of a commit as known."""
        self.pending.difference_update([each for each in self.pending if each in self.known])
