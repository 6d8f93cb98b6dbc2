"""The keys with which tokens are signed."""

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq.security.checkers.signing_keys import ofPem, ofSecret, ofSet
from tests.certificates import makeCertificate
from tests.security.checkers.signed import SECRET, ecKey, jwk, privatePem, publicPem, rsaKey
from tests.security.secrets_on_disk import secretFile


class SecretTests(SynchronousTestCase):
    """For HS256."""

    def test_bytesOfFileAreSecretButForOneLineEndBehindThem(self) -> None:
        """The bytes of the file are the secret, but for one line end behind them."""
        for end in (b"", b"\n", b"\r\n"):
            (key,) = ofSecret(secretFile(self, SECRET + end)).keys
            self.assertEqual((key.algorithm, key.key), ("HS256", SECRET))
        self.assertEqual(ofSecret(secretFile(self, SECRET + b"\n\n")).keys[0].key, SECRET + b"\n")

    def test_fewerThan32BytesAreTooFew(self) -> None:
        """Fewer than 32 bytes are too few."""
        path = secretFile(self, SECRET[1:])
        error = self.assertRaises(SettingError, ofSecret, path)
        self.assertEqual(str(error), f"{path} has 31 bytes, but a secret for HS256 must have at least 32")

    def test_noSecret(self) -> None:
        """A public key is no secret."""
        error = self.assertRaises(SettingError, ofSecret, secretFile(self, publicPem(rsaKey())))
        self.assertIn("say key= where it is a public key", str(error))

    def test_secretThatOthersCanReadIsWarnedOf(self) -> None:
        """Others must not read it; a public key they may."""
        self.assertEqual(len(ofSecret(secretFile(self, SECRET, 0o644)).warnings), 1)
        self.assertEqual(ofPem(secretFile(self, publicPem(rsaKey()), 0o644)).warnings, ())

    def test_secretIsNotShown(self) -> None:
        """It is not shown."""
        self.assertNotIn("0123456789", repr(ofSecret(secretFile(self, SECRET)).keys))


class PemTests(SynchronousTestCase):
    """Public keys."""

    def test_kindOfKeySettlesAlgorithm(self) -> None:
        """The kind of the key settles the algorithm."""
        for key, algorithm in ((rsaKey(), "RS256"), (ecKey(), "ES256")):
            (found,) = ofPem(secretFile(self, publicPem(key))).keys
            self.assertEqual((found.algorithm, found.id), (algorithm, ""))

    def test_certificateStandsForItsKey(self) -> None:
        """A certificate stands for its key."""
        import tempfile
        from pathlib import Path

        made = makeCertificate(Path(tempfile.mkdtemp(dir=".")))
        self.assertEqual(ofPem(str(made.certificate)).keys[0].algorithm, "ES256")

    def test_whatIsNoPublicKeyOfTheseKindsIsRefused(self) -> None:
        """What is no public key of these kinds is refused."""
        for content, words in (
            (b"", "holds no public key and no certificate in PEM"),
            (privatePem(ecKey()), "holds a private key, but only the public one is needed here"),
            (publicPem(rsaKey(1024)), "holds an RSA key of 1024 bits, but must have at least 2048"),
            (publicPem(ec.generate_private_key(ec.SECP384R1())), "holds a key that is neither an RSA key nor one on"),
            (publicPem(ed25519.Ed25519PrivateKey.generate()), "holds a key that is neither an RSA key nor one on"),
        ):
            path = secretFile(self, content)
            self.assertIn(f"{path} {words}", str(self.assertRaises(SettingError, ofPem, path)))


class SetTests(SynchronousTestCase):
    """Key sets."""

    def read(self, *keys: Any) -> Any:
        """Return the keys of a set."""
        return ofSet(secretFile(self, json.dumps({"keys": keys}))).keys

    def test_eachKeyIsBoundToItsAlgorithmAndKnownByItsId(self) -> None:
        """Each key is bound to its algorithm and known by its id."""
        keys = self.read(
            jwk(rsaKey().public_key(), kid="a", alg="RS256", use="sig"), jwk(ecKey().public_key(), kid="b")
        )
        self.assertEqual([(key.id, key.algorithm) for key in keys], [("a", "RS256"), ("b", "ES256")])

    def test_passedOver(self) -> None:
        """Keys for other things are passed over, secrets first of all."""
        keys = self.read(
            {"kty": "oct", "k": "AAAA", "kid": "s"},
            jwk(rsaKey().public_key(), kid="e", use="enc"),
            jwk(rsaKey().public_key(), kid="p", alg="PS256"),
            jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), kid="l"),
            {"kty": "OKP", "crv": "Ed25519", "x": "AAAA", "kid": "o"},
            jwk(ecKey().public_key(), kid="good"),
        )
        self.assertEqual([key.id for key in keys], ["good"])

    def test_wrong(self) -> None:
        """A set without a key that can be used, with two of one id, or that is none, is refused."""
        public = jwk(ecKey().public_key())
        for content, words in (
            ("", "is no JSON Web Key Set"),
            ("{}", "is no JSON Web Key Set"),
            ('{"keys": 7}', "is no JSON Web Key Set"),
            ('{"keys": [7]}', "is no JSON Web Key Set"),
            ('{"keys": [{"kty": "RSA"}]}', "is no JSON Web Key Set"),
            ("[" * 100_000, "is no JSON Web Key Set"),
            (json.dumps({"keys": [{**public, "kid": 7}]}), "is no JSON Web Key Set"),
            ('{"keys": []}', "holds no key for RS256 or ES256"),
            ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "holds no key for RS256 or ES256"),
            (json.dumps({"keys": [public, public]}), "holds several keys with the same kid, or without any"),
            (json.dumps({"keys": [jwk(ecKey())]}), "holds a private key, but only public ones are needed here"),
        ):
            path = secretFile(self, content)
            self.assertEqual(str(self.assertRaises(SettingError, ofSet, path)), f"{path} {words}", content[:40])
