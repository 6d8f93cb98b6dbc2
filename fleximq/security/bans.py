"""Principals and addresses that an operator has banned, each until a time.

Bans survive a reload of the settings, not a restart.
"""

from collections.abc import Callable, Hashable, Iterator
from types import SimpleNamespace
from typing import NamedTuple

from fleximq.errors import BadRequest, NoCapacity
from fleximq.security.peer_address import addressKey, clientKey, isAddress
from fleximq.security.principal import ANONYMOUS, SPAWN

#: Maximum number of bans.
MAX_BANS = 10_000


class Ban(NamedTuple):
    """One ban: of a ``principal`` or an ``address``, by its name, until a time in seconds of the clock."""

    kind: str
    name: str
    until: float
    reason: str
    by: str


class Bans:
    """All bans, by the keys of :mod:`fleximq.security.peer_address`; ``seconds`` is the monotonic clock."""

    def __init__(self, seconds: Callable[[], float] = lambda: 0.0) -> None:
        self._seconds = seconds
        self._bans: dict[Hashable, Ban] = {}

    def __iter__(self) -> Iterator[Ban]:
        """Return the bans in force."""
        now = self._seconds()
        self._bans = {key: ban for key, ban in self._bans.items() if ban.until > now}
        return iter(self._bans.values())

    def add(self, ban: Ban) -> None:
        """Ban a principal or an address; replaces its earlier ban.

        :raises BadRequest: an address is none, or one of this machine, or the principal a program of the broker.
        :raises NoCapacity: there are :data:`MAX_BANS` others.
        """
        key = banKey(ban.kind, ban.name)
        if key not in self._bans and len(self._bans) >= MAX_BANS and sum(1 for _ in self) >= MAX_BANS:
            raise NoCapacity(f"there are {MAX_BANS} bans already")
        self._bans[key] = ban

    def remove(self, kind: str, name: str) -> bool:
        """End a ban; returns whether there was one. Errors as for :meth:`add`."""
        return self._bans.pop(banKey(kind, name), None) is not None

    def isBanned(self, principal: str) -> bool:
        """Return whether a principal is banned."""
        return self.waits(clientKey(principal, None)) > 0

    def waits(self, who: Hashable | None) -> float:
        """Return the seconds until the ban of a principal's or address's key ends, 0 without one."""
        ban = self._bans.get(who) if self._bans else None
        return 0.0 if ban is None else max(0.0, ban.until - self._seconds())


def banKey(kind: str, name: str) -> Hashable:
    """Return the key of a principal or an address, of IPv6 the first 64 bits; raises BadRequest without one."""
    if kind == "principal":
        if name.startswith(SPAWN):
            raise BadRequest("programs that the broker starts cannot be banned")
        return clientKey(name, None)
    if not isAddress(name):
        raise BadRequest(f"{name!r} is not an IP address")
    key = addressKey(SimpleNamespace(host=name))
    if key is None:
        raise BadRequest("this machine's own addresses cannot be banned")
    return key


def keysOf(principal: str | None, address: str) -> tuple[Hashable, Hashable | None]:
    """Return the keys of a client with this principal (None: anonymous), and this address as text with a port."""
    host = address.rpartition(":")[0].strip("[]")
    named = clientKey(principal or ANONYMOUS, None)
    return named, addressKey(SimpleNamespace(host=host)) if host else None
