"""The keys that sign JSON Web Tokens, each bound to one algorithm.

The operator's key determines how a token is checked, never the token itself.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from fleximq.errors import SettingError
from fleximq.security import secret_files

#: Minimum size of a secret in bytes (RFC 7518, 3.2), and of an RSA key in bits.
SECRET_BYTES, RSA_BITS = 32, 2048


class SigningKey(NamedTuple):
    """A key: its id in a set ("" outside of one), its algorithm, itself, and a hash of it."""

    id: str
    algorithm: str
    key: Any
    fingerprint: str

    def __repr__(self) -> str:
        return f"SigningKey(id={self.id!r}, algorithm={self.algorithm!r})"


class Keys(NamedTuple):
    """All keys of a checker, and warnings for the operator."""

    keys: tuple[SigningKey, ...]
    warnings: tuple[str, ...] = ()


def ofSecret(path: str) -> Keys:
    """Return the secret in a file, for HS256, without a line end after it; raises SettingError if it is unusable."""
    found = secret_files.read(path)
    secret = found.content.removesuffix(b"\n").removesuffix(b"\r")
    if b"-----BEGIN" in secret:
        raise SettingError(f"{path} holds a PEM key, but a secret is random bytes: say key= where it is a public key")
    if len(secret) < SECRET_BYTES:
        raise SettingError(f"{path} has {len(secret)} bytes, but a secret for HS256 must have at least {SECRET_BYTES}")
    return Keys((SigningKey("", "HS256", secret, hashlib.sha256(b"secret:" + secret).hexdigest()),), found.warnings)


def ofPem(path: str) -> Keys:
    """Return the public key, or that of the certificate, in a PEM file; raises SettingError if it cannot be used."""
    content = secret_files.read(path, public=True).content
    try:
        if b"BEGIN CERTIFICATE" in content:
            key: Any = x509.load_pem_x509_certificate(content).public_key()
        else:
            key = serialization.load_pem_public_key(content)
    except Exception as error:  # cryptography raises many kinds
        if b"PRIVATE KEY" in content:
            raise SettingError(f"{path} holds a private key, but only the public one is needed here") from error
        raise SettingError(f"{path} holds no public key and no certificate in PEM") from error
    return Keys((_signingKey(path, "", key),))


def ofSet(path: str) -> Keys:
    """Return the RSA and P-256 keys for signatures of a JWKS file; raises SettingError for none, or equal ``kid``."""
    return Keys(keysIn(path, secret_files.read(path, public=True).content))


def keysIn(path: str, content: bytes) -> tuple[SigningKey, ...]:
    """Return the usable keys of a JWKS; ``path`` names its file or URL in errors, which are those of :func:`ofSet`."""
    try:
        written = json.loads(content)["keys"]
        keys = tuple(_ofJwk(path, each) for each in written if _isUsable(each))
    except (ValueError, KeyError, TypeError, RecursionError, PyJWTError) as error:
        raise SettingError(f"{path} is no JSON Web Key Set") from error
    if not keys:
        raise SettingError(f"{path} holds no key for RS256 or ES256")
    if len({key.id for key in keys}) < len(keys):
        raise SettingError(f"{path} holds several keys with the same kid, or without any")
    return keys


def _isUsable(jwk: Mapping[str, Any]) -> bool:
    return (
        (jwk["kty"], jwk.get("alg", "RS256")) == ("RSA", "RS256")
        or (jwk["kty"], jwk.get("crv"), jwk.get("alg", "ES256")) == ("EC", "P-256", "ES256")
    ) and jwk.get("use", "sig") == "sig"


def _ofJwk(path: str, jwk: Mapping[str, Any]) -> SigningKey:
    keyId = jwk.get("kid", "")
    if not isinstance(keyId, str):
        raise ValueError("kid is no text")
    if "d" in jwk:
        raise SettingError(f"{path} holds a private key, but only public ones are needed here")
    key = (RSAAlgorithm if jwk["kty"] == "RSA" else ECAlgorithm).from_jwk(dict(jwk))
    return _signingKey(path, keyId, key)


def _signingKey(path: str, keyId: str, key: Any) -> SigningKey:
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < RSA_BITS:
            raise SettingError(f"{path} holds an RSA key of {key.key_size} bits, but must have at least {RSA_BITS}")
        algorithm = "RS256"
    elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        algorithm = "ES256"
    else:
        raise SettingError(f"{path} holds a key that is neither an RSA key nor one on the curve P-256")
    spelled = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return SigningKey(keyId, algorithm, key, hashlib.sha256(spelled).hexdigest())
