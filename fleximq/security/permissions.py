"""The rights of principals, made from the permission tables of the settings.

A principal has the grants of its own table and of all its roles, without the denials of any of these tables. All
clients have the role ``everyone``, authenticated ones also ``authenticated``, others are the principal ``anonymous``.
Once any table is written, everything not granted is denied. A name is matched against all patterns of an action at
once, about 1 us; a cached answer takes a tenth of that. The cache is bounded, so clients cannot fill the memory.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

from zope.interface import implementer

from fleximq.config.permission_options import AUTHENTICATED, EVERYONE, PLACEHOLDER, Patterns, PermissionTable
from fleximq.interfaces import IRights
from fleximq.limits import NO_LIMITS, OwnLimits
from fleximq.rights import EVERYTHING, Action
from fleximq.security.principal import ANONYMOUS, Principal
from fleximq.values.patterns import anyOf, covers, overlap

#: Maximum number of cached answers, and maximum length of their names.
MAX_ANSWERS, NAME_CHARACTERS = 16_384, 256

#: Actions on paths; the first slash of a path is ignored.
_ON_PATHS = frozenset({Action.REQUEST, Action.NOTIFY, Action.READ, Action.ADMIN})

#: Cached answers by rights, action and name.
Answers = dict[tuple["Rights", str, str], bool]


@implementer(IRights)
class Rights:
    """Permits exactly the actions that are granted and not denied. May be used by several threads.

    ``grants`` and ``denials`` are patterns by action; one with ``{client_id}`` matches nothing until :meth:`forClient`.
    ``answers`` is a cache, shared with other rights.
    """

    __slots__ = ("_answers", "_denied", "_matches", "_patterns", "_personal", "_refuses", "limits")

    def __init__(
        self,
        grants: Mapping[str, Sequence[str]],
        answers: Answers | None = None,
        denials: Mapping[str, Sequence[str]] = MappingProxyType({}),
        limits: OwnLimits = NO_LIMITS,
    ) -> None:
        self.limits = limits
        allPatterns = (*grants.values(), *denials.values())
        self._personal = (grants, denials) if any(_CLIENT in each for some in allPatterns for each in some) else None
        self._patterns, self._denied = _usable(grants), _usable(denials)
        self._matches = {action: anyOf(patterns) for action, patterns in self._patterns.items()}
        self._refuses = {action: anyOf(patterns) for action, patterns in self._denied.items()}
        self._answers = {} if answers is None else answers

    def forClient(self, clientId: int) -> "Rights":
        """Return these rights with ``{client_id}`` replaced; this object if no pattern has it."""
        if self._personal is None:
            return self
        grants, denials = (
            {action: [each.replace(_CLIENT, str(clientId)) for each in patterns] for action, patterns in rules.items()}
            for rules in self._personal
        )
        return Rights(grants, self._answers, denials, self.limits)

    def may(self, action: str, name: str) -> bool:
        """Return whether a granted pattern for this action matches the name, and no denied one does."""
        key = (self, action, name)
        answer = self._answers.get(key)
        if answer is None:
            matches, refuses, bare = self._matches.get(action), self._refuses.get(action), _bare(action, name)
            answer = matches is not None and matches(bare) and (refuses is None or not refuses(bare))
            if len(name) <= NAME_CHARACTERS:
                if len(self._answers) >= MAX_ANSWERS:
                    self._answers.clear()
                self._answers[key] = answer
        return answer

    def mayMatch(self, action: str, pattern: str) -> bool:
        """Return whether some name matches both the pattern and a granted one; True if denials leave it in doubt."""
        denied = self._denied.get(action, ())
        return not any(covers(each, pattern) for each in denied) and any(
            overlap(pattern, granted) and not any(covers(each, granted) for each in denied)
            for granted in self._patterns.get(action, ())
        )

    def mayAll(self, action: str) -> bool:
        """Return whether ``#`` is granted for this action, and no name denied that does not begin with ``$``."""
        return "#" in self._patterns.get(action, ()) and not any(
            overlap("#", each) for each in self._denied.get(action, ())
        )


