"""Which names need no trust."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.peer_address import isAddress, isOwnName


class HostNameTests(SynchronousTestCase):
    """Addresses and names of this machine."""

    def test_addressesOfBothKindsAreSomeWhateverLooksLikeOneIsNot(self) -> None:
        """Addresses of both kinds are some, whatever looks like one is not."""
        for name in ("127.0.0.1", "10.1.2.3", "::1", "fe80::1"):
            self.assertTrue(isAddress(name), name)
        for name in ("", "localhost", "10.1.2", "10.1.2.3.example.org", "[::1]"):
            self.assertFalse(isAddress(name), name)

    def test_own(self) -> None:
        """localhost and all below it are this machine's, what only looks like it is not."""
        for name in ("localhost", "broker.localhost"):
            self.assertTrue(isOwnName(name), name)
        for name in ("", "notlocalhost", "localhost.example.org", "127.0.0.1"):
            self.assertFalse(isOwnName(name), name)
