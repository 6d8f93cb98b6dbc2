"""Self-signed certificates, made anew for each test that needs them.

::

    made = makeCertificate(folder)
    server: --tls-certificate made.certificate --tls-key made.key
    client: made.trusting().wrap_socket(stream, server_hostname="localhost")
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

    def trusting(self) -> ssl.SSLContext:
        """Return a client's context that trusts this certificate and no other."""
        return ssl.create_default_context(cafile=str(self.certificate))


def makeCertificate(folder: Path, name: str = "localhost") -> Made:
    """Write a certificate for this name and the loopback address into a folder that exists."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
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
