"""Passwords from a file that holds their Argon2 hashes.

A hash takes a thread some 30 ms and 19 MiB, so only two are taken at a time, and a password that was right is known
again for some minutes without it. A name that nobody has costs the same as one that somebody has.

A few threads for work that takes long; they are begun when they are first needed, and end with their owner.
"""

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
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
from fleximq.security.credentials import IPassword
from fleximq.security.principal import Principal


class WorkerThreads:
    """Does work in threads.

    :param callFromThread: the reactor's.
    :param count: so many threads at most.
    """

    def __init__(self, callFromThread: Callable[..., Any], count: int) -> None:
        self._callFromThread = callFromThread
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="fleximq-credentials")

    def run(self, call: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Do this in a thread, and give what comes of it on the reactor's. What is cancelled goes on unheard."""
        done: Deferred[Any] = Deferred()
        self._threads.submit(_outcome, call, arguments).add_done_callback(
            lambda future: self._callFromThread(_tell, done, future)
        )
        return done


def _outcome(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return call(*arguments)
    except BaseException:
        return Failure()


def _tell(done: Deferred[Any], future: Future[Any]) -> None:
    if not done.called:
        done.callback(future.result())


#: How new hashes are made: what OWASP asks for at least. Kibibytes, and passes over them.
MEMORY, PASSES = 19 * 1024, 2
#: What the hashes of a file may ask for at most.
MOST_MEMORY, MOST_PASSES, MOST_LANES = 1024 * 1024, 64, 64
#: How many hashes are taken at a time.
AT_ONCE = 2
#: For how many seconds a password that was right is known.
REMEMBERED = 300.0
#: A password may have so many bytes.
LONGEST = 1024

_HASHER = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY, parallelism=1)
Run = Callable[..., Deferred[Any]]


def hashOf(password: str) -> str:
    """Return what stands in a file for a password; takes as long as checking it."""
    return _HASHER.hash(password)


def faultOfHash(written: str) -> str | None:
    """Return what is wrong with a hash, as the end of a sentence, or None."""
    try:
        asked = extract_parameters(written)
    except (InvalidHashError, ValueError):
        return "has no Argon2 hash"
    if asked.memory_cost > MOST_MEMORY or asked.time_cost > MOST_PASSES or asked.parallelism > MOST_LANES:
        return "has a hash that would take too much memory or time"
    return None if asked.type is Type.ID else "has a hash that is not Argon2id"


def isRight(written: str, password: bytes) -> bool:
    """Say whether a hash is that of a password; takes a while."""
    try:
        return _HASHER.verify(written, password)
    except (VerificationError, InvalidHashError):
        return False


@implementer(ICredentialsChecker, IManyAtOnce, IRemembering, IVouching, INeedsReactor, ICautious)
class Passwords:
    """Knows passwords by their hashes.

    :param run: does work elsewhere and gives its outcome; by default in threads, once there is a reactor.
    :raises SettingError: the file is not as it must be, or has a name twice.
    """

    credentialInterfaces = (IPassword,)
    atOnce = AT_ONCE

    def __init__(self, path: str, run: Run | None = None) -> None:
        found = secret_files.readEntries(path, faultOfHash)
        self.warnings = found.warnings
        self._entries: dict[str, secret_files.CredentialEntry] = {}
        for entry in found.all():
            if entry.name in self._entries:
                raise SettingError(f"{path} has the name {entry.name} twice")
            self._entries[entry.name] = entry
        self._decoys = [entry.hash for entry in self._entries.values()] or [_decoy()]
        self._key = secrets.token_bytes(32)
        self._run = run
        self._right: ResultCache[Principal] | None = None

    def useReactor(self, reactor: Any) -> None:
        """Take threads and the clock from a reactor."""
        self._run = self._run or WorkerThreads(reactor.callFromThread, AT_ONCE).run
        self._right = ResultCache(reactor.seconds, REMEMBERED)

    def remembered(self, credentials: Any) -> Principal | None:
        """Return whose password it is, if it was right a short while ago."""
        if self._right is None or len(credentials.password) > LONGEST:
            return None
        return self._right.get(credentials.username, credentials.password)

    async def _check(self, credentials: Any) -> Principal:
        name, password = credentials.username, _spelled(credentials.password)
        if self._run is None or password is None:
            raise UnauthorizedLogin()
        entry = self._entries.get(name)
        right = await self._run(isRight, self._decoyOf(name) if entry is None else entry.hash, password)
        if entry is None or not right:
            raise UnauthorizedLogin()
        principal = _principalOf(entry)
        if self._right is not None:
            self._right.put(principal, name, credentials.password)
        return principal

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return whose password it is; it fails with UnauthorizedLogin if it is nobody's."""
        return Deferred.fromCoroutine(self._check(credentials))

    def vouch(self, principal: Principal) -> Principal | None:
        """Return somebody as it stands in the file with the same password, or None."""
        entry = self._entries.get(principal.name)
        found = None if entry is None else _principalOf(entry)
        return found if found is not None and found.proof == principal.proof else None

    def _decoyOf(self, name: str) -> str:
        """Return the hash on which to spend the time for a name that nobody has: always the same for the same name.

        It is somebody's, so that where hashes cost differently, unknown names do so as well.
        """
        taken = hashlib.blake2b(name.encode(errors="surrogatepass"), key=self._key, digest_size=8).digest()
        return self._decoys[int.from_bytes(taken, "big") % len(self._decoys)]


def _spelled(password: str) -> bytes | None:
    """Return the bytes of a password, None if nobody's can be like it."""
    try:
        spelled = password.encode()
    except UnicodeEncodeError:
        return None
    return spelled if len(spelled) <= LONGEST else None


def _decoy() -> str:
    salt, hash = (b64encode(secrets.token_bytes(length)).rstrip(b"=").decode() for length in (16, 32))
    return f"$argon2id$v=19$m={MEMORY},t={PASSES},p=1${salt}${hash}"


def _principalOf(entry: secret_files.CredentialEntry) -> Principal:
    return Principal(entry.name, frozenset(entry.roles), proof=hashlib.sha256(entry.hash.encode()).hexdigest())


def passwords(argument: str) -> Passwords:
    """Make the checker of ``--auth passwords:FILE``.

    :raises SettingError: the file is not as it must be.
    """
    return Passwords(argument)
