"""The certificate behind ``tls://`` and ``wss://`` listeners.

Read anew whenever a listener opens. Endpoint strings of Twisted (``ssl:``, ``tls:``) name their own.
"""

import re
from pathlib import Path

from OpenSSL.crypto import Error as CryptoError
from twisted.internet.ssl import Certificate, CertificateOptions, KeyPair

from fleximq.errors import SettingError

_CERTIFICATE = re.compile(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(b"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_PEM = 1


def serverContext(certificate: str, key: str | None) -> CertificateOptions:
    """Return what a TLS server shows.

    :param certificate: path of a PEM file with the server's certificate and, behind it, those up to its authority.
    :param key: path of a PEM file with its private key; None if that is in the same file.
    :raises SettingError: a file cannot be read, holds none, or the two do not belong together.
    """
    try:
        own, *chain = [Certificate.loadPEM(pem).original for pem in _blocks(certificate, _CERTIFICATE, "certificate")]
    except (CryptoError, ValueError) as error:
        raise SettingError(f"the certificate in {certificate} cannot be used") from error
    path = key or certificate
    (pem, *_) = _blocks(path, _KEY, "private key")
    try:
        pair = KeyPair.load(pem, _PEM).original
    except (CryptoError, ValueError, TypeError) as error:
        raise SettingError(f"the private key in {path} cannot be used") from error
    if pair.to_cryptography_key().public_key() != own.get_pubkey().to_cryptography_key():
        raise SettingError(f"the private key in {path} does not belong to the certificate in {certificate}")
    return CertificateOptions(privateKey=pair, certificate=own, extraCertChain=chain)


def _blocks(path: str, form: "re.Pattern[bytes]", what: str) -> list[bytes]:
    try:
        found = form.findall(Path(path).read_bytes())
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {str(error.strerror).lower()}") from error
    if not found:
        raise SettingError(f"there is no {what} in {path}")
    return found
