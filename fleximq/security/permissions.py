"""Who may do what, as an operator has written it: made once from the settings, asked for everyone who comes.

What somebody may do is what is granted to any of its roles and to itself; nobody is forbidden what somebody else has
granted. Everybody has the role ``everyone``, those who have shown who they are ``authenticated`` besides, and those who
have not are the principal ``anonymous``. As soon as anything is written, what is not granted is not permitted.
"""

import re
from collections.abc import Iterable, Mapping

from fleximq.config.permission_options import AUTHENTICATED, EVERYONE, PRINCIPAL, Granted
from fleximq.interfaces import IRights
from fleximq.rights import EVERYTHING
from fleximq.security.principal import ANONYMOUS, Principal
from fleximq.security.rights import Answers, Rights

#: Of so many principals the rights are remembered, so that their connections share them.
REMEMBERED = 4096

_Key = tuple[str, bool, frozenset[str], tuple[tuple[str, tuple[str, ...]], ...]]
_SPECIAL = re.compile(r"[./*#$%]")


class Permissions:
    """What the tables of the settings grant.

    :param roles: the tables of roles; None: there are none.
    :param principals: the tables of principals; None: there are none.
    """

    def __init__(self, roles: Iterable[Granted] | None = None, principals: Iterable[Granted] | None = None) -> None:
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
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            rights = self._known[key] = self._made(key)
        return rights

    def _made(self, key: _Key) -> Rights:
        name, authenticated, roles, grants = key
        own = self._principals.get(name, Granted(name))
        held = {EVERYONE, *own.roles, *roles} | ({AUTHENTICATED} if authenticated else set())
        tables = [own, Granted("", grants), *(self._roles[role] for role in sorted(held) if role in self._roles)]
        spelt = spelling(name)
        found: dict[str, list[str]] = {}
        for table in tables:
            for action, patterns in table.grants:
                usable = patterns if spelt else [each for each in patterns if PRINCIPAL not in each]
                found.setdefault(action, []).extend(each.replace(PRINCIPAL, spelt) for each in usable)
        return Rights(found, self._answers)


def spelling(name: str) -> str:
    """Return what stands for a principal's name in patterns: always one level, and never a wildcard.

    The characters ``. / * # $ %`` in it are written ``%2E``, ``%2F`` and so on, so that no two names are spelt alike.
    """
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", name)


def _keyOf(principal: Principal | None, grants: Mapping[str, tuple[str, ...]]) -> _Key:
    if principal is None:
        return ANONYMOUS, False, frozenset(), ()
    return principal.name, True, principal.roles, tuple((action, tuple(grants[action])) for action in sorted(grants))
