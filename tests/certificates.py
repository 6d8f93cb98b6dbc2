"""Certificates, made anew for each test that needs them: self-signed, or signed by another one.

::

    made = makeCertificate(folder)
    server: --tls-certificate made.certificate --tls-key made.key
    client: made.trusting().wrap_socket(stream, server_hostname="localhost")

    alice = makeCertificate(folder, "alice", made)
    client: made.trusting(alice).wrap_socket(...)
    server: --listen fleximqtls:...:clientCA={made.certificate}:crl={revoke(folder, made, alice)}:...
"""

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Made(NamedTuple):
    """The files of one certificate: it, its key, and both in one."""

    certificate: Path
    key: Path
    both: Path

    def trusting(self, own: "Made | None" = None) -> ssl.SSLContext:
        """Return a client's context that trusts this certificate and no other.

        :param own: what the client shows of itself.
        """
        context = ssl.create_default_context(cafile=str(self.certificate))
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        return context

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate as a value."""
        return x509.load_pem_x509_certificate(self.certificate.read_bytes())

    @property
    def secret(self) -> ec.EllipticCurvePrivateKey:
        """The key as a value."""
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


def makeCertificate(folder: Path, name: str = "localhost", issuer: Made | None = None, hours: float = 1) -> Made:
    """Write a certificate for this name and the loopback address into a folder that exists.

    :param issuer: who signs it; None: itself.
    :param hours: how long it is good from now on; below 0: it was until then.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.parsed.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=24))
        .not_valid_after(now + datetime.timedelta(hours=hours))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(key if issuer is None else issuer.secret, hashes.SHA256())
    )
    shown = certificate.public_bytes(serialization.Encoding.PEM)
    kept = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = Made(folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.both")
    made.certificate.write_bytes(shown)
    made.key.write_bytes(kept)
    made.both.write_bytes(kept + shown)
    return made


def revoke(folder: Path, issuer: Made, *revoked: Made) -> Path:
    """Write the list of those that an issuer has taken back."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.parsed.subject)
        .last_update(now - datetime.timedelta(hours=1))
        .next_update(now + datetime.timedelta(hours=1))
    )
    for each in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(each.parsed.serial_number).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    path = folder / "revoked.pem"
    path.write_bytes(builder.sign(issuer.secret, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path
