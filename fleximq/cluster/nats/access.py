"""Credentials and certificates for the NATS servers, read from files (/guides/cluster, Credentials)."""

import ssl
from base64 import b32decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error

from fleximq.errors import SettingError

Taker = Callable[[bytes, bytes, bytes, bytes], None]


class SafeClient(Client):
    """A client that always uses TLS if it has a TLS context: nats-py leaves the choice to the server.

    It may also pass the messages of a subscription on as they are read, which takes a third of the time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._takers: dict[int, Taker] = {}

    async def take(self, subject: str, taker: "Taker") -> Subscription:
        """Subscribe, and call with subject, reply subject, headers and data of each message."""
        made = await self.subscribe(subject)
        self._takers[made._id] = taker
        return made

    async def release(self, subscription: Subscription) -> None:
        """End a subscription of :meth:`take`."""
        self._takers.pop(subscription._id, None)
        await subscription.unsubscribe()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        taker = self._takers.get(sid)
        if taker is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            taker(subject, reply, headers, data)

    def _connect_command(self) -> bytes:
        if "tls" in self.options and not self._server_info.get("tls_required"):
            raise Error("the server does not use TLS")
        return super()._connect_command()


def connectOptions(
    urls: Sequence[str], auth: str | None, authority: str | None, certificate: str | None, key: str | None
) -> dict[str, Any]:
    """Return the arguments of ``nats.connect`` for these settings.

    :param auth: ``password:FILE``, ``token:FILE`` or ``creds:FILE``.
    :param authority: a PEM file with the certificates that servers are checked with; None: those of the system.
    :param certificate: the PEM file with this node's certificate, ``key`` with its key if not in the same.
    :raises SettingError: a file cannot be used; the sentence names the option.
    """
    found: dict[str, Any] = {}
    if auth is not None:
        kind, _, path = auth.partition(":")
        found |= _KINDS[kind](path)
    if authority or certificate or any(url.lower().startswith("tls:") for url in urls):
        found["tls"] = _context(authority, certificate, key)
    return found


def _text(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(f"{option} names {path}, which cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{option} names {path}, which is not text") from error


def _password(path: str) -> dict[str, Any]:
    user, colon, password = _text("cluster-auth", path).partition(":")
    if not (user and colon and password) or "\n" in password:
        raise SettingError(f"cluster-auth names {path}, which must have one line like USER:PASSWORD")
    return {"user": user, "password": password}


def _token(path: str) -> dict[str, Any]:
    token = _text("cluster-auth", path)
    if len(token.split()) != 1:
        raise SettingError(f"cluster-auth names {path}, which must have one line with a token")
    return {"token": token}


def _creds(path: str) -> dict[str, Any]:
    """Read a file of nsc: a JWT, and the seed of the key that signs the servers' nonces."""
    lines = [line.strip() for line in _text("cluster-auth", path).splitlines()]
    try:
        jwt, seed = (lines[lines.index(f"-----BEGIN {what}-----") + 1] for what in ("NATS USER JWT", "USER NKEY SEED"))
        # Two bytes are the kind of the seed, two more are a check sum.
        signing = Ed25519PrivateKey.from_private_bytes(b32decode(seed + "=" * (-len(seed) % 8))[2:-2])
    except (ValueError, IndexError, BinasciiError) as error:
        raise SettingError(f"cluster-auth names {path}, which is not a .creds file with a JWT and a seed") from error
    return {
        "user_jwt_cb": lambda: bytearray(jwt.encode()),
        "signature_cb": lambda nonce: b64encode(signing.sign(nonce.encode())),
    }


_KINDS: dict[str, Callable[[str], dict[str, Any]]] = {"password": _password, "token": _token, "creds": _creds}


def _context(authority: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    for option, path in (("cluster-ca", authority), ("cluster-certificate", certificate), ("cluster-key", key)):
        if path is not None:
            _text(option, path)
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise SettingError(f"cluster-ca names {authority}, which has no certificate in PEM") from error
    if certificate is not None:
        try:
            # Without a password, or OpenSSL would ask for it at the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            other = f" and cluster-key {key}" if key else ""
            raise SettingError(
                f"cluster-certificate names {certificate}{other}, which are not a certificate and its key in PEM"
            ) from error
    return context
