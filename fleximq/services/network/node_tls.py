"""TLS between the nodes of a cluster.

Each start of a node makes a certificate, which the other nodes read from its key, beside its secret. So there is none
to issue or renew, and no name or clock to agree on.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL.crypto import X509, PKey
from twisted.internet.abstract import FileDescriptor
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.ssl import Certificate, CertificateOptions, optionsForClientTLS, trustRootFromCertificates
from zope.interface import alsoProvides

#: The name in all certificates.
_NAME = "fleximq-node"


def makeContext() -> tuple[CertificateOptions, str]:
    """Return the context of a node's listener, and its new certificate in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    context = CertificateOptions(PKey.from_cryptography_key(key), X509.from_cryptography(certificate))
    return context, certificate.public_bytes(Encoding.PEM).decode()


def contextFor(certificate: str) -> Any:
    """Return the context of connections to the node that has this certificate."""
    return optionsForClientTLS(_NAME, trustRootFromCertificates([Certificate.loadPEM(certificate.encode())]))


def startTls(protocol: Any, context: Any) -> None:
    """Encrypt the TCP connection of a protocol; as before, each side can end its output alone."""
    transport = protocol.transport
    transport.startTLS(context)
    tls = transport.protocol

    def readConnectionLost() -> None:
        transport.loseConnection = partial(FileDescriptor.loseConnection, transport)  # the peer ends TLS no more
        protocol.readConnectionLost()

    tls.readConnectionLost = readConnectionLost
    tls.writeConnectionLost = lambda: protocol.writeConnectionLost()
    alsoProvides(tls, IHalfCloseableProtocol)
