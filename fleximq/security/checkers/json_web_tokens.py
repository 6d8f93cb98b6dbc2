"""Checks JSON Web Tokens (RFC 7519): HS256, RS256 or ES256, as the key requires. FlexiMQ document 5.2.1 shows one."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jwt
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.config.option_values import seconds
from fleximq.errors import SettingError
from fleximq.limits import KIBIBYTE
from fleximq.security.authentication import schemes
from fleximq.security.authentication.checker_interfaces import ICautious, IUnguessable, IVouching
from fleximq.security.checkers import signing_keys
from fleximq.security.checkers.claims import WrongClaim, find, grantsOf, rolesOf
from fleximq.security.checkers.signing_keys import SigningKey
from fleximq.security.credentials import IToken
from fleximq.security.principal import Principal, isName

_log = Logger("fleximq.security.checkers.json_web_tokens.JsonWebTokens")

#: Maximum length of a token in characters.
LONGEST = 16 * KIBIBYTE
#: Maximum difference of clocks, in seconds.
MOST_LEEWAY = 600.0

_SOURCES = {"secret": signing_keys.ofSecret, "key": signing_keys.ofPem, "jwks": signing_keys.ofSet}


class TokenRule(NamedTuple):
    """Required claims, and the names of the claims to read; None: not checked.

    ``leeway`` is in seconds. ``principal``, ``roles`` and ``permissions`` are names of claims, or paths with dots.
    """

    issuer: str | None = None
    audience: str | None = None
    leeway: float = 0.0
    principal: str = "sub"
    roles: str | None = None
    permissions: str | None = None


@implementer(ICredentialsChecker, IUnguessable, IVouching, ICautious)
class JsonWebTokens:
    """Checks tokens by their signature."""

    credentialInterfaces = (IToken,)

    def __init__(self, keys: signing_keys.Keys, rule: TokenRule = TokenRule()) -> None:  # noqa: B008
        self.warnings = keys.warnings
        self._keys = {key.id: key for key in keys.keys}
        self._rule = rule

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal of a token; raises UnauthorizedLogin if it is not valid here and now."""
        if len(credentials.token) > LONGEST:
            raise UnauthorizedLogin()
        try:
            key = self._keyFor(jwt.get_unverified_header(credentials.token))
            return self._principalOf(self._claims(credentials.token, key), key)
        except WrongClaim as error:
            _log.warn("A token that is signed rightly cannot be used: {reason}", reason=str(error))
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            _log.debug("A token is not valid: {reason}", reason=type(error).__name__)
        raise UnauthorizedLogin()

    def vouch(self, principal: Principal) -> Principal | None:
        """Return the principal if the key and rule of its token are unchanged, or None."""
        known = any(principal.proof == self._proof(key) for key in self._keys.values())
        return principal if known else None

    def _keyFor(self, header: Mapping[str, Any]) -> SigningKey:
        """Return the key that a token names, or the only key; raises UnauthorizedLogin if the key is unknown."""
        only = next(iter(self._keys.values())) if len(self._keys) == 1 else None
        key = (
            only if only is not None and ("kid" not in header or not only.id) else self._keys.get(header.get("kid", ""))
        )
        if key is None or header.get("alg") != key.algorithm:
            raise UnauthorizedLogin()
        return key

    def _claims(self, token: str, key: SigningKey) -> Mapping[str, Any]:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm],
            issuer=self._rule.issuer,
            audience=self._rule.audience,
            leeway=self._rule.leeway,
        )
        return claims

    def _principalOf(self, claims: Mapping[str, Any], key: SigningKey) -> Principal:
        """Return the principal of the claims; raises WrongClaim if they are malformed."""
        rule = self._rule
        name = find(claims, rule.principal)
        if not isName(name):
            raise WrongClaim(f"its claim {rule.principal} is not the name of anybody")
        return Principal(
            name,
            frozenset() if rule.roles is None else rolesOf(find(claims, rule.roles)),
            {} if rule.permissions is None else grantsOf(find(claims, rule.permissions)),
            expires=float(claims["exp"]) + rule.leeway if "exp" in claims else None,
            proof=self._proof(key),
        )

    def _proof(self, key: SigningKey) -> str:
        return hashlib.sha256(f"{key.fingerprint} {tuple(self._rule)!r}".encode()).hexdigest()


def tokens(argument: str) -> JsonWebTokens:
    """Make the checker of ``--auth jwt:...``.

    :raises SettingError: the options are wrong, or the file with the key is.
    """
    known = (*_SOURCES, *TokenRule._fields)
    given: dict[str, Any] = schemes.pairs(schemes.split(argument), known)
    sources = [name for name in _SOURCES if name in given]
    if len(sources) != 1:
        raise SettingError("exactly one of secret=FILE, key=FILE and jwks=FILE must be given")
    path = given.pop(sources[0])
    if "leeway" in given:
        given["leeway"] = seconds("leeway", given["leeway"])
        if not 0 <= given["leeway"] <= MOST_LEEWAY:
            raise SettingError(f"leeway is {given['leeway']:g}, but must be between 0 and {MOST_LEEWAY:g} seconds")
    return JsonWebTokens(_SOURCES[sources[0]](path), TokenRule(**given))
