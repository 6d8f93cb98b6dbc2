"""Which names topics and patterns can have. Their levels are separated by ``.`` or ``/`` (docs/dialects.rst)."""

import re

from fleximq.errors import InvalidTopic
from fleximq.limits import TOPIC_BYTES, isTooLong

#: Most levels of a pattern: each takes half a kilobyte, and a name has room for 512.
PATTERN_LEVELS = 32

#: Returns the levels of a name.
levelsOf = re.compile(r"[./]").split

#: The first levels of topics to which only the broker publishes.
_OWN = frozenset({"$sys", "$dead"})


def isOwn(name: str) -> bool:
    """Tell whether only the broker publishes to a topic of this name, whichever way its levels are separated."""
    return name.startswith("$") and levelsOf(name, 1)[0] in _OWN


def checkName(name: str) -> None:
    """Refuse a name that no topic can have. The prefix of a dead-letter topic does not count.

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
    """Refuse a pattern that nobody can subscribe to.

    :raises InvalidTopic: it is empty or too long, or has more than :data:`PATTERN_LEVELS` levels.
    """
    checkName(pattern)
    if len(levelsOf(pattern)) > PATTERN_LEVELS:
        raise InvalidTopic(f"a pattern has at most {PATTERN_LEVELS} levels")
