"""What one principal may do: patterns for each action, and what they have answered so far.

A name is looked for among all patterns of an action at once, which takes about 1 us; an answer that was given before
takes a tenth of that. Answers are shared out of one purse, so that nobody fills the memory by asking.
"""

from collections.abc import Mapping, Sequence

from zope.interface import implementer

from fleximq.interfaces import IRights
from fleximq.rights import Action
from fleximq.values.patterns import anyOf, overlap

#: So many answers are remembered for all together, and only for names of so many characters.
ANSWERS, NAME_CHARACTERS = 16_384, 256

#: Actions on paths, whose first slash does not count.
_ON_PATHS = frozenset({Action.REQUEST, Action.NOTIFY, Action.READ, Action.ADMIN})

#: The answers given so far, by whose they are, action and name.
Answers = dict[tuple["Rights", str, str], bool]


@implementer(IRights)
class Rights:
    """What is granted, and nothing else. May be asked by several threads.

    :param grants: patterns by action.
    :param answers: where answers are remembered, shared with others.
    """

    __slots__ = ("_answers", "_matches", "_patterns")

    def __init__(self, grants: Mapping[str, Sequence[str]], answers: Answers | None = None) -> None:
        self._patterns = {
            action: tuple(dict.fromkeys(_bare(action, pattern) for pattern in patterns))
            for action, patterns in grants.items()
            if patterns
        }
        self._matches = {action: anyOf(patterns) for action, patterns in self._patterns.items()}
        self._answers = {} if answers is None else answers

    def may(self, action: str, name: str) -> bool:
        """Tell whether a pattern for this action matches the name."""
        key = (self, action, name)
        answer = self._answers.get(key)
        if answer is None:
            matches = self._matches.get(action)
            answer = matches is not None and matches(_bare(action, name))
            if len(name) <= NAME_CHARACTERS:
                if len(self._answers) >= ANSWERS:
                    self._answers.clear()
                self._answers[key] = answer
        return answer

    def mayMatch(self, action: str, pattern: str) -> bool:
        """Tell whether some name that the pattern matches is matched by one for this action."""
        return any(overlap(pattern, granted) for granted in self._patterns.get(action, ()))

    def mayAll(self, action: str) -> bool:
        """Tell whether one of the patterns for this action is ``#``."""
        return "#" in self._patterns.get(action, ())


def _bare(action: str, name: str) -> str:
    return name.removeprefix("/") if action in _ON_PATHS else name
