"""The principal of an authenticated client, and the valid names of principals and roles."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zope.interface import Attribute, Interface, implementer

from fleximq.interfaces import IRights

#: The name of clients without credentials in permissions.
ANONYMOUS = "anonymous"


class IPrincipal(Interface):
    """The avatar that a login of ``twisted.cred`` returns."""

    name = Attribute("""Its name.""")


@implementer(IPrincipal)
@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated identity.

    ``name``: the operator must make it unique among all checkers of a broker. ``roles`` and ``grants`` (topic patterns
    by action) are carried by the credentials, and add to those of the settings. ``scheme``: the scheme and prefix of
    its checker. ``expires``: the end of the credentials and the connection, in seconds since 1970. ``proof`` helps the
    checker recognise the credentials later; it does not grant access. ``claims`` of a token may be in patterns.
    """

    name: str
    roles: frozenset[str] = frozenset()
    grants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scheme: str = ""
    expires: float | None = None
    proof: str = field(default="", repr=False)
    claims: Mapping[str, str] = field(default_factory=dict)


class Admitted(NamedTuple):
    """An admitted peer: its principal (None: anonymous), its rights, and whether a console ticket admitted it."""

    principal: Principal | None
    rights: IRights
    byTicket: bool = False


#: Maximum length of a name in characters.
MAX_NAME_CHARACTERS = 256
#: Prefix of the names of programs that the broker runs itself; reserved for them.
SPAWN = "spawn:"
#: The scheme of principals that a listener gives to its clients; no checker can have this name.
LISTENER = "principal="

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


def isName(name: object) -> bool:
    """Return whether a principal may have this name: a text of 1 to :data:`MAX_NAME_CHARACTERS` characters.

    Control characters, spaces at its ends, ``anonymous`` and names that begin with ``spawn:`` are not allowed.
    """
    return (
        isinstance(name, str)
        and 0 < len(name) <= MAX_NAME_CHARACTERS
        and name == name.strip()
        and not _FORBIDDEN.search(name)
        and name != ANONYMOUS
        and not name.startswith(SPAWN)
    )


def isRole(name: object) -> bool:
    """Return whether a role may have this name: up to 64 letters, digits, ``_``, ``.`` and ``-``."""
    return isinstance(name, str) and _ROLE.fullmatch(name) is not None
