"""Key pairs, and signatures of challenges."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq.values.key_pairs import PURPOSE, isPublicKey, isSignature, newPrivateKey, publicKeyOf, sign

#: RFC 8032, 7.1, test 1: a private key and its public one.
PRIVATE, PUBLIC = "fmqs_nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", "fmqp_11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"


class KeyPairTests(SynchronousTestCase):
    """Keys as texts."""

    def test_publicKeyBelongsToPrivateOneAsRFCSays(self) -> None:
        """The public key belongs to the private one as the RFC says."""
        self.assertEqual(publicKeyOf(PRIVATE), PUBLIC)
        self.assertTrue(isSignature(PUBLIC, "c", sign(PRIVATE, "c")))

    def test_eachPairIsAnother(self) -> None:
        """Each pair is another."""
        one, two = newPrivateKey(), newPrivateKey()
        self.assertNotEqual(one, two)
        self.assertTrue(isPublicKey(publicKeyOf(one)))
        self.assertTrue(isSignature(publicKeyOf(one), "c", sign(one, "c")))
        self.assertFalse(isSignature(publicKeyOf(two), "c", sign(one, "c")))

    def test_signatureIsGoodForItsChallengeAndItsPurposeOnly(self) -> None:
        """A signature is good for its challenge and its purpose only; what is none is just wrong."""
        signature = sign(PRIVATE, "c")
        raw = Ed25519PrivateKey.generate().sign(PURPOSE + b"c")
        for public, challenge, shown in (
            (PUBLIC, "d", signature), (PUBLIC, "", signature), (PUBLIC, "c", ""), (PUBLIC, "c", "!"),
            (PUBLIC, "c", signature[:-1]), (PUBLIC, "c", signature + "A"), (PUBLIC, "c", "é"), (PUBLIC, "c", raw.hex()),
            ("", "c", signature), (PRIVATE, "c", signature), (PUBLIC[:-1], "c", signature), (PUBLIC + "\n", "c", ""),
        ):  # fmt: skip
            self.assertFalse(isSignature(public, challenge, shown), (public, challenge, shown))

    def test_noKey(self) -> None:
        """What is no private key is refused, in words without it."""
        for written in ("", PUBLIC, PRIVATE[:-1], PRIVATE + "x"):
            error = self.assertRaises(SettingError, publicKeyOf, written)
            self.assertNotIn(written or "none", str(error))
