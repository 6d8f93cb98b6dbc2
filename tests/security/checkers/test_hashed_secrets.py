"""Tokens and API keys."""

import hmac
from pathlib import Path
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.errors import SettingError
from fleximq.security.authentication.checker_interfaces import ICautious, IUnguessable, IVouching
from fleximq.security.checkers.hashed_secrets import LONGEST, apiKeys, hashOf, publicKeys, tokens
from fleximq.security.credentials import ApiKey, IApiKey, ISignature, IToken, Signature, Token
from fleximq.security.principal import Principal
from fleximq.values.key_pairs import newPrivateKey, publicKeyOf, sign
from tests.security.secrets_on_disk import secretFile

#: Ends of entries.
LATER, GONE = "21000101T000000Z", "20000101T000000Z"


class HashedSecretsTests(SynchronousTestCase):
    """A file with two people, one of whom has two secrets."""

    def setUp(self) -> None:
        """Write it."""
        lines = (f"alice:{hashOf('one')}:ops,dev", f"bob:{hashOf('two')}", f"bob:{hashOf('three')}")
        self.path = secretFile(self, "\n".join(lines))

    def test_checkersProvideTheirInterfaces(self) -> None:
        """Both checkers are what they say, each for its credentials."""
        for checker, interface in ((tokens(self.path), IToken), (apiKeys(self.path), IApiKey)):
            for each in (ICredentialsChecker, IUnguessable, IVouching, ICautious):
                self.assertTrue(verifyObject(each, checker))
            self.assertEqual(tuple(checker.credentialInterfaces), (interface,))

    def test_eachSecretIsOfItsOwner(self) -> None:
        """Each secret is somebody's."""
        for checker, credentials in ((tokens(self.path), Token), (apiKeys(self.path), ApiKey)):
            known: Any = [checker.requestAvatarId(credentials(each)) for each in ("one", "two", "three")]
            self.assertEqual([each.name for each in known], ["alice", "bob", "bob"])
            self.assertEqual([each.roles for each in known], [{"ops", "dev"}, set(), set()])

    def test_hashIsNoSecret(self) -> None:
        """Nothing else is, not the hash either."""
        checker = tokens(self.path)
        for secret in ("", "One", "one ", "alice", hashOf("one"), "\udc80", "x" * (LONGEST + 1)):
            self.assertRaises(UnauthorizedLogin, checker.requestAvatarId, Token(secret))

    def test_secretIsGoodUntilItsEndWhichPrincipalHas(self) -> None:
        """A secret is good until its end, which the principal has."""
        checker = tokens(secretFile(self, f"a:{hashOf('new')}\na:{hashOf('old')}::{LATER}\na:{hashOf('gone')}::{GONE}"))
        for secret, expires in (("new", None), ("old", 4102444800.0)):
            found = checker.requestAvatarId(Token(secret))
            self.assertEqual((found.expires, checker.vouch(found)), (expires, found))
        self.assertRaises(UnauthorizedLogin, checker.requestAvatarId, Token("gone"))
        self.assertIsNone(checker.vouch(Principal("a", proof=hashOf("gone"))))

    def test_secretMayBeSoLongNoLonger(self) -> None:
        """A secret may be so long, no longer."""
        for length, known in ((LONGEST, True), (LONGEST + 1, False)):
            checker = tokens(secretFile(self, f"a:{hashOf('x' * length)}"))
            if known:
                self.assertEqual(checker.requestAvatarId(Token("x" * length)).name, "a")
            else:
                self.assertRaises(UnauthorizedLogin, checker.requestAvatarId, Token("x" * length))

    def test_wrongFile(self) -> None:
        """Secrets that are not hashed, upper case, and one secret for two are refused, in words without the secret."""
        for line in ("a:plain-secret-in-the-file", f"a:{hashOf('x').upper()}", "a:", f"a:{'0' * 63}"):
            error = self.assertRaises(SettingError, tokens, secretFile(self, line))
            self.assertIn("line 1, for a, has no SHA-256", str(error))
            self.assertNotIn("plain-secret", str(error))
        twice = secretFile(self, f"a:{hashOf('x')}\nb:{hashOf('x')}")
        error = self.assertRaises(SettingError, tokens, twice)
        self.assertEqual(str(error), f"{twice} has the same secret for a and for b")

    def test_whoeverHasSameSecretIsVouchedForWithRolesOfToday(self) -> None:
        """Whoever has the same secret is vouched for, with the roles of today; the other secrets do not matter."""
        who: Any = [tokens(self.path).requestAvatarId(Token(each)) for each in ("one", "two", "three")]
        Path(self.path).write_text(f"alice:{hashOf('one')}:new\nbob:{hashOf('three')}\n")
        checker = tokens(self.path)
        vouched = [checker.vouch(each) for each in who]
        self.assertEqual([each and (each.name, set(each.roles)) for each in vouched],
                         [("alice", {"new"}), None, ("bob", set())])  # fmt: skip

    def test_secretAndHashAreNotShown(self) -> None:
        """Neither secret nor hash is shown by a checker or a principal."""
        checker = tokens(self.path)
        shown = repr((checker, checker.requestAvatarId(Token("one")), Token("one")))
        self.assertNotIn(hashOf("one"), shown)
        self.assertNotIn("one'", shown)

    def test_constantTime(self) -> None:
        """What decides is a comparison that takes the same time whatever is compared."""
        compared: list[Any] = []
        self.patch(hmac, "compare_digest", lambda *two: compared.append(two))
        self.assertRaises(UnauthorizedLogin, tokens(self.path).requestAvatarId, Token("one"))
        self.assertEqual(compared, [(hashOf("one"), hashOf("one"))])


class PublicKeysTests(SynchronousTestCase):
    """A file with a public key."""

    def test_ownerOfKeyIsKnownBySignatureOfChallenge(self) -> None:
        """The owner of a key is known by a signature of the challenge; nobody else, and not without a challenge."""
        key, other = newPrivateKey(), newPrivateKey()
        public = publicKeyOf(key)
        checker = publicKeys(secretFile(self, f"press:{public}:machine"))
        for each in (ICredentialsChecker, IUnguessable, IVouching, ICautious):
            self.assertTrue(verifyObject(each, checker))
        self.assertEqual(tuple(checker.credentialInterfaces), (ISignature,))
        found = checker.requestAvatarId(Signature(public, "c", sign(key, "c")))
        self.assertEqual((found.name, found.roles, checker.vouch(found)), ("press", {"machine"}, found))
        for shown in (
            Signature(public, "d", sign(key, "c")),
            Signature(public, "", sign(key, "")),
            Signature(public, "c", sign(other, "c")),
            Signature(publicKeyOf(other), "c", sign(other, "c")),
            Signature("", "c", ""),
            Signature("x" * (LONGEST + 1), "c", ""),
        ):
            self.assertRaises(UnauthorizedLogin, checker.requestAvatarId, shown)

    def test_wrongFile(self) -> None:
        """Private keys and hashes are refused, in words without them."""
        for written in (newPrivateKey(), hashOf("x"), ""):
            path = secretFile(self, f"press:{written}")
            error = self.assertRaises(SettingError, publicKeys, path)
            self.assertEqual(
                str(error),
                f"{path} cannot be understood: line 1, for press, has no public key as fleximq keypair makes them",
            )
