"""Which names topics and patterns can have. Their levels are separated by ``.`` or ``/`` (docs/dialects.rst)."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from fleximq.errors import InvalidTopic
from fleximq.limits import TOPIC_BYTES, isTooLong

#: Most levels of a pattern: each takes half a kilobyte, and a name has room for 512.
PATTERN_LEVELS = 32

#: Returns the levels of a name.
levelsOf = re.compile(r"[./]").split

#: The first levels of topics to which only the broker publishes.
_OWN = frozenset({"$sys", "$dead"})


def isBrokerTopic(name: str) -> bool:
    """Tell whether only the broker publishes to a topic of this name, whichever way its levels are separated."""
    return name.startswith("$") and levelsOf(name, 1)[0] in _OWN


def checkName(name: str) -> None:
    """Check the name of a topic; the prefix of a dead-letter topic does not count.

    :raises InvalidTopic: it is empty, or longer than 1,024 bytes of UTF-8.
    """
    if not name:
        raise InvalidTopic("the topic is empty")
    if isTooLong(name):
        raise InvalidTopic(f"the topic is longer than {TOPIC_BYTES} bytes")


def isPattern(name: str) -> bool:
    """Tell whether a subscription to ``name`` has a wildcard level."""
    if "*" not in name and "#" not in name:
        return False
    levels = levelsOf(name)
    return "*" in levels or levels[-1] == "#"


def checkPattern(pattern: str) -> None:
    """Check the pattern of a subscription.

    :raises InvalidTopic: it is empty or too long, or has more than :data:`PATTERN_LEVELS` levels.
    """
    checkName(pattern)
    if len(levelsOf(pattern)) > PATTERN_LEVELS:
        raise InvalidTopic(f"a pattern has at most {PATTERN_LEVELS} levels")


class SortedNames:
    """A mapping's names in order, sorted again only if they changed since the last call.

    A page costs 0.03 us for each name, less if the mapping is the same object as the last time. Callers must not change
    a mapping they have passed.
    """

    def __init__(self) -> None:
        self._names: Mapping[str, Any] = {}
        self._sorted: list[str] = []

    def after(self, names: Mapping[str, Any], after: str) -> Iterator[str]:
        """Return the names greater than ``after``, in order."""
        if names is not self._names:
            if len(names) != len(self._sorted) or not all(map(names.__contains__, self._sorted)):
                self._sorted = sorted(names)
            self._names = names
        return islice(self._sorted, bisect_right(self._sorted, after), None)
