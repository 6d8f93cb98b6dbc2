"""What a principal or a role may be called."""

import re

from fleximq.security.principal import ANONYMOUS

#: Names may have so many characters.
LONGEST_NAME = 256
#: Before the names of programs that the broker runs itself; nobody else is called so.
SPAWN = "spawn:"

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


def isName(name: object) -> bool:
    """Say whether somebody may have this name.

    It is a text of 1 to :data:`LONGEST_NAME` characters without control characters and without spaces at its ends,
    neither that of those who show nothing nor one of a program that the broker runs.
    """
    return (
        isinstance(name, str)
        and 0 < len(name) <= LONGEST_NAME
        and name == name.strip()
        and not _FORBIDDEN.search(name)
        and name != ANONYMOUS
        and not name.startswith(SPAWN)
    )


def isRole(name: object) -> bool:
    """Say whether a role may have this name: up to 64 letters, digits, ``_``, ``.`` and ``-``."""
    return isinstance(name, str) and _ROLE.fullmatch(name) is not None
