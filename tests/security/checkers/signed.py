"""Keys for signing, and tokens signed with them."""

import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

SECRET = b"0123456789abcdef0123456789abcdef"


@cache
def rsaKey(bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return an RSA key, always the same of this size."""
    return rsa.generate_private_key(65537, bits)


@cache
def ecKey(number: int = 0) -> ec.EllipticCurvePrivateKey:
    """Return a key on P-256, always the same of this number."""
    return ec.generate_private_key(ec.SECP256R1())


def publicPem(key: Any) -> bytes:
    """Return the public key of a private one as PEM."""
    pem: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def privatePem(key: Any) -> bytes:
    """Return a private key as PEM."""
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def jwk(key: Any, **others: Any) -> dict[str, Any]:
    """Return a key as it stands in a key set: the public one unless it is given as a public one already."""
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey) else ECAlgorithm
    return {**kind.to_jwk(key, as_dict=True), **others}


def token(key: Any = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    """Return a token of alice, good for a minute, unless the claims say otherwise; those that are None are left out."""
    said = {"sub": "alice", "exp": int(time.time()) + 60, **claims}
    return jwt.encode({name: each for name, each in said.items() if each is not None}, key, algorithm, headers)
