"""Which names topics and patterns can have, in levels separated by ``.`` or ``/`` (docs/reference/dialects.rst)."""

from collections.abc import Iterator
from itertools import product, takewhile

from fleximq.errors import InvalidTopic
from fleximq.limits import TOPIC_BYTES, isTooLong
from fleximq.values.patterns import levelsOf

#: Most levels of a pattern: each takes half a kilobyte, and a name has room for 512.
PATTERN_LEVELS = 32
#: Most levels ``*`` of a pattern with more levels than this: a name is looked up in all subsets of the ``*`` levels, so
#: these limits bound one search to 1,623 nodes, about 1 ms.
_MOST_WILD = {16: 1, 8: 2}

#: The first levels of topics to which only the broker publishes.
_OWN = frozenset({"$sys", "$dead", "$queue", "$subscription"})


def isBrokerTopic(name: str) -> bool:
    """Tell whether only the broker publishes to a topic of this name, whichever way its levels are separated."""
    return name.startswith("$") and levelsOf(name, 1)[0] in _OWN


def checkName(name: str) -> None:
    """Check that a topic has a name, of at most 1,024 bytes without the prefix of dead letters; raises InvalidTopic."""
    if not name:
        raise InvalidTopic("the topic is empty")
    if isTooLong(name):
        raise InvalidTopic(f"the topic is longer than {TOPIC_BYTES} bytes")


def checkPattern(pattern: str) -> None:
    """Check that a pattern is neither empty nor too long, has not too many levels nor ``*``; raises InvalidTopic."""
    checkName(pattern)
    levels = levelsOf(pattern)
    if len(levels) > PATTERN_LEVELS:
        raise InvalidTopic(f"a pattern has at most {PATTERN_LEVELS} levels")
    wild = levels.count("*")
    for length, most in _MOST_WILD.items():
        if len(levels) > length and wild > most:
            raise InvalidTopic(f"a pattern of more than {length} levels has at most {most} levels '*'")


def rangesOf(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield ranges of names, from one up to another, that contain all matches of a pattern, by its first levels.

    An empty end is no limit. More than four levels would make too many ranges, as each separator may be either.
    """
    levels = levelsOf(pattern)
    literal = list(takewhile(lambda level: level not in ("*", "#"), levels[:4]))
    if not literal:
        yield "", ""
        return
    for separators in product("./", repeat=len(literal) - 1):
        prefix = literal[0] + "".join(map("".join, zip(separators, literal[1:], strict=True)))
        yield prefix, prefix + "0"  # the character after both separators
