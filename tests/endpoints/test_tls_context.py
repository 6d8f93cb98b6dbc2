"""The certificate that a server shows."""

from pathlib import Path

from twisted.internet.ssl import CertificateOptions
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import DEFAULT_CIPHERS
from fleximq.endpoints.tls_context import TlsFiles, serverContext, suitesOf
from fleximq.errors import SettingError
from tests.certificates import makeCertificate, revoke


class ServerContextTests(SynchronousTestCase):
    """Files and what becomes of them."""

    def setUp(self) -> None:
        """A certificate in a folder of its own."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.made = makeCertificate(self.folder)

    def refused(self, certificate: Path, key: Path | None = None) -> str:
        """Return the sentence with which files are refused."""
        files = TlsFiles(str(certificate), None if key is None else str(key))
        return str(self.assertRaises(SettingError, serverContext, files))

    def shown(self, certificate: Path, key: Path | None = None) -> CertificateOptions:
        """Return what is made of files."""
        return serverContext(TlsFiles(str(certificate), None if key is None else str(key)))

    def nameIn(self, options: CertificateOptions) -> str:
        """Return the name in a certificate that is shown."""
        assert options.certificate is not None
        return str(options.certificate.get_subject().CN)

    def test_twoFiles(self) -> None:
        """Certificate and key may be in two files."""
        self.assertEqual(self.nameIn(self.shown(self.made.certificate, self.made.key)), "localhost")

    def test_oneFile(self) -> None:
        """Or in one, in any order."""
        self.assertEqual(self.nameIn(self.shown(self.made.both)), "localhost")

    def test_firstCertificateIsServersWhatFollowsLeadsToItsAuthority(self) -> None:
        """The first certificate is the server's, what follows leads to its authority."""
        other = makeCertificate(self.folder, "authority")
        chain = self.folder / "chain"
        chain.write_bytes(self.made.certificate.read_bytes() + other.certificate.read_bytes())
        context = self.shown(chain, self.made.key)
        self.assertEqual(self.nameIn(context), "localhost")
        self.assertEqual([each.get_subject().CN for each in context.extraCertChain], ["authority"])

    def test_byDefaultNoSuiteHasRSAKeyExchangeOrCBC(self) -> None:
        """By default no suite has RSA key exchange or CBC; none is without authentication or encryption in any case."""
        modern = {each.fullName for each in suitesOf(DEFAULT_CIPHERS)._ciphers}
        self.assertEqual(len([each for each in modern if not each.startswith("TLS_")]), 6)
        for each in modern:
            self.assertRegex(each, "^(TLS_|ECDHE-).*(GCM|CHACHA20)")
        named = {each.fullName for each in suitesOf("ALL:eNULL:aNULL")._ciphers}
        self.assertIn("AES128-SHA", named)
        self.assertFalse([each for each in named if "NULL" in each or each.startswith("ADH")])
        for wrong in (
            "",
            "nonsense",
            "AE",
            "aNULL",
            "TLS_AES_256_GCM_SHA384",
            "\xe9",
            "ECDHE+AESGCM:@SECLEVEL=9",
            "AES\n",
        ):
            self.assertIn("must name suites of TLS 1.2", str(self.assertRaises(SettingError, suitesOf, wrong)))

    def test_fileThatIsNotThereIsNamed(self) -> None:
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

    def test_whatOnlyLooksLikeKeyOrCertificateIsRefused(self) -> None:
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

    def test_breaksOff(self) -> None:
        """A file that is being written is not taken for a whole one, even if its first certificate is there."""
        whole = self.made.certificate.read_bytes() * 2
        half = self.folder / "half"
        for length in (len(whole) - 2, len(whole) // 2 + 40, 100):
            half.write_bytes(whole[:length])
            self.assertEqual(self.refused(half, self.made.key), f"{half} breaks off in the middle")

    def test_authoritiesAndListsAreReadAsWellAndWhatIsWrongWithThemIsTold(self) -> None:
        """Authorities and lists are read as well, and what is wrong with them is told."""
        files = TlsFiles(str(self.made.both), clientCA=str(self.made.certificate), clientRequired=False)
        context = serverContext(files)
        self.assertEqual((context.verify, context.requireCertificate), (True, False))
        listed = str(revoke(self.folder, self.made))
        self.assertTrue(serverContext(files._replace(revoked=listed, clientRequired=True)).requireCertificate)
        for wrong, words in (
            (files._replace(clientCA=str(self.made.key)), "there is no certificate in"),
            (files._replace(revoked=str(self.made.key)), "there is no list of revoked certificates in"),
            (files._replace(revoked="/no"), "/no cannot be read: no such file or directory"),
        ):
            self.assertIn(words, str(self.assertRaises(SettingError, serverContext, wrong)))

    def test_stampDiffersWhenAnyFileDoes(self) -> None:
        """The stamp differs when any file does: written, exchanged, removed."""
        listed = revoke(self.folder, self.made)
        files = TlsFiles(
            str(self.made.certificate), str(self.made.key), clientCA=str(self.made.both), revoked=str(listed)
        )
        seen = {files.stamp()}
        self.assertIn(files.stamp(), seen)
        for path in (self.made.certificate, self.made.key, self.made.both, listed):
            path.write_bytes(path.read_bytes() + b"\n")
            self.assertNotIn(files.stamp(), seen)
            seen.add(files.stamp())
            path.rename(path.with_suffix(".old"))
            self.assertNotIn(files.stamp(), seen)
            seen.add(files.stamp())