def _usable(rules: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the patterns without ``{client_id}`` by action, actions without any left out."""
    usable = {
        action: tuple(dict.fromkeys(_bare(action, each) for each in patterns if _CLIENT not in each))
        for action, patterns in rules.items()
    }
    return {action: patterns for action, patterns in usable.items() if patterns}


def _bare(action: str, name: str) -> str:
    return name.removeprefix("/") if action in _ON_PATHS else name


#: Rights of this many principals are cached, so that their connections share them.
MAX_PRINCIPALS = 4096

_CLIENT, _CLAIM = "{client_id}", "claim:"
_SPECIAL = re.compile(r"[./*#$%{}]")


class Permissions:
    """The grants of the settings' tables of roles and principals; None: there are none."""

    def __init__(
        self, roles: Iterable[PermissionTable] | None = None, principals: Iterable[PermissionTable] | None = None
    ) -> None:
        self.configured = not (roles is None and principals is None)
        self._roles = {each.name: each for each in roles or ()}
        self._principals = {each.name: each for each in principals or ()}
        self._claims = sorted(
            found.removeprefix(_CLAIM)
            for table in (*self._roles.values(), *self._principals.values())
            for _, patterns in (*table.grants, *table.denials)
            for found in set(PLACEHOLDER.findall(" ".join(patterns)))
            if found.startswith(_CLAIM)
        )
        self._answers: Answers = {}
        self._known: dict[_Key, IRights] = {}

    def rightsOf(self, principal: Principal | None) -> IRights:
        """Return the rights of a principal, None for anonymous clients; cached, so it gets the same object again.

        Without any table the rights are unrestricted, unless the principal's credentials carry grants.
        """
        grants = {} if principal is None else principal.grants
        if not (self.configured or grants):
            return EVERYTHING
        key = self._keyOf(principal)
        rights = self._known.get(key)
        if rights is None:
            if len(self._known) >= MAX_PRINCIPALS:
                self._known.clear()
            rights = self._known[key] = self._made(key)
        return rights

    def _keyOf(self, principal: Principal | None) -> "_Key":
        if principal is None:
            return _Key(ANONYMOUS)
        granted = tuple((action, tuple(principal.grants[action])) for action in sorted(principal.grants))
        claims = tuple((name, principal.claims[name]) for name in self._claims if name in principal.claims)
        return _Key(principal.name, True, principal.roles, granted, claims)

    def rulesFor(self, principal: Principal | None, action: str, clientId: int = 0) -> "Iterator[Rule]":
        """Yield the rules of a principal for an action, first those that deny it; without any table there are none.

        :param clientId: that of its client, for patterns with ``{client_id}``.
        """
        tables, values = self._tablesOf(self._keyOf(principal))
        for isDenial in (True, False):
            for table in tables:
                for granted, patterns in table.denials if isDenial else table.grants:
                    for pattern in patterns if granted == action else ():
                        filled = [each.replace(_CLIENT, str(clientId or _CLIENT)) for each in _filled(pattern, values)]
                        usable = tuple(_bare(action, each) for each in filled if _CLIENT not in each)
                        yield Rule(self._title(table), isDenial, pattern, usable)

    def _title(self, table: PermissionTable) -> str:
        if not table.name:
            return "its credentials"
        return f"[{'roles' if self._roles.get(table.name) is table else 'principals'}.{table.name}]"

    def _tablesOf(self, key: "_Key") -> tuple[list[PermissionTable], dict[str, list[str]]]:
        """Return the tables of a principal, its own one and that of its credentials first, and the values of
        placeholders.
        """
        own = self._principals.get(key.name, PermissionTable(key.name))
        roles = {*own.roles, *key.roles} - {EVERYONE, AUTHENTICATED}
        held = {EVERYONE, *roles} | ({AUTHENTICATED} if key.authenticated else set())
        tables = [own, PermissionTable("", key.grants), *(self._roles[each] for each in sorted(held & {*self._roles}))]
        values = {"principal": [key.name], "role": sorted(roles)}
        return tables, values | {_CLAIM + name: [value] for name, value in key.claims}

    def _made(self, key: "_Key") -> Rights:
        tables, values = self._tablesOf(key)
        own = tables[0]
        found: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
        for table in tables:
            for rules, into in zip((table.grants, table.denials), found, strict=True):
                for action, patterns in rules:
                    for each in patterns:
                        into.setdefault(action, []).extend(_filled(each, values))
        return Rights(found[0], self._answers, found[1], _limitsOf(own, tables[1:]))


class Rule(NamedTuple):
    """One rule: the table that has it, in words, whether it denies, the pattern as written, and with its values."""

    table: str
    isDenial: bool
    written: str
    patterns: tuple[str, ...]


class _Key(NamedTuple):
    """The part of a principal that decides its rights."""

    name: str
    authenticated: bool = False
    roles: frozenset[str] = frozenset()
    grants: Patterns = ()
    claims: tuple[tuple[str, str], ...] = ()


def _limitsOf(own: PermissionTable, roles: Iterable[PermissionTable]) -> OwnLimits:
    """Return the limits of a principal: its own ones, the others from its roles, where the tightest wins."""
    limits: dict[str, Any] = {}
    for option, value in (pair for role in roles for pair in role.limits):
        limits[option] = min(value, limits.get(option), key=lambda each: (each is None, each))
    limits |= dict(own.limits)
    clients, topics, size = (limits.pop(option, None) for option in ("max-clients", "max-topics", "queue-bytes"))
    return OwnLimits(clients, topics, size, tuple(limits.items()))


def _filled(pattern: str, values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a pattern with each combination of the values of its placeholders, ``{client_id}`` excepted."""
    names = [name for name in dict.fromkeys(PLACEHOLDER.findall(pattern)) if name != "client_id"]
    for chosen in product(*([escapedName(value) for value in values.get(name, ()) if value] for name in names)):
        spelt = {"client_id": _CLIENT, **dict(zip(names, chosen, strict=True))}
        yield PLACEHOLDER.sub(lambda found, spelt=spelt: spelt[found[1]], pattern)  # type: ignore[misc]


def escapedName(name: str) -> str:
    """Return a name as one level of a pattern, never a wildcard or placeholder: ``./*#$%{}`` become ``%2E`` etc."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", name)
