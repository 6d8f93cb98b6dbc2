"""Credentials of peers, in the sense of ``twisted.cred``.

Each is a frozen value; a checker selects the kinds it checks by their interfaces. No ``repr`` shows a secret.
"""

from dataclasses import dataclass, field
from typing import Any

from twisted.cred.credentials import ICredentials
from zope.interface import Attribute, implementer

#: The refusal of a certificate that was revoked after its handshake, or lost its authority then.
UNTRUSTED = "this certificate is not valid any more"


class IToken(ICredentials):
    """A bearer token: FlexiMQ auth ``token``, HTTP ``Authorization: Bearer``, the ``token`` query parameter."""

    token = Attribute("""The token, as text.""")


class IPassword(ICredentials):
    """A name and its password: FlexiMQ auth ``basic``, HTTP ``Authorization: Basic``."""

    username = Attribute("""The name.""")
    password = Attribute("""The password, as text.""")


class IApiKey(ICredentials):
    """An API key: FlexiMQ auth ``api_key``, BlipMQ AUTH."""

    key = Attribute("""The key, as text.""")


class ISignature(ICredentials):
    """A public key, and a signature of the broker's challenge: FlexiMQ auth ``public_key``."""

    key = Attribute("""The public key, see :mod:`fleximq.values.key_pairs`.""")
    challenge = Attribute("""The challenge that this connection was sent, as text.""")
    signature = Attribute("""The signature, as text.""")


class ICertificate(ICredentials):
    """A TLS client certificate that the listener has verified already."""

    certificate = Attribute("""A :class:`cryptography.x509.Certificate`.""")


@implementer(IToken)
@dataclass(frozen=True, slots=True)
class Token:
    """See :class:`IToken`."""

    token: str = field(repr=False)


@implementer(IPassword)
@dataclass(frozen=True, slots=True)
class Password:
    """See :class:`IPassword`."""

    username: str
    password: str = field(repr=False)


@implementer(IApiKey)
@dataclass(frozen=True, slots=True)
class ApiKey:
    """See :class:`IApiKey`."""

    key: str = field(repr=False)


@implementer(ISignature)
@dataclass(frozen=True, slots=True)
class Signature:
    """See :class:`ISignature`."""

    key: str
    challenge: str
    signature: str = field(repr=False)


@implementer(ICertificate)
@dataclass(frozen=True, slots=True)
class Certificate:
    """See :class:`ICertificate`. ``isTrusted``: whether a new handshake with it would succeed now."""

    certificate: Any
    isTrusted: bool = True
