"""The permission tables of a settings file: ``[roles.NAME]`` and ``[principals.NAME]``.

A key is an action, and its value a list of topic patterns, or true for all topics except those that begin with ``$``;
``broadcast`` is true or false. ``deny`` has the same keys, and revokes grants of all tables; ``limits`` has options
from :data:`LIMITS`, and ``roles`` of a principal its roles, in addition to those of all clients.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fleximq.config.named_tables import unknownKey
from fleximq.config.option_values import count, size
from fleximq.config.rate_options import byteRate, rate
from fleximq.errors import SettingError
from fleximq.limits import TOPIC_BYTES, within
from fleximq.rights import Action
from fleximq.values.patterns import faultIn

#: The roles of all clients and of authenticated ones, assigned automatically.
EVERYONE, AUTHENTICATED = "everyone", "authenticated"
ALL = ("#",)  #: The pattern for all topics except those that begin with ``$``.
#: Placeholders in a pattern: for the principal's name, each of its roles, the id of the client, and a token's claim.
PLACEHOLDER = re.compile(r"\{(principal|role|client_id|claim:[^{}#*]+)\}")

_ROLES, _DENY, _LIMITS = "roles", "deny", "limits"
_ACTIONS = tuple(action.value for action in Action)


def _atLeastOne(read: Callable[[str, object], int]) -> Callable[[str, object], int]:
    def checked(name: str, value: object) -> int:
        found = read(name, value)
        within(name, found, 1, 1 << 48)
        return found

    return checked


#: The options that a table may limit, with their parsers.
LIMITS: Mapping[str, Callable[[str, object], Any]] = {
    "max-message-rate": rate,
    "max-byte-rate": byteRate,
    "max-subscribe-rate": rate,
    "principal-message-rate": rate,
    "principal-byte-rate": byteRate,
    "principal-subscribe-rate": rate,
    "max-clients": _atLeastOne(count),
    "max-topics": _atLeastOne(count),
    "queue-bytes": _atLeastOne(size),
}
Patterns = tuple[tuple[str, tuple[str, ...]], ...]  #: Pairs of an action and its patterns.


class PermissionTable(NamedTuple):
    """One table: its name, the patterns granted, the roles named, the patterns denied, and the limits by option."""

    name: str
    grants: Patterns = ()
    roles: tuple[str, ...] = ()
    denials: Patterns = ()
    limits: tuple[tuple[str, Any], ...] = ()


def tables(name: str, value: object) -> tuple[PermissionTable, ...]:
    """Parse all tables below ``roles`` or ``principals``; raises SettingError with the first of :func:`faultsOf`."""
    for sentence in faultsOf(name, value):
        raise SettingError(sentence)
    if isinstance(value, tuple):
        return value
    return tuple(_granted(each, table) for each, table in value.items())  # type: ignore[attr-defined]


def faultsOf(name: str, value: object) -> Iterator[str]:
    """Yield a sentence for each fault of these tables."""
    if isinstance(value, tuple) and all(isinstance(each, PermissionTable) for each in value):
        return
    if not isinstance(value, Mapping):
        yield f"{name} is {value!r}, but must be a table for each: [{name}.NAME]"
        return
    for each, table in value.items():
        place = f"{name}.{each}"
        if not each:
            yield f"{name} has a table without a name"
        elif not isinstance(table, Mapping):
            yield f"{place} is {table!r}, but must be a table: [{place}]"
        else:
            for key, given in table.items():
                yield from _faultsOfKey(name, place, key, given)


def unknownRoles(
    roles: tuple[PermissionTable, ...] | None, principals: tuple[PermissionTable, ...] | None
) -> Iterator[str]:
    """Yield a sentence for each role of a principal without a table."""
    known = {EVERYONE, AUTHENTICATED, *(each.name for each in roles or ())}
    for principal in principals or ():
        for role in principal.roles:
            if role not in known:
                yield f"principals.{principal.name} has the role {role!r}, but there is no [roles.{role}]"


def _faultsOfKey(name: str, place: str, key: str, given: object) -> Iterator[str]:
    if key == _ROLES and name == "principals":
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            yield f"{place}.roles is {given!r}, but must be a list of the names of roles"
    elif key == _DENY and name:
        if not isinstance(given, Mapping):
            yield f'{place}.deny is {given!r}, but must have an action, e.g. deny.publish = ["orders.#"]'
        else:
            for action, patterns in given.items():
                yield from _faultsOfKey("", f"{place}.deny", action, patterns)
    elif key == _LIMITS and name:
        yield from _faultsOfLimits(f"{place}.limits", given)
    elif key not in _ACTIONS:
        known = (*_ACTIONS, *((_DENY, _LIMITS) if name else ()), *([_ROLES] if name == "principals" else []))
        yield unknownKey(place, key, known, _list(known))
    elif isinstance(given, bool):
        return
    elif key == Action.BROADCAST:
        yield f"{place}.broadcast is {given!r}, but must be true or false"
    elif not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        yield f"{place}.{key} is {given!r}, but must be a list of patterns, or true for all that do not begin with $"
    else:
        for pattern in given:
            yield from _faultsOfPattern(f"{place}.{key}", pattern)


def _faultsOfLimits(place: str, given: object) -> Iterator[str]:
    if not isinstance(given, Mapping):
        yield f"{place} is {given!r}, but must be a table: [{place}]"
        return
    for option, value in given.items():
        try:
            if option in LIMITS:
                LIMITS[option](f"{place}.{option}", value)
            else:
                yield f"{place} has no key {option!r}, only {_list(tuple(LIMITS))}"
        except SettingError as error:
            yield str(error)


def _faultsOfPattern(place: str, pattern: str) -> Iterator[str]:
    bare = pattern.removeprefix("/")
    if not bare or len(bare.encode("utf-8", "surrogatepass")) > TOPIC_BYTES:
        yield f"{place} has {pattern!r}, but a pattern has 1 to {TOPIC_BYTES} bytes, e.g. orders.#"
    elif re.search(r"[{}]", PLACEHOLDER.sub("", bare)):
        placeholders = "{principal}, {role}, {client_id} and {claim:NAME}"
        yield f"{place} has {pattern!r}, but braces can only stand in {placeholders}"
    elif fault := faultIn(PLACEHOLDER.sub("x", bare)):
        yield f"{place} has {pattern!r}, but {fault}"


def _granted(name: str, table: Mapping[str, object]) -> PermissionTable:
    roles: Any = table.get(_ROLES, ())
    denied: Any = table.get(_DENY, {})
    written: Any = table.get(_LIMITS, {})
    limits = tuple((option, LIMITS[option](option, value)) for option, value in written.items())
    return PermissionTable(name, _patternsIn(table), tuple(roles), _patternsIn(denied), limits)


def _patternsIn(table: Mapping[str, object]) -> Patterns:
    written: Iterator[tuple[str, Any]] = ((key, value) for key, value in table.items() if key in _ACTIONS)
    return tuple((key, ALL if value is True else tuple(value or ())) for key, value in written)


def _list(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
