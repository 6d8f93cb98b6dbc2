"""The rights of principals, made from the permission tables of the settings.

A principal has the grants of its own table and of all its roles; there are no denials. All clients have the role
``everyone``, authenticated ones also ``authenticated``; clients without credentials are the principal ``anonymous``.
Once any table is written, everything not granted is denied.

A name is matched against all patterns of an action at once, about 1 us; a cached answer takes a tenth of that. All
answers share one bounded cache, so clients cannot fill the memory with requests.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from zope.interface import implementer

from fleximq.config.permission_options import AUTHENTICATED, EVERYONE, PRINCIPAL, PermissionTable
from fleximq.interfaces import IRights
from fleximq.rights import EVERYTHING, Action
from fleximq.security.principal import ANONYMOUS, Principal
from fleximq.values.patterns import anyOf, overlap

#: Maximum number of cached answers, and maximum length of their names.
MAX_ANSWERS, NAME_CHARACTERS = 16_384, 256

#: Actions on paths, whose first slash does not count.
_ON_PATHS = frozenset({Action.REQUEST, Action.NOTIFY, Action.READ, Action.ADMIN})

#: Cached answers by rights, action and name.
Answers = dict[tuple["Rights", str, str], bool]


@implementer(IRights)
class Rights:
    """Permits exactly the granted actions. May be used by several threads.

    :param grants: patterns by action.
    :param answers: a cache of answers, shared with other rights.
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
        """Return whether a pattern for this action matches the name."""
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
        """Return whether some name matches both the pattern and a pattern for this action."""
        return any(overlap(pattern, granted) for granted in self._patterns.get(action, ()))

    def mayAll(self, action: str) -> bool:
        """Return whether one of the patterns for this action is ``#``."""
        return "#" in self._patterns.get(action, ())


def _bare(action: str, name: str) -> str:
    return name.removeprefix("/") if action in _ON_PATHS else name


#: Rights of this many principals are cached, so that their connections share them.
MAX_PRINCIPALS = 4096

_Key = tuple[str, bool, frozenset[str], tuple[tuple[str, tuple[str, ...]], ...]]
_SPECIAL = re.compile(r"[./*#$%]")


class Permissions:
    """The grants of the settings' tables.

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
        """Return the rights of a principal; cached, so the same principal gets the same object.

        Without any table the rights are unrestricted, unless the principal's credentials carry grants.

        :param principal: None for anonymous clients.
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
    """Return a principal's name as one level of a pattern, never a wildcard.

    The characters ``. / * # $ %`` become ``%2E``, ``%2F`` and so on, so that different names stay different.
    """
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", name)


def _keyOf(principal: Principal | None, grants: Mapping[str, tuple[str, ...]]) -> _Key:
    if principal is None:
        return ANONYMOUS, False, frozenset(), ()
    return principal.name, True, principal.roles, tuple((action, tuple(grants[action])) for action in sorted(grants))
