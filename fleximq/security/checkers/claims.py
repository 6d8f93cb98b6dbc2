"""What somebody else says of a principal, in a token or in an answer: its name, its roles, what it may do."""

from collections.abc import Mapping
from typing import Any

from fleximq.limits import TOPIC_BYTES
from fleximq.rights import Action
from fleximq.security.principal import isRole

#: So many roles, or patterns for one action, may be said.
MAX_ITEMS = 1000

_ACTIONS = frozenset(Action)


class WrongClaim(Exception):
    """What is said is not of the form."""


def find(claims: Mapping[str, Any], path: str) -> Any:
    """Return what stands at a place: under just this name, or else, at its dots, inside of one another; or None."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def rolesOf(said: object) -> frozenset[str]:
    """Return roles: a list of names, or names with spaces between them. What can be no role's name is passed over.

    :raises WrongClaim: it is neither.
    """
    if said is None:
        return frozenset()
    names = said.split() if isinstance(said, str) else said
    if not isinstance(names, list) or len(names) > MAX_ITEMS:
        raise WrongClaim("the roles are no list of names")
    return frozenset(name for name in names if isRole(name))


def grantsOf(said: object) -> dict[str, tuple[str, ...]]:
    """Return what is granted: for each action its patterns. ``true`` is all topics but those that begin with ``$``.

    Where nothing is said, nothing is granted; that is written down, for it is not the same as no word about it.

    :raises WrongClaim: it is not a mapping of actions to patterns.
    """
    granted: dict[str, tuple[str, ...]] = {action.value: () for action in Action}
    if said is None:
        return granted
    if not isinstance(said, Mapping):
        raise WrongClaim("the permissions are no mapping of actions to patterns")
    for action, patterns in said.items():
        if action not in _ACTIONS:
            raise WrongClaim("the permissions name an action that there is not")
        granted[action] = _patterns(patterns)
    return granted


def _patterns(said: object) -> tuple[str, ...]:
    if isinstance(said, bool):
        return ("#",) if said else ()
    patterns = [said] if isinstance(said, str) else said
    if not isinstance(patterns, list) or len(patterns) > MAX_ITEMS:
        raise WrongClaim("the permissions hold something that is no list of patterns")
    if not all(isinstance(each, str) and 0 < len(each) <= TOPIC_BYTES for each in patterns):
        raise WrongClaim("the permissions hold something that is no pattern")
    return tuple(patterns)
