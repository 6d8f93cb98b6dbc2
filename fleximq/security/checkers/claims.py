"""Name, roles and grants of a principal from a token or a web service's answer."""

from collections.abc import Mapping
from typing import Any

from fleximq.limits import TOPIC_BYTES
from fleximq.rights import Action
from fleximq.security.principal import isRole

#: Maximum number of roles, or of patterns for one action.
MAX_ITEMS = 1000

_ACTIONS = frozenset(Action)


class WrongClaim(Exception):
    """A claim is malformed."""


def find(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim of this name, or else follow its dots into nested maps; None if there is none."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def rolesOf(said: object) -> frozenset[str]:
    """Return roles: a list of names, or names separated by spaces. Invalid names are ignored.

    :raises WrongClaim: it is neither.
    """
    if said is None:
        return frozenset()
    names = said.split() if isinstance(said, str) else said
    if not isinstance(names, list) or len(names) > MAX_ITEMS:
        raise WrongClaim("the roles are no list of names")
    return frozenset(name for name in names if isRole(name))


def grantsOf(said: object) -> dict[str, tuple[str, ...]]:
    """Return the patterns granted for each action. ``true`` means all topics except those that begin with ``$``.

    An absent claim grants no action, explicitly, unlike a configuration without a permission claim.

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
