"""Who may do what, as an operator has written it: made once from the settings, asked for everyone who comes.

What somebody may do is what is granted to any of its roles and to itself; nobody is forbidden what somebody else has
granted. Everybody has the role ``everyone``, those who have shown who they are ``authenticated`` besides, and those who
have not are the principal ``anonymous``. As soon as anything is written, what is not granted is not permitted.

What one principal may do: patterns for each action, and what they have answered so far.

A name is looked for among all patterns of an action at once, which takes about 1 us; an answer that was given before
takes a tenth of that. Answers are shared out of one purse, so that nobody fills the memory by asking.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from zope.interface import implementer

from fleximq.config.permission_options import AUTHENTICATED, EVERYONE, PRINCIPAL, PermissionTable
from fleximq.interfaces import IRights
from fleximq.rights import EVERYTHING, Action
from fleximq.security.principal import ANONYMOUS, Principal
from fleximq.values.patterns import anyOf, overlap

#: So many answers are remembered for all together, and only for names of so many characters.
MAX_ANSWERS, NAME_CHARACTERS = 16_384, 256

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
                if len(self._answers) >= MAX_ANSWERS:
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


#: Of so many principals the rights are remembered, so that their connections share them.
MAX_PRINCIPALS = 4096

_Key = tuple[str, bool, frozenset[str], tuple[tuple[str, tuple[str, ...]], ...]]
_SPECIAL = re.compile(r"[./*#$%]")


class Permissions:
    """What the tables of the settings grant.

    :param roles: the tables of roles; None: there are none.
    :param principals: the tables of principals; None: there are none.
    """

    def __init__(
        self, roles: Iterable[PermissionTable] | None = None, principals: Iterable[PermissionTable] | None = None
    ) -> None:
        self.configured = not (roles is None and principals is None)
        self._roles = {each.name: each for each in roles or ()}
        self._principals = {each.name: each for each in principals or ()}
        self._answers: Answers = {}
        self._known: dict[_Key, IRights] = {}

    def rightsOf(self, principal: Principal | None) -> IRights:
        """Return what somebody may do; the same object for the same principal, as long as it is remembered.

        Without any table that is everything, unless the principal's credentials say themselves what they are for.

        :param principal: None for those who have not shown who they are.
        """
        grants = {} if principal is None else principal.grants
        if not (self.configured or grants):
            return EVERYTHING
        key = _keyOf(principal, grants)
        rights = self._known.get(key)
        if rights is None:
            if len(self._known) >= MAX_PRINCIPALS:
                self._known.clear()
            rights = self._known[key] = self._made(key)
        return rights

    def _made(self, key: _Key) -> Rights:
        name, authenticated, roles, grants = key
        own = self._principals.get(name, PermissionTable(name))
        held = {EVERYONE, *own.roles, *roles} | ({AUTHENTICATED} if authenticated else set())
        tables = [
            own,
            PermissionTable("", grants),
            *(self._roles[role] for role in sorted(held) if role in self._roles),
        ]
        spelt = escapedName(name)
        found: dict[str, list[str]] = {}
        for table in tables:
            for action, patterns in table.grants:
                usable = patterns if spelt else [each for each in patterns if PRINCIPAL not in each]
                found.setdefault(action, []).extend(each.replace(PRINCIPAL, spelt) for each in usable)
        return Rights(found, self._answers)


def escapedName(name: str) -> str:
    """Return what stands for a principal's name in patterns: always one level, and never a wildcard.

    The characters ``. / * # $ %`` in it are written ``%2E``, ``%2F`` and so on, so that no two names are spelt alike.
    """
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", name)


def _keyOf(principal: Principal | None, grants: Mapping[str, tuple[str, ...]]) -> _Key:
    if principal is None:
        return ANONYMOUS, False, frozenset(), ()
    return principal.name, True, principal.roles, tuple((action, tuple(grants[action])) for action in sorted(grants))
