"""What stands behind ``http:``."""

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import BrowserLikePolicyForHTTPS

from fleximq.errors import SettingError
from fleximq.security.checkers.web_options import webService
from tests.certificates import makeCertificate
from tests.security.secrets_on_disk import secretFile


class WebOptionsTests(SynchronousTestCase):
    """A URL and options."""

    def service(self, argument: str) -> Any:
        """Return what is understood."""
        return webService(argument)._service

    def refused(self, argument: str) -> str:
        """Return the sentence with which an argument is refused."""
        return str(self.assertRaises(SettingError, webService, argument))

    def test_urlAloneIsEnough(self) -> None:
        """A URL alone is enough; a comma in it has a backslash before it."""
        service = self.service(r"https://auth.example:444/check?a=1\,2")
        self.assertEqual((service.url, service.timeout, service.cache), ("https://auth.example:444/check?a=1,2", 5, 60))

    def test_allOptionsAtOnce(self) -> None:
        """All options at once."""
        folder = Path(self.mktemp())
        folder.mkdir()
        bearer, made = secretFile(self, "the-token\n"), makeCertificate(folder)
        service = self.service(f"https://a.example/,timeout=0.5,cache=0,bearer={bearer},ca={made.certificate}")
        self.assertEqual((service.timeout, service.cache), (0.5, 0))
        self.assertEqual(service.headers, (("Authorization", "Bearer the-token"),))
        self.assertIsInstance(service.policy, BrowserLikePolicyForHTTPS)
        self.assertNotIn("the-token", repr(service))

    def test_secretsOverOpenLineOrInOpenFileAreWorthWord(self) -> None:
        """Secrets over an open line, or in an open file, are worth a word; not on this machine."""
        self.assertEqual(self.service("http://127.0.0.1:8000/x").warnings, ())
        (words,) = self.service("http://auth.example/x").warnings
        self.assertEqual(words, "auth http sends passwords and tokens to auth.example without encryption: use https")
        self.assertEqual(len(self.service(f"https://a.example/,bearer={secretFile(self, 't', 0o644)}").warnings), 1)

    def test_whatCannotBeAskedIsRefusedAndSecretsInItAreNotRepeated(self) -> None:
        """What cannot be asked is refused, and secrets in it are not repeated."""
        for url in (
            "",
            "auth.example",
            "ftp://a.example/",
            "https://",
            "https:///x",
            "https://a.example/ x",
            "http://é/",
        ):
            self.assertIn("but must be like https://auth.example/check", self.refused(url), url)
        words = self.refused("https://user:secret@a.example/")
        self.assertEqual(words, "the URL must not hold a name or password; bearer=FILE names a file with a token")
        self.assertNotIn("secret", self.refused("x?secret"))
        self.assertEqual(self.refused("https://a/,timeout=0"), "timeout is 0, but must be between 0.001 and 60 seconds")
        self.assertEqual(self.refused("https://a/,cache=-1"), "cache is -1, but must be between 0 and 86400 seconds")
        self.assertIn("there is no option x", self.refused("https://a/,x=1"))
        for content in ("", "two words", "né"):
            self.assertIn("must hold one token", self.refused(f"https://a/,bearer={secretFile(self, content)}"))
        self.assertIn("holds no certificate in PEM", self.refused(f"https://a/,ca={secretFile(self, 'x')}"))
        broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        self.assertIn("that cannot be read", self.refused(f"https://a/,ca={secretFile(self, broken)}"))
