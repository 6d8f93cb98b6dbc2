"""Checks passwords against a file of their Argon2 hashes.

A hash takes about 30 ms of a thread of the reactor's pool and 19 MiB, so only two run concurrently, and a right
password is cached for some minutes. An unknown name costs the same as a known one.
"""

import hashlib
import secrets
import time
from base64 import b64encode
from dataclasses import replace
from typing import Any

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.authentication.checker_interfaces import (
    ICautious,
    IManyAtOnce,
    INeedsReactor,
    IRemembering,
    IVouching,
)
from fleximq.security.authentication.result_cache import ResultCache
from fleximq.security.checkers.hashed_secrets import principalOf
from fleximq.security.credentials import IPassword
from fleximq.security.principal import Principal

#: Parameters of new hashes, OWASP's minimum: kibibytes, and passes over them.
MEMORY, PASSES = 19 * 1024, 2
#: Maximum parameters of the hashes in a file.
MOST_MEMORY, MOST_PASSES, MOST_LANES = 1024 * 1024, 64, 64
#: Maximum number of concurrent hashes.
AT_ONCE = 2
#: Lifetime of a cached password in seconds.
REMEMBERED = 300.0
#: Maximum length of a password in bytes.
LONGEST = 1024

_HASHER = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY, parallelism=1)


def hashOf(password: str) -> str:
    """Return the hash of a password for the file; takes as long as checking it."""
    return _HASHER.hash(password)


def faultOfHash(written: str) -> str | None:
    """Return the fault of a hash, as the end of a sentence, or None."""
    try:
        asked = extract_parameters(written)
    except (InvalidHashError, ValueError):
        return "has no Argon2 hash"
    if asked.memory_cost > MOST_MEMORY or asked.time_cost > MOST_PASSES or asked.parallelism > MOST_LANES:
        return "has a hash that would take too much memory or time"
    return None if asked.type is Type.ID else "has a hash that is not Argon2id"


def isRight(written: str, password: bytes) -> bool:
    """Return whether a hash matches a password; takes about 30 ms."""
    try:
        return _HASHER.verify(written, password)
    except (VerificationError, InvalidHashError):
        return False


@implementer(ICredentialsChecker, IManyAtOnce, IRemembering, IVouching, INeedsReactor, ICautious)
class Passwords:
    """Checks passwords by their hashes; raises SettingError for an invalid file. An earlier one may be valid too."""

    credentialInterfaces = (IPassword,)
    atOnce = AT_ONCE

    def __init__(self, path: str) -> None:
        found = secret_files.readEntries(path, faultOfHash)
        self.warnings = found.warnings
        self._entries: dict[str, list[secret_files.CredentialEntry]] = {}
        for entry in found.all():
            others = self._entries.setdefault(entry.name, [])
            if any((other.until is None) is (entry.until is None) for other in others):
                raise SettingError(f"{path} has the name {entry.name} twice")
            others.append(entry)
        self._decoys = [[entry.hash for entry in own] for own in self._entries.values()] or [[_decoy()]]
        self._key = secrets.token_bytes(32)

    def useReactor(self, reactor: Any) -> None:
        """Use threads and the clock of a reactor."""
        self._reactor = reactor
        self._right: ResultCache[Principal] = ResultCache(reactor.seconds, REMEMBERED)

    def remembered(self, credentials: Any) -> Principal | None:
        """Return the principal of a recently checked password, or None."""
        if len(credentials.password) > LONGEST:
            return None
        return self._right.get(credentials.username, credentials.password)

    async def _check(self, credentials: Any) -> Principal:
        name = credentials.username
        try:
            password = credentials.password.encode()
        except UnicodeEncodeError:
            raise UnauthorizedLogin() from None
        if len(password) > LONGEST:
            raise UnauthorizedLogin()
        now = time.time()
        valid = {entry.hash: entry for entry in self._entries.get(name, ()) if not entry.hasExpired(now)}
        for hashed in valid or self._decoyOf(name):
            right = await deferToThreadPool(self._reactor, self._reactor.getThreadPool(), isRight, hashed, password)
            if right and hashed in valid:
                principal = _principalOf(valid[hashed])
                lasting = None if principal.expires is None else principal.expires - now
                self._right.put(principal, name, credentials.password, lasting=lasting)
                return principal
        raise UnauthorizedLogin()

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal; fails with UnauthorizedLogin if the password is wrong."""
        return Deferred.fromCoroutine(self._check(credentials))

    def vouch(self, principal: Principal) -> Principal | None:
        """Return the principal if it has the same password in the file, or None."""
        now = time.time()
        found = [_principalOf(each) for each in self._entries.get(principal.name, ()) if not each.hasExpired(now)]
        return next((each for each in found if each.proof == principal.proof), None)

    def _decoyOf(self, name: str) -> list[str]:
        """Return the hashes to compute for an unknown name: those of a name in the file, so that costs are alike."""
        taken = hashlib.blake2b(name.encode(errors="surrogatepass"), key=self._key, digest_size=8).digest()
        return self._decoys[int.from_bytes(taken, "big") % len(self._decoys)]


def _decoy() -> str:
    salt, hashed = (b64encode(secrets.token_bytes(length)).rstrip(b"=").decode() for length in (16, 32))
    return f"$argon2id$v=19$m={MEMORY},t={PASSES},p=1${salt}${hashed}"


def _principalOf(entry: secret_files.CredentialEntry) -> Principal:
    return replace(principalOf(entry), proof=hashlib.sha256(entry.hash.encode()).hexdigest())


#: The checker of ``--auth passwords:FILE``.
passwords = Passwords
