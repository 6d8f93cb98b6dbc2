"""Topic patterns compiled to one test, for durable topics, time to live and permissions.

They mean the same as in a subscription (docs/reference/dialects.rst): ``.`` or ``/`` separates levels, a level ``*``
matches one, a last level ``#`` any number, none included, and names that begin with ``$`` match no wildcard at their
first level. All patterns together cost one match, about 1 us.
"""

import re
from collections.abc import Callable, Iterable

#: Returns the levels of a name.
levelsOf = re.compile(r"[./]").split
#: The levels of a name, with the separators between them.
_apart = re.compile(r"([./])").split
#: Wildcards of NATS and MQTT, and those that mean the same.
_FOREIGN = {">": "#", "+": "*"}
#: Invisible characters of words in some languages.
_JOINERS = "\u200c\u200d"
_LEVEL = "[^./]*"
_ORDINARY = r"(?!\$)"


def isPattern(name: str) -> bool:
    """Tell whether a subscription to ``name`` has a wildcard level."""
    if "*" not in name and "#" not in name:
        return False
    levels = levelsOf(name)
    return "*" in levels or levels[-1] == "#"


def anyOf(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tests whether a name matches one of these patterns."""
    expression = expressionOf(patterns)
    if not expression:
        return lambda name: False
    match = re.compile(expression, re.DOTALL).fullmatch
    return lambda name: match(name) is not None


def expressionOf(patterns: Iterable[str]) -> str:
    """Return a regular expression for full names that match one of these patterns; empty without any.

    Python and Java interpret it alike; a dot in it must match every character.
    """
    return "|".join(map(_expression, patterns))


def partsOf(pattern: str) -> tuple[list[str], bool]:
    """Return the levels of a pattern, and whether any number of them may follow."""
    levels = levelsOf(pattern)
    rest = levels[-1] == "#"
    return levels[: len(levels) - rest], rest


def overlap(first: str, second: str) -> bool:
    """Return whether some name matches both patterns."""
    one, oneRest = partsOf(first)
    other, otherRest = partsOf(second)
    if (len(one) > len(other) and not otherRest) or (len(other) > len(one) and not oneRest):
        return False
    if any(a != b and "*" not in (a, b) for a, b in zip(one, other, strict=False)):
        return False
    if one[1:] + other[1:] == [] and "" in one + other and not (oneRest and otherRest):
        return False  # only the empty name would match, which is invalid
    heads = [levels[0] if levels else "*" for levels in (one, other)]
    return "*" not in heads or not any(head.startswith("$") for head in heads)


def covers(wide: str, narrow: str) -> bool:
    """Return whether every name that matches the second pattern matches the first one; False in some doubtful cases."""
    one, oneRest = partsOf(wide)
    other, otherRest = partsOf(narrow)
    if len(one) > len(other) or (not oneRest and (otherRest or len(one) < len(other))):
        return False
    if any(a not in ("*", b) for a, b in zip(one, other, strict=False)):
        return False
    return bool(one) and one[0] != "*" or not (other and other[0].startswith("$"))


def mistakeIn(pattern: str) -> str | None:
    """Return why a pattern is a mistake, with the right form; None if it is none.

    A level ``>`` is a wildcard of NATS, ``+`` one of MQTT; here both are ordinary levels.
    """
    *others, last = _apart(pattern)
    right = "".join("*" if each in _FOREIGN else each for each in others) + _FOREIGN.get(last, last)
    return f"the wildcards are * and #, not > and +: did you mean {right!r}?" if right != pattern else None


#: A level with ``*`` or ``#`` that cannot be meant as a wildcard: the name of a channel, as ``#general``.
_CHANNEL = re.compile(r"#\w[\w-]*")


def faultIn(rule: str) -> str | None:
    """Return why a pattern of the settings cannot match the topics that its author means; None if it can.

    Topics may have empty levels, blanks and ``*`` in their names, so a subscription may have them too. In a rule they
    are mistakes without a symptom: the rule would match no topic.
    """
    levels = levelsOf(rule)
    if "#" in levels[:-1]:
        return "only the last level of a pattern can be #, e.g. orders.#"
    if mistake := mistakeIn(rule):
        return mistake
    if not all(each.isprintable() or each in _JOINERS for each in rule):
        return "it has a character that cannot be seen"
    if any(each != each.strip() for each in levels):
        return "a level cannot begin or end with a blank"
    if "" in levels[not rule.startswith(".") :]:
        return "it has an empty level: levels need a character before and after each separator"
    if any(len(each) > 1 and not {"*", "#"}.isdisjoint(each) and not _CHANNEL.fullmatch(each) for each in levels):
        return "* and # are wildcards as levels of their own only, e.g. orders.# or *.eu"
    return None


def doubtIn(name: str, publishes: bool = False) -> str | None:
    """Return why the name of a subscription or publication looks like a mistake; None if it does not."""
    *others, last = _apart(name)
    levels = [*others, last][::2]
    if publishes and not {*_FOREIGN, *_FOREIGN.values()}.isdisjoint(levels):
        return f"{name!r} is an ordinary topic here: wildcards are for FlexiMQ subscriptions only"
    if "#" in levels[:-1]:
        right = "".join("*" if each == "#" else each for each in others) + last
        return f"# is a wildcard at the end only, and an ordinary level in {name!r}: did you mean {right!r}?"
    if "" in levels[1:]:
        return f"{name!r} has an empty level, without a character before or after its separator"
    if not publishes and any(each[-1:] in ("*", "#") and len(each) > 1 for each in levels):
        return f"* and # are wildcards as levels of their own only, and ordinary characters in {name!r}"
    return None


def _expression(pattern: str) -> str:
    levels, rest = partsOf(pattern)
    wild = _ORDINARY if (levels[0] == "*" if levels else rest) else ""
    exact = "[./]".join(_LEVEL if level == "*" else re.escape(level) for level in levels)
    if not rest:
        return wild + exact
    return f"{wild}{exact}(?:[./].*)?" if levels else f"{wild}.*"
