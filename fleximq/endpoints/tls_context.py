"""Files in PEM for a TLS server: its certificate and the authorities of its clients, and the context made of them.

At least TLS 1.2, there with forward secrecy and authenticated encryption unless other suites are named, and no session
resumption: every handshake is complete, so a revocation applies from the next one on.
Endpoint strings of Twisted (``ssl:``, ``tls:``) have contexts of their own.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.x509 import CertificateRevocationList, load_pem_x509_crl
from OpenSSL.crypto import Error as CryptoError
from OpenSSL.crypto import X509StoreFlags
from OpenSSL.SSL import Error as TlsError
from twisted.internet.ssl import AcceptableCiphers, Certificate, CertificateOptions, KeyPair

from fleximq.config.settings import DEFAULT_CIPHERS
from fleximq.errors import SettingError

_CERTIFICATE = re.compile(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(b"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_LIST = re.compile(b"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_WHOLE = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_PEM = 1


class TlsFiles(NamedTuple):
    """The paths of one server's files.

    ``certificate`` is followed by those up to its authority. ``key``: None if it is in the same file. ``clientCA``: the
    authorities of accepted client certificates; None if clients are not asked for one. ``clientRequired``: whether a
    client without one is refused. ``revoked``: a revocation list of each authority; None: not checked. ``ciphers``: the
    suites of TLS 1.2.
    """

    certificate: str
    key: str | None = None
    clientCA: str | None = None
    clientRequired: bool = True
    revoked: str | None = None
    ciphers: str = DEFAULT_CIPHERS

    def stamp(self) -> tuple[object, ...]:
        """Return a value that differs after any of the files is changed, replaced or removed. Cheap; never raises."""
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.clientCA, self.revoked) if path)


def serverContext(files: TlsFiles) -> CertificateOptions:
    """Return the context of a TLS server; raises SettingError if the files are unusable or do not match each other."""
    own, *chain = _certificates(files.certificate)
    path = files.key or files.certificate
    (pem, *_) = _blocks(path, _KEY, "private key")
    try:
        pair = KeyPair.load(pem, _PEM).original
    except (CryptoError, ValueError, TypeError) as error:
        raise SettingError(f"the private key in {path} cannot be used") from error
    if pair.to_cryptography_key().public_key() != own.get_pubkey().to_cryptography_key():
        raise SettingError(f"the private key in {path} does not belong to the certificate in {files.certificate}")
    suites = suitesOf(files.ciphers)
    context = CertificateOptions(privateKey=pair, certificate=own, extraCertChain=chain, acceptableCiphers=suites)
    if files.clientCA is not None:
        context.verify = True
        context.requireCertificate = files.clientRequired
        revoked, what = files.revoked, "list of revoked certificates"
        lists = [] if revoked is None else _loaded(revoked, _LIST, what, load_pem_x509_crl)
        authorities: Any = _Authorities(_certificates(files.clientCA), lists)
        context.trustRoot = authorities
    try:
        context.getContext()
    except (TlsError, CryptoError) as error:
        raise SettingError(f"the certificate in {files.certificate} cannot be used: {_words(error)}") from error
    return context


def suitesOf(ciphers: str) -> Any:
    """Return suites in the notation of OpenSSL, never without authentication or encryption; raises SettingError."""
    with suppress(TlsError, UnicodeEncodeError):
        suites: Any = AcceptableCiphers.fromOpenSSLCipherString(f"{ciphers}:!aNULL:!eNULL")
        if not all(each.fullName.startswith("TLS_") for each in suites._ciphers):
            return suites
    raise SettingError(f"{ciphers!r} must name suites of TLS 1.2 as OpenSSL does, e.g. {DEFAULT_CIPHERS}:RSA+AESGCM")


class _Authorities:
    """A trust root of Twisted: every certificate is trusted, whether an intermediate authority or a single client."""

    def __init__(self, certificates: list[Any], lists: list[CertificateRevocationList]) -> None:
        self._certificates = certificates
        self._lists = lists

    def _addCACertsToContext(self, context: Any) -> None:
        store = context.get_cert_store()
        flags = X509StoreFlags.PARTIAL_CHAIN
        for each in self._certificates:
            store.add_cert(each)
            context.add_client_ca(each)
        for revoked in self._lists:
            store.add_crl(revoked)
            flags |= X509StoreFlags.CRL_CHECK
        store.set_flags(flags)


def _loaded(path: str, form: "re.Pattern[bytes]", what: str, load: Callable[[bytes], Any]) -> list[Any]:
    try:
        return [load(pem) for pem in _blocks(path, form, what)]
    except (CryptoError, ValueError, TypeError) as error:
        raise SettingError(f"the {what} in {path} cannot be used") from error


def _certificates(path: str) -> list[Any]:
    return _loaded(path, _CERTIFICATE, "certificate", lambda pem: Certificate.loadPEM(pem).original)


def _blocks(path: str, form: "re.Pattern[bytes]", what: str) -> list[bytes]:
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"{path} cannot be read: {reason.lower()}") from error
    found = form.findall(text)
    if b"-----" in _WHOLE.sub(b"", text):
        raise SettingError(f"{path} breaks off in the middle")
    if not found:
        raise SettingError(f"there is no {what} in {path}")
    return found


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _words(error: Exception) -> str:
    queue = error.args[0] if error.args else None
    return str(queue[-1][-1]) if isinstance(queue, list) and queue else str(error) or type(error).__name__
