"""Who may come while nobody is authenticated."""

from twisted.internet.address import HostnameAddress, IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.stdio import PipeAddress
from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.access_policy import AccessPolicy
from fleximq.security.anonymous_access import REFUSAL, isLocal, nameProxy

LOCAL = (
    IPv4Address("TCP", "127.0.0.1", 1),
    IPv4Address("TCP", "127.255.255.254", 1),
    IPv6Address("TCP", "::1", 1),
    IPv6Address("TCP", "::ffff:127.0.0.1", 1),
    IPv6Address("TCP", "::ffff:127.9.9.9", 1),
    UNIXAddress(None),
    UNIXAddress(b"/tmp/x"),
    PipeAddress(),
)
REMOTE = (
    IPv4Address("TCP", "10.0.0.1", 1),
    IPv4Address("TCP", "126.255.255.255", 1),
    IPv4Address("TCP", "128.0.0.1", 1),
    IPv4Address("TCP", "0.0.0.0", 1),
    IPv6Address("TCP", "::", 1),
    IPv6Address("TCP", "::2", 1),
    IPv6Address("TCP", "::ffff:10.0.0.1", 1),
    IPv6Address("TCP", "fe80::1%eth0", 1),
    IPv4Address("TCP", "localhost", 1),
    IPv4Address("TCP", "127.0.0.1.example.com", 1),
    HostnameAddress(b"localhost", 1),
    None,
)


class ProtectionTests(SynchronousTestCase):
    """The rule on every kind of address."""

    def test_loopbackUNIXSocketsAndPipesAreThisMachine(self) -> None:
        """Loopback, UNIX sockets and pipes are this machine."""
        for address in LOCAL:
            self.assertTrue(isLocal(address), address)
            self.assertIsNone(AccessPolicy().admissionFor().refusal(address), address)

    def test_namesAndUnknownAddressesAreRemote(self) -> None:
        """All else is not, names and what is unknown included."""
        for address in REMOTE:
            self.assertFalse(isLocal(address), address)
            self.assertEqual(AccessPolicy().admissionFor().refusal(address), REFUSAL, address)

    def test_behindProxyNobodyIsLocal(self) -> None:
        """Behind a proxy nobody is local."""
        for address in LOCAL + REMOTE:
            self.assertEqual(AccessPolicy().admissionFor(proxied=True).refusal(address), REFUSAL, address)

    def test_optionOpensDoorToAllOfThem(self) -> None:
        """The option opens the door to all of them."""
        for proxied in (False, True):
            admission = AccessPolicy(allowAnonymous=True).admissionFor(proxied)
            for address in LOCAL + REMOTE:
                self.assertIsNone(admission.refusal(address), address)

    def test_sentenceNamesOptionInOneLineThatFitsEveryDialect(self) -> None:
        """The sentence names the option, in one line that fits every dialect."""
        self.assertIn("--allow-anonymous", REFUSAL)
        self.assertNotIn("\n", REFUSAL)
        self.assertNotIn(":", REFUSAL)

    def test_proxyHeaders(self) -> None:
        """Any of a proxy's headers gives it away."""
        for name in ("forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-anything"):
            self.assertTrue(nameProxy(["host", name]), name)
        self.assertFalse(nameProxy(["host", "origin", "x-forwarded", "viaduct"]))
