"""Checks JSON Web Tokens (RFC 7519): HS256, RS256 or ES256, as the key requires. FlexiMQ document 5.2.1 shows one."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jwt
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.config.option_values import seconds
from fleximq.errors import SettingError
from fleximq.limits import KIBIBYTE
from fleximq.security import secret_files
from fleximq.security.authentication import schemes
from fleximq.security.authentication.checker_interfaces import ICautious, INeedsReactor, IUnguessable, IVouching
from fleximq.security.checkers import signing_keys
from fleximq.security.checkers.bounded_agent import withoutQuery
from fleximq.security.checkers.claims import WrongClaim, find, grantsOf, rolesOf, textsIn
from fleximq.security.checkers.remote_keys import KeySource, RemoteKeys
from fleximq.security.checkers.signing_keys import SigningKey
from fleximq.security.checkers.web_options import checkedUrl, isPrivate, trusting
from fleximq.security.credentials import IToken
from fleximq.security.principal import Principal, isName
from fleximq.values.log_limit import LogLimit

_log = Logger()

#: Maximum length of a token in characters.
LONGEST = 16 * KIBIBYTE
#: Maximum difference of clocks, in seconds.
MOST_LEEWAY = 600.0

_SOURCES: dict[str, Callable[[str], signing_keys.Keys]] = {
    "secret": signing_keys.ofSecret,
    "key": signing_keys.ofPem,
    "jwks": signing_keys.ofSet,
}


class TokenRule(NamedTuple):
    """Required claims, and the names or dotted paths of those to read; None: unchecked. ``leeway`` is in seconds."""

    issuer: str | None = None
    audience: str | None = None
    leeway: float = 0.0
    principal: str = "sub"
    roles: str | None = None
    permissions: str | None = None
    require: tuple[str, ...] = ("exp",)


@implementer(ICredentialsChecker, IUnguessable, IVouching, ICautious, INeedsReactor)
class JsonWebTokens:
    """Checks tokens by their signature, and against the ``jti`` of ``revoked`` ones, None: of none."""

    credentialInterfaces = (IToken,)

    def __init__(
        self, keys: signing_keys.Keys | RemoteKeys, rule: TokenRule, revoked: frozenset[str] | None = None
    ) -> None:
        self._unusable = LogLimit()
        self.warnings = () if isinstance(keys, RemoteKeys) else keys.warnings
        self._keys = keys
        self._rule = rule
        self._revoked = None if revoked is None else frozenset(map(_hash, revoked))

    def useReactor(self, reactor: Any) -> None:
        if isinstance(self._keys, RemoteKeys):
            self._keys.useReactor(reactor)

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the principal of a token, later if its key must be fetched.

        It fails with UnauthorizedLogin if the token is not valid now, with NoCapacity if its key cannot be fetched.
        """
        if len(credentials.token) > LONGEST:
            raise UnauthorizedLogin()
        try:
            header = jwt.get_unverified_header(credentials.token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise UnauthorizedLogin() from None
        if isinstance(self._keys, RemoteKeys) and header.get("alg") in ("RS256", "ES256"):
            waiting = self._keys.refreshed(_keyIn(self._keys.keys, header) is not None)
            if waiting is not None:
                return waiting.addCallback(lambda _: self._checked(credentials.token, header))
        return self._checked(credentials.token, header)

    def vouch(self, principal: Principal) -> Principal | None:
        """Return the principal if its token is not revoked, and the key (or its URL) and the rule are unchanged."""
        source, _, jti = principal.proof.partition(" ")
        keys = self._keys
        marks = [keys.source.place] if isinstance(keys, RemoteKeys) else [key.fingerprint for key in keys.keys]
        known = any(source == self._proof(mark) for mark in marks)
        return principal if known and not self._isRevoked(jti) else None

    def _checked(self, token: str, header: Mapping[str, Any]) -> Principal:
        key = _keyIn(self._keys.keys, header)
        if key is None or header.get("alg") != key.algorithm:
            raise UnauthorizedLogin()
        issuer, audience, leeway, *_ = self._rule
        try:
            claims = jwt.decode(
                token, key.key, algorithms=[key.algorithm], issuer=issuer, audience=audience, leeway=leeway
            )
            return self._principalOf(claims, key)
        except (WrongClaim, jwt.InvalidAudienceError, jwt.InvalidIssuerError, jwt.ExpiredSignatureError,
                jwt.ImmatureSignatureError, jwt.MissingRequiredClaimError) as error:  # fmt: skip
            more = self._unusable.ending(time.monotonic())
            if more is not None:
                _log.warn("A token that is signed rightly cannot be used: {reason}{more}", reason=str(error), more=more)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            pass
        raise UnauthorizedLogin()

    def _principalOf(self, claims: Mapping[str, Any], key: SigningKey) -> Principal:
        """Return the principal of the claims; raises WrongClaim if they are malformed."""
        rule = self._rule
        name = find(claims, rule.principal)
        if not isName(name):
            raise WrongClaim(f"its claim {rule.principal} is not the name of anybody")
        missing = [claim for claim in rule.require if find(claims, claim) is None]
        if missing:
            raise WrongClaim(f"it has no claim {missing[0]}; require= says which claims are required")
        jti = "" if self._revoked is None else _hash(claims.get("jti"))
        if self._isRevoked(jti):
            raise WrongClaim("it is revoked, or has no jti by which it could be")
        source = self._keys.source.place if isinstance(self._keys, RemoteKeys) else key.fingerprint
        return Principal(
            name,
            frozenset() if rule.roles is None else rolesOf(find(claims, rule.roles)),
            {} if rule.permissions is None else grantsOf(find(claims, rule.permissions)),
            expires=float(claims["exp"]) + rule.leeway if "exp" in claims else None,
            proof=f"{self._proof(source)} {jti}",
            claims=textsIn(claims),
        )

    def _isRevoked(self, jti: str) -> bool:
        return self._revoked is not None and (not jti or jti in self._revoked)

    def _proof(self, source: str) -> str:
        return _hash(f"{source} {tuple(self._rule)!r}")


def _hash(said: object) -> str:
    """Return the hash of a text, "" for anything else."""
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest() if isinstance(said, str) else ""


def _keyIn(keys: Sequence[SigningKey], header: Mapping[str, Any]) -> SigningKey | None:
    """Return the key that a token names, or the only key; None if it is unknown."""
    if len(keys) == 1 and ("kid" not in header or not keys[0].id):
        return keys[0]
    keyId = header.get("kid", "")
    return next((key for key in keys if key.id == keyId), None)


def tokens(argument: str) -> JsonWebTokens:
    """Make the checker of ``--auth jwt:...``. Raises SettingError: the options are wrong, or a file is."""
    known = (*_SOURCES, "ca", "revoked", *TokenRule._fields)
    given: dict[str, Any] = schemes.pairs(schemes.split(argument), known)
    keys = _keysOf(given)
    revoked = None
    if "revoked" in given:
        path = given.pop("revoked")
        lines = secret_files.text(path, secret_files.read(path, public=True)).splitlines()
        revoked = frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if "leeway" in given:
        given["leeway"] = seconds("leeway", given["leeway"])
        if not 0 <= given["leeway"] <= MOST_LEEWAY:
            raise SettingError(f"leeway is {given['leeway']:g}, but must be between 0 and {MOST_LEEWAY:g} seconds")
    if "require" in given:
        given["require"] = () if given["require"] == "none" else tuple(given["require"].split("+"))
    return JsonWebTokens(keys, TokenRule(**given), revoked)


def _keysOf(given: dict[str, Any]) -> signing_keys.Keys | RemoteKeys:
    """Remove the options that name the keys, but not the issuer, and return the keys."""
    sources = [name for name in _SOURCES if name in given]
    if len(sources) > 1 or not (sources or "issuer" in given):
        raise SettingError(
            "exactly one of secret=FILE, key=FILE and jwks=FILE or URL must be given, or issuer=URL alone"
        )
    place = given.pop(sources[0]) if sources else given["issuer"]
    isUrl = "://" in place
    if sources and not (isUrl and sources == ["jwks"]):
        if "ca" in given:
            raise SettingError("ca= needs jwks=URL, or issuer=URL alone")
        return _SOURCES[sources[0]](place)
    if not isPrivate(checkedUrl(place)):
        raise SettingError(f"keys can be fetched by https only, but the URL is {withoutQuery(place)!r}")
    policy = trusting(given.pop("ca")) if "ca" in given else None
    return RemoteKeys(KeySource(place if sources else None, given.get("issuer", ""), policy))
