"""Which records are wanted: by topic, offset and time."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from fleximq.values.patterns import anyOf

#: Later and larger than all that there is.
FOREVER = (1 << 63) - 1
#: Earlier than all that there is.
NEVER = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Topics:
    """Some topics: those for which all that is given holds; without anything, all of them.

    ``names`` are those wanted, ``pattern`` a regular expression for the whole name, ``levels`` are patterns as in a
    subscription of which one has to match, ``prefixes`` are beginnings that a name must all have.
    """

    names: frozenset[str] | None = None
    pattern: str | None = None
    levels: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return (
            (self.names is None or name in self.names)
            and (self.pattern is None or re.fullmatch(self.pattern, name) is not None)
            and (not self.levels or _matching(self.levels)(name))
            and all(map(name.startswith, self.prefixes))
        )

    @property
    def all(self) -> bool:
        """Whether every topic is wanted."""
        return self.names is None and self.pattern is None and not self.levels and not self.prefixes

    def only(self, names: Iterable[str]) -> "Topics":
        """Return those of these topics that have one of these names."""
        wanted = frozenset(names)
        return replace(self, names=wanted if self.names is None else self.names & wanted)


@lru_cache(maxsize=16)
def _matching(levels: tuple[str, ...]) -> Callable[[str], bool]:
    return anyOf(levels)


@dataclass(frozen=True, slots=True)
class Selection:
    """Records of some topics, with offsets from ``start`` and times from ``since`` on, up to but without the ends.

    Times are microseconds since 1970.
    """

    topics: Topics = Topics()
    start: int = 0
    end: int = FOREVER
    since: int = NEVER
    until: int = FOREVER

    def within(self, start: int, end: int) -> "Selection":
        """Return what of this has offsets in a range."""
        return replace(self, start=max(self.start, start), end=min(self.end, end))

    @property
    def empty(self) -> bool:
        """Whether nothing can be selected, whatever there is."""
        return self.start >= self.end or self.since >= self.until or self.topics.names == frozenset()
