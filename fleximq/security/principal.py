"""Who a client is, once its credentials were checked.

What a principal or a role may be called.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zope.interface import Attribute, Interface, implementer

from fleximq.interfaces import IRights

#: Who a client is that showed no credentials, in permissions.
ANONYMOUS = "anonymous"


class IPrincipal(Interface):
    """What a login of ``twisted.cred`` ends with here."""

    name = Attribute("""Who it is.""")


@implementer(IPrincipal)
@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whom a checker knows.

    ``name`` is unique among all checkers of a broker by the operator's care. ``roles`` and ``grants`` (action -> topic
    patterns) come with the credentials themselves, e.g. from a token's claims, beside what the settings say of the
    name. ``scheme`` is the checker that vouched. ``expires`` is when the credentials end, in seconds since 1970; the
    connection ends then too. ``proof`` is what the checker knows the credentials by when it is asked again whether it
    vouches for them, e.g. after its file was changed; nothing that would let anybody in.
    """

    name: str
    roles: frozenset[str] = frozenset()
    grants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scheme: str = ""
    expires: float | None = None
    proof: str = field(default="", repr=False)


class Admitted(NamedTuple):
    """A peer that may come in: who it is (None: anonymous), and what it may do."""

    principal: Principal | None
    rights: IRights


#: Names may have so many characters.
MAX_NAME_CHARACTERS = 256
#: Before the names of programs that the broker runs itself; nobody else is called so.
SPAWN = "spawn:"

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


def isName(name: object) -> bool:
    """Say whether somebody may have this name.

    It is a text of 1 to :data:`MAX_NAME_CHARACTERS` characters without control characters and without spaces at its
    ends,
    neither that of those who show nothing nor one of a program that the broker runs.
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
    """Say whether a role may have this name: up to 64 letters, digits, ``_``, ``.`` and ``-``."""
    return isinstance(name, str) and _ROLE.fullmatch(name) is not None
