"""Tokens and API keys from a file that holds only their SHA-256.

That is enough for secrets that are too long to be guessed; ``fleximq token`` and ``fleximq apikey`` make such. A file
with the secrets themselves in it is refused.
"""

import hashlib
import hmac
import re
import secrets
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from zope.interface import implementer

from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.authentication.checker_interfaces import ICautious, IUnguessable, IVouching
from fleximq.security.credentials import IApiKey, IToken
from fleximq.security.principal import Principal

#: A secret may have so many characters.
LONGEST = 4096

_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


def hashOf(secret: str) -> str:
    """Return what stands in a file for a secret."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def faultOfHash(written: str) -> str | None:
    """Return what is wrong with a hash, as the end of a sentence, or None."""
    return (
        None
        if _HASH.fullmatch(written)
        else "has no SHA-256 in 64 hexadecimal digits, the secret itself may not stand here"
    )


@implementer(ICredentialsChecker, IUnguessable, IVouching, ICautious)
class HashedSecrets:
    """Knows secrets by their hashes. A name may have several, so that they can be changed one after the other.

    :param interface: which credentials it checks.
    :param attribute: where these have their secret.
    :raises SettingError: the file is not as it must be, or has a secret twice.
    """

    def __init__(self, path: str, interface: Any, attribute: str) -> None:
        found = secret_files.readEntries(path, faultOfHash)
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
        """Return whose secret it is.

        :raises UnauthorizedLogin: nobody's.
        """
        secret = getattr(credentials, self._attribute)
        if len(secret) <= LONGEST:
            taken = hashOf(secret)
            entry = self._entries.get(self._place(taken))
            if entry is not None and hmac.compare_digest(entry.hash, taken):
                return _principalOf(entry)
        raise UnauthorizedLogin()

    def vouch(self, principal: Principal) -> Principal | None:
        """Return somebody as it stands in the file with the same secret, or None."""
        entry = self._entries.get(self._place(principal.proof))
        return None if entry is None or entry.name != principal.name else _principalOf(entry)

    def _place(self, taken: str) -> bytes:
        """Return where a hash is looked up, which says nothing about it to somebody who measures the time."""
        return hashlib.blake2b(taken.encode(), key=self._key, digest_size=32).digest()


def _principalOf(entry: secret_files.CredentialEntry) -> Principal:
    return Principal(entry.name, frozenset(entry.roles), proof=entry.hash)


def tokens(argument: str) -> HashedSecrets:
    """Make the checker of ``--auth tokens:FILE``.

    :raises SettingError: the file is not as it must be.
    """
    return HashedSecrets(argument, IToken, "token")


def apiKeys(argument: str) -> HashedSecrets:
    """Make the checker of ``--auth apikeys:FILE``.

    :raises SettingError: the file is not as it must be.
    """
    return HashedSecrets(argument, IApiKey, "key")
