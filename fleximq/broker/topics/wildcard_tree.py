"""All wildcard subscriptions, as a tree of the levels of their patterns.

In a pattern a level ``*`` matches one level, and a last level ``#`` any number of levels, none included. Names that
begin with ``$`` match no wildcard at their first level (docs/reference/dialects.rst).
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from fleximq.broker.topics.names import checkPattern, levelsOf
from fleximq.interfaces import ISubscriber


class _Node:
    """One level of patterns.

    The counters hold one entry for each subscription, since patterns that differ only in ``.`` and ``/`` share a node.
    """

    __slots__ = ("children", "ending", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.ending: Counter[ISubscriber] = Counter()
        self.rest: Counter[ISubscriber] = Counter()

    def empty(self) -> bool:
        return not (self.children or self.ending or self.rest)


class Wildcards:
    """The subscribers of all patterns; the length is the number of subscriptions."""

    def __init__(self) -> None:
        self._root = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, subscriber: ISubscriber, pattern: str) -> None:
        """Add a subscriber to a pattern; each call needs one of :meth:`remove`.

        :raises InvalidTopic: the pattern is too long, or has too many levels.
        """
        checkPattern(pattern)
        levels, rest = _split(pattern)
        node = self._root
        for level in levels:
            node = node.children.setdefault(level, _Node())
        (node.rest if rest else node.ending)[subscriber] += 1
        self._count += 1

    def remove(self, subscriber: ISubscriber, pattern: str) -> bool:
        """Take a subscriber off a pattern once; False if it was not there."""
        levels, rest = _split(pattern)
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        place = path[-1].rest if rest else path[-1].ending
        if subscriber not in place:
            return False
        place[subscriber] -= 1
        if not place[subscriber]:
            del place[subscriber]
        for depth in range(len(path) - 1, 0, -1):
            if path[depth].empty():
                del path[depth - 1].children[levels[depth - 1]]
        self._count -= 1
        return True

    def matching(self, name: str) -> Iterator[Iterable[ISubscriber]]:
        """Yield the subscribers of every pattern that matches, walking the tree one level at a time."""
        levels = levelsOf(name)
        nodes = [self._root]
        for depth, level in enumerate(levels):
            wild = depth > 0 or not name.startswith("$")
            deeper: list[_Node] = []
            for node in nodes:
                if wild and node.rest:
                    yield node.rest
                for key in (level, "*") if wild and level != "*" else (level,):
                    child = node.children.get(key)
                    if child is not None:
                        deeper.append(child)
            nodes = deeper
            if not nodes:
                return
        for node in nodes:
            yield node.rest
            yield node.ending


def _split(pattern: str) -> tuple[list[str], bool]:
    """Return the levels of a pattern, and whether any number of levels may follow."""
    levels = levelsOf(pattern)
    rest = levels[-1] == "#"
    return levels[: len(levels) - rest], rest
