"""Where a peer comes from, in words."""

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.stdio import PipeAddress
from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.peer_address import peerAddress


class WhenceTests(SynchronousTestCase):
    """Each kind of address."""

    def test_hostAndPort(self) -> None:
        """Host and port; an IPv6 host stands in brackets."""
        self.assertEqual(peerAddress(IPv4Address("TCP", "192.0.2.1", 50000)), "192.0.2.1:50000")
        self.assertEqual(peerAddress(IPv6Address("TCP", "2001:db8::1", 50000)), "[2001:db8::1]:50000")

    def test_pathIfThereIsOne(self) -> None:
        """The path, if there is one; whatever bytes it has."""
        self.assertEqual(peerAddress(UNIXAddress(None)), "unix")
        self.assertEqual(peerAddress(UNIXAddress(b"")), "unix")
        self.assertEqual(peerAddress(UNIXAddress(b"/run/a\xff")), "unix:/run/a\N{REPLACEMENT CHARACTER}")

    def test_pathCannotBeginNewLineOfLogNorChangeTerminal(self) -> None:
        """A path cannot begin a new line of the log, nor change a terminal."""
        self.assertEqual(peerAddress(UNIXAddress(b"/tmp/a\n2026 joined\x1b[2J")), "unix:/tmp/a\\n2026 joined\\x1b[2J")

    def test_brokersOwnStandardInputIsCalledByItsName(self) -> None:
        """The broker's own standard input is called by its name."""
        self.assertEqual(peerAddress(PipeAddress()), "stdio")

    def test_anythingElseIsAskedToSpeakForItself(self) -> None:
        """Anything else is asked to speak for itself."""
        self.assertEqual(peerAddress("worker, process 7"), "worker, process 7")
