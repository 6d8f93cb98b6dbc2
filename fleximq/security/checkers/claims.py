"""Name, roles and grants of a principal from a token or a web service's answer."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from fleximq.limits import TOPIC_BYTES
from fleximq.rights import Action
from fleximq.security.principal import isRole

#: Maximum number of roles, or of patterns for one action.
MAX_ITEMS = 1000

#: Maximum number of claims that patterns may contain, and of the characters of one.
MAX_CLAIMS, MAX_CLAIM_CHARACTERS = 100, 256

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


def textsIn(claims: Mapping[str, Any], place: str = "") -> dict[str, str]:
    """Return the first claims that patterns may contain: texts, and whole numbers; those in maps by dotted names."""
    found: dict[str, str] = {}
    for name, value in claims.items():
        if isinstance(value, Mapping) and not place:
            found.update(textsIn(value, f"{name}."))
        elif isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)) <= MAX_CLAIM_CHARACTERS:
            found[place + name] = str(value)
    return dict(islice(found.items(), MAX_CLAIMS))


def rolesOf(said: object) -> frozenset[str]:
    """Return roles: a list of names, or names separated by spaces, else raises WrongClaim. Invalid ones are ignored."""
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
