"""Limits how many schedules, or values, each principal has. Principals are stored as small numbers, their indexes."""

from collections import Counter
from collections.abc import Sequence

from fleximq.errors import NoCapacity, TooManyRequests

#: Further principals share the index 0 and its limit with anonymous clients.
_MOST = 65_535


class Owners:
    """Counts the schedules or values of each principal; the principal None is all anonymous clients.

    :param what: what is counted, in the plural, for errors.
    :param most: the maximum number for all.
    :param mostEach: the maximum number for one principal.
    """

    def __init__(self, what: str, most: int, mostEach: int) -> None:
        self._what = what
        self.most = most
        self.mostEach = mostEach
        self._names: list[str | None] = [None]
        self._indexes: dict[str | None, int] = {None: 0}
        self._counts: Counter[int] = Counter()
        self._all = 0

    def claim(self, principal: str | None, number: int) -> int:
        """Count new schedules or values of a principal, and return its index.

        :raises TooManyRequests: it has as many as one principal may have.
        :raises NoCapacity: there are as many as the broker may have.
        """
        index = self.index(principal)
        if self._counts[index] + number > self.mostEach:
            who = principal or "anonymous"
            raise TooManyRequests(f"{who} has {self._counts[index]} {self._what}, and may have {self.mostEach}")
        if self._all + number > self.most:
            raise NoCapacity(f"the broker has {self._all} {self._what}, and may have {self.most}")
        self._counts[index] += number
        self._all += number
        return index

    def add(self, principal: str | None, number: int) -> int:
        """Count schedules or values without a look at the limits, and return the index of their principal: those in the
        journal at a start, and values that replace others.
        """
        index = self.index(principal)
        self._counts[index] += number
        self._all += number
        return index

    def release(self, index: int, number: int = 1) -> None:
        """Count ended ones no more."""
        self._counts[index] -= number
        self._all -= number

    def index(self, principal: str | None) -> int:
        """Return the index of a principal."""
        index = self._indexes.get(principal)
        if index is None:
            if len(self._names) > _MOST:
                return 0
            index = self._indexes[principal] = len(self._names)
            self._names.append(principal)
        return index

    def name(self, index: int) -> str | None:
        """Return the principal with this index."""
        return self._names[index]

    @property
    def names(self) -> Sequence[str | None]:
        """All principals by their indexes."""
        return tuple(self._names)

    def load(self, names: Sequence[str | None], counts: Counter[int]) -> None:
        """Continue with the principals of a snapshot, and how many each has."""
        self._names = list(names)
        self._indexes = {name: index for index, name in enumerate(names)}
        self._counts = counts
        self._all = counts.total()
