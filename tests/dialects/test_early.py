"""What is kept while credentials are checked, and certificates of transports."""

from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificate
from OpenSSL.crypto import FILETYPE_PEM, load_certificate
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.early import Early, certificateOf
from fleximq.security.credentials import Certificate
from tests.certificates import makeCertificate


class EarlyTests(SynchronousTestCase):
    """Reads that came too early."""

    def test_order(self) -> None:
        """They come back joined, in their order, once."""
        early = Early()
        for read in (b"a", b"bc", b"d"):
            early.keep(read)
        self.assertEqual([early.take(), early.take()], [b"abcd", b""])


class CertificateTests(SynchronousTestCase):
    """What a transport says of its peer."""

    def test_none(self) -> None:
        """A transport without TLS has none, and a peer need not show one."""
        transport: Any = StringTransport()
        self.assertIsNone(certificateOf(transport))
        transport.getPeerCertificate = lambda: None
        self.assertIsNone(certificateOf(transport))

    def test_shown(self) -> None:
        """The certificate that was shown comes as one of the cryptography package."""
        folder = Path(self.mktemp())
        folder.mkdir()
        pem = makeCertificate(folder).certificate.read_bytes()
        transport: Any = StringTransport()
        transport.getPeerCertificate = lambda: load_certificate(FILETYPE_PEM, pem)
        self.assertEqual(certificateOf(transport), Certificate(load_pem_x509_certificate(pem)))
