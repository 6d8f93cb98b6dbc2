"""Checks tokens and API keys against a file of their SHA-256 hashes, and signatures against a file of public keys.

That suffices for secrets too long to be guessed, as ``fleximq token`` and ``fleximq apikey`` make them. A file that
contains the secrets themselves is refused.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from zope.interface import implementer

from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.authentication.checker_interfaces import ICautious, IUnguessable, IVouching
from fleximq.security.credentials import IApiKey, ISignature, IToken
from fleximq.security.principal import Principal
from fleximq.values import key_pairs

#: Maximum length of a secret in characters.
LONGEST = 4096

_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


def hashOf(secret: str) -> str:
    """Return the hash of a secret for the file."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def faultOfHash(written: str) -> str | None:
    """Return the fault of a hash, as the end of a sentence, or None."""
    fault = "has no SHA-256 in 64 hexadecimal digits, the secret itself may not stand here"
    return None if _HASH.fullmatch(written) else fault


@implementer(ICredentialsChecker, IUnguessable, IVouching, ICautious)
class HashedSecrets:
    """Finds principals by the hashes of their secrets. A name may have several, for changing them one by one.

    ``interface`` is the kind of credentials it checks, ``attribute`` theirs with the secret; ``fault`` is as for
    :func:`fleximq.security.secret_files.readEntries`.

    :raises SettingError: the file is invalid, or contains a secret twice.
    """

    def __init__(
        self, path: str, interface: Any, attribute: str, fault: Callable[[str], str | None] = faultOfHash
    ) -> None:
        found = secret_files.readEntries(path, fault)
        self.credentialInterfaces = (interface,)
        self.warnings = found.warnings
        self._attribute = attribute
        self._key = secrets.token_bytes(32)
        self._entries: dict[bytes, secret_files.CredentialEntry] = {}
        for entry in found.all():
            place = self._place(entry.hash)
            if place in self._entries:
                raise SettingError(f"{path} has the same secret for {self._entries[place].name} and for {entry.name}")
            self._entries[place] = entry

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal of a secret; raises UnauthorizedLogin if the secret is unknown."""
        secret = getattr(credentials, self._attribute)
        if len(secret) <= LONGEST:
            taken = hashOf(secret)
            entry = self._valid(taken)
            if entry is not None and hmac.compare_digest(entry.hash, taken):
                return principalOf(entry)
        raise UnauthorizedLogin()

    def vouch(self, principal: Principal) -> Principal | None:
        """Return the principal that has the same name and secret in the file, or None."""
        entry = self._valid(principal.proof)
        return None if entry is None or entry.name != principal.name else principalOf(entry)

    def _valid(self, taken: str) -> secret_files.CredentialEntry | None:
        entry = self._entries.get(self._place(taken))
        return None if entry is None or entry.hasExpired(time.time()) else entry

    def _place(self, taken: str) -> bytes:
        """Return the key of a hash for lookup, keyed so that timing does not reveal it."""
        return hashlib.blake2b(taken.encode(), key=self._key, digest_size=32).digest()


class PublicKeys(HashedSecrets):
    """Finds principals by their public keys. Only a signature by a key of the file is verified: guesses cost little."""

    def __init__(self, path: str) -> None:
        super().__init__(path, ISignature, "key", faultOfPublicKey)

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal of a key; raises UnauthorizedLogin if it is unknown or the signature is wrong."""
        key, challenge = credentials.key, credentials.challenge
        entry = self._valid(key) if len(key) <= LONGEST else None
        if entry is None or not challenge or not key_pairs.isSignature(key, challenge, credentials.signature):
            raise UnauthorizedLogin()
        return principalOf(entry)


def faultOfPublicKey(written: str) -> str | None:
    """Return the fault of a public key in a file, as the end of a sentence, or None."""
    return None if key_pairs.isPublicKey(written) else "has no public key as fleximq keypair makes them"


def principalOf(entry: secret_files.CredentialEntry) -> Principal:
    """Return the principal of an entry, as long as that is valid."""
    return Principal(entry.name, frozenset(entry.roles), expires=entry.until, proof=entry.hash)


#: The checkers of ``--auth`` with ``tokens:FILE``, ``apikeys:FILE`` and ``publickeys:FILE``.
tokens = partial(HashedSecrets, interface=IToken, attribute="token")
apiKeys = partial(HashedSecrets, interface=IApiKey, attribute="key")
publicKeys = PublicKeys
