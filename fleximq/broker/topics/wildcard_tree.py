"""All wildcard subscriptions, as a tree of the levels of their patterns (:mod:`fleximq.values.patterns`)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleximq.broker.topics.names import checkPattern
from fleximq.values.patterns import levelsOf, partsOf

#: A branch with more subscribers is walked in any case: looking them up could take longer than walking it.
_FEW = 32


@dataclass(slots=True, eq=False, repr=False)
class _Node:
    """One level of patterns. The dicts count subscriptions, since patterns that differ only in ``.`` and ``/`` share a
    node; ``below`` counts all those of this level and of deeper ones.
    """

    children: dict[str, "_Node"] = field(default_factory=dict)
    ending: dict[Any, int] = field(default_factory=dict)
    rest: dict[Any, int] = field(default_factory=dict)
    below: dict[Any, int] = field(default_factory=dict)


class Wildcards:
    """The subscribers of all patterns; the length is the number of subscriptions."""

    def __init__(self) -> None:
        self._root = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, subscriber: Any, pattern: str) -> None:
        """Add a subscriber, any hashable object, to a pattern, until one :meth:`remove`; raises InvalidTopic."""
        checkPattern(pattern)
        levels, rest = partsOf(pattern)
        node = self._root
        for level in levels:
            node = node.children.setdefault(level, _Node())
            node.below[subscriber] = node.below.get(subscriber, 0) + 1
        place = node.rest if rest else node.ending
        place[subscriber] = place.get(subscriber, 0) + 1
        self._count += 1

    def remove(self, subscriber: Any, pattern: str) -> bool:
        """Take a subscriber off a pattern once; False if it was not there."""
        levels, rest = partsOf(pattern)
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        place = path[-1].rest if rest else path[-1].ending
        if subscriber not in place:
            return False
        for counts in (place, *[node.below for node in path[1:]]):
            counts[subscriber] -= 1
            if not counts[subscriber]:
                del counts[subscriber]
        for depth in range(len(path) - 1, 0, -1):
            if not path[depth].below:
                del path[depth - 1].children[levels[depth - 1]]
        self._count -= 1
        return True

    def matching(self, name: str) -> Collection[Any]:
        """Return the subscribers of all patterns that match."""
        found: dict[Any, int] = {}
        for place in self._places(name, found):
            found.update(place)
        return found

    def count(self, name: str, others: Collection[Any]) -> int:
        """Return the number of subscribers of each pattern that matches, together, without ``others``."""
        return sum(len(place) - sum(each in place for each in others) for place in self._places(name, {}))

    def _places(self, name: str, found: Mapping[Any, int]) -> Iterator[Mapping[Any, int]]:
        """Iterate over the subscribers of patterns that match, perhaps without branches that add none to ``found``."""
        levels = levelsOf(name)
        branches = [(self._root, 0)]
        while branches:
            node, depth = branches.pop()
            if 0 < len(node.below) <= _FEW and node.below.keys() <= found.keys():
                continue
            wild = depth > 0 or not name.startswith("$")
            if wild:
                yield node.rest
            if depth == len(levels):
                yield node.ending
                continue
            level = levels[depth]
            for key in ("*", level) if wild and level != "*" else (level,):
                child = node.children.get(key)
                if child is not None:
                    branches.append((child, depth + 1))
