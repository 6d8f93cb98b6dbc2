"""The certificate that a server shows."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.endpoints.tls import serverContext
from fleximq.errors import SettingError
from tests.certificates import makeCertificate


class ServerContextTests(SynchronousTestCase):
    """Files and what becomes of them."""

    def setUp(self) -> None:
        """A certificate in a folder of its own."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.made = makeCertificate(self.folder)

    def refused(self, certificate: Path, key: Path | None = None) -> str:
        """Return the sentence with which files are refused."""
        error = self.assertRaises(SettingError, serverContext, str(certificate), None if key is None else str(key))
        return str(error)

    def test_twoFiles(self) -> None:
        """Certificate and key may be in two files."""
        context = serverContext(str(self.made.certificate), str(self.made.key))
        self.assertEqual(context.certificate.get_subject().CN, "localhost")

    def test_oneFile(self) -> None:
        """Or in one, in any order."""
        self.assertEqual(serverContext(str(self.made.both), None).certificate.get_subject().CN, "localhost")

    def test_chain(self) -> None:
        """The first certificate is the server's, what follows leads to its authority."""
        other = makeCertificate(self.folder, "authority")
        chain = self.folder / "chain"
        chain.write_bytes(self.made.certificate.read_bytes() + other.certificate.read_bytes())
        context = serverContext(str(chain), str(self.made.key))
        self.assertEqual(context.certificate.get_subject().CN, "localhost")
        self.assertEqual([each.get_subject().CN for each in context.extraCertChain], ["authority"])

    def test_missing(self) -> None:
        """A file that is not there is named."""
        missing = self.folder / "missing"
        self.assertEqual(self.refused(missing), f"{missing} cannot be read: no such file or directory")
        self.assertEqual(
            self.refused(self.made.certificate, missing), f"{missing} cannot be read: no such file or directory"
        )

    def test_nothingInIt(self) -> None:
        """So is one that holds something else."""
        self.assertEqual(self.refused(self.made.key), f"there is no certificate in {self.made.key}")
        self.assertEqual(self.refused(self.made.certificate), f"there is no private key in {self.made.certificate}")

    def test_garbage(self) -> None:
        """What only looks like a key or a certificate is refused."""
        garbage = self.folder / "garbage"
        for what in ("PRIVATE KEY", "CERTIFICATE"):
            garbage.write_text(f"-----BEGIN {what}-----\nAAAA\n-----END {what}-----\n")
            files = (self.made.certificate, garbage) if what == "PRIVATE KEY" else (garbage, self.made.key)
            self.assertIn(f"{garbage} cannot be used", self.refused(*files))

    def test_foreignKey(self) -> None:
        """A key that opens another certificate is told at once, not to the first client."""
        other = makeCertificate(self.folder, "other")
        self.assertEqual(
            self.refused(self.made.certificate, other.key),
            f"the private key in {other.key} does not belong to the certificate in {self.made.certificate}",
        )
