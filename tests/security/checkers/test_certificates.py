"""TLS client certificates."""

import datetime
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.errors import SettingError
from fleximq.security.checkers.certificates import certificates
from fleximq.security.credentials import Certificate

END = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)


def certificateOf(commonNames: Sequence[str] = (), *others: x509.GeneralName) -> Certificate:
    """Return a certificate with these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in commonNames])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(END - datetime.timedelta(days=1))
        .not_valid_after(END)
    )
    if others:
        builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
    return Certificate(builder.sign(key, hashes.SHA256()))


class CertificatesTests(SynchronousTestCase):
    """The name that a certificate gives."""

    def name(self, argument: str, shown: Certificate) -> str | None:
        """Return whose it is, None if nobody's."""
        checker = certificates(argument)
        self.assertTrue(verifyObject(ICredentialsChecker, checker))
        try:
            who: Any = checker.requestAvatarId(shown)
        except UnauthorizedLogin:
            return None
        self.assertEqual(who.expires, END.timestamp())
        return str(who.name)

    def test_nameStandsWhereOperatorSaysCommonNameOtherwise(self) -> None:
        """The name stands where the operator says, the common name otherwise."""
        shown = certificateOf(["alice"], x509.DNSName("a.example"), x509.RFC822Name("a@a.example"),
                              x509.UniformResourceIdentifier("spiffe://a/b"))  # fmt: skip
        for argument, name in (
            ("", "alice"),
            ("name=cn", "alice"),
            ("name=dns", "a.example"),
            ("name=email", "a@a.example"),
            ("name=uri", "spiffe://a/b"),
        ):
            self.assertEqual(self.name(argument, shown), name)

    def test_exactlyOne(self) -> None:
        """Without a name at that place, or with several, it is nobody's."""
        self.assertIsNone(self.name("", certificateOf()))
        self.assertIsNone(self.name("", certificateOf(["a", "b"])))
        self.assertIsNone(self.name("name=dns", certificateOf(["a"])))
        self.assertIsNone(self.name("name=dns", certificateOf(["a"], x509.DNSName("a"), x509.DNSName("b"))))
        self.assertIsNone(self.name("name=uri", certificateOf(["a"], x509.DNSName("a"))))

    def test_noName(self) -> None:
        """A name that nobody can have is nobody's."""
        for name in ("anonymous", "spawn:worker", "a\nb", " a"):
            self.assertIsNone(self.name("", certificateOf([name])), name)

    def test_wrong(self) -> None:
        """Other places there are none."""
        error = self.assertRaises(SettingError, certificates, "name=serial")
        self.assertEqual(str(error), "name is 'serial', but must be one of cn, dns, email, uri")
        self.assertRaises(SettingError, certificates, "cn")

    def test_otherPlace(self) -> None:
        """A name from one field is not vouched for when names come from another."""
        found = certificates("").requestAvatarId(certificateOf(["alice"]))
        self.assertEqual(certificates("name=cn").vouch(found), found)
        self.assertIsNone(certificates("name=dns").vouch(found))
