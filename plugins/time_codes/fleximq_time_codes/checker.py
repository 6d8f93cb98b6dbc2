"""Checks names and codes: each is valid once, during its half minute and the half minutes before and after it."""

import base64
import binascii
import hmac
import time
from collections.abc import Callable
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from zope.interface import implementer

from fleximq.api import (
    ICautious,
    IPassword,
    IVouching,
    Principal,
    SettingError,
    isName,
    readSecretFile,
    textOfSecretFile,
)

PERIOD = 30  #: Lifetime of a code in the app, in seconds.
LASTING = 12 * 3600  #: Seconds after which the principal must send a new code.


def codeOf(key: bytes, period: int) -> str:
    """Return the code of a period (RFC 6238)."""
    taken = hmac.digest(key, period.to_bytes(8, "big"), "sha1")
    place = taken[-1] & 15
    return f"{(int.from_bytes(taken[place : place + 4], 'big') & 0x7FFFFFFF) % 1_000_000:06d}"


@implementer(ICredentialsChecker, IVouching, ICautious)
class TimeCodes:
    """Checks codes with the keys of a file; raises SettingError if it is invalid. ``now``: seconds since 1970."""

    credentialInterfaces = (IPassword,)

    def __init__(self, path: str, now: Callable[[], float] = time.time) -> None:
        found = readSecretFile(path)
        self.warnings = found.warnings
        self._keys = dict(_entry(path, line) for line in textOfSecretFile(path, found).splitlines() if line)
        self._now = now
        self._used: dict[str, int] = {}

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal of a code; raises UnauthorizedLogin if it is not valid now."""
        name, shown = credentials.username, credentials.password.encode(errors="replace")
        key = self._keys.get(name, b"")
        now = self._now()
        good = 0
        for period in range(int(now) // PERIOD - 1, int(now) // PERIOD + 2):
            if hmac.compare_digest(codeOf(key, period).encode(), shown):
                good = period
        if not key or good <= self._used.get(name, 0):
            raise UnauthorizedLogin()
        self._used[name] = good
        return Principal(name, expires=now + LASTING)

    def vouch(self, principal: Any) -> Any:
        return principal if principal.name in self._keys else None


def _entry(path: str, line: str) -> tuple[str, bytes]:
    name, _, written = line.partition(":")
    try:
        key = base64.b32decode(written)
    except binascii.Error:
        key = b""
    if not isName(name) or len(key) < 10:
        raise SettingError(f"{path} has a line that is not NAME:KEY with a key of 16 or more letters in base32")
    return name, key
