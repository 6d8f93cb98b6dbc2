"""Bans, their ends and their bound."""

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest, NoCapacity
from fleximq.security import bans
from fleximq.security.bans import Ban, Bans, banKey, keysOf
from fleximq.security.peer_address import addressKey, clientKey


class BansTests(SynchronousTestCase):
    """A minute for some."""

    def setUp(self) -> None:
        """Nobody is banned."""
        self.clock = Clock()
        self.bans = Bans(self.clock.seconds)

    def ban(self, kind: str, name: str, seconds: float = 60.0) -> None:
        """Ban until then."""
        self.bans.add(Ban(kind, name, self.clock.seconds() + seconds, "", "op"))

    def test_principalWaitsUntilEndOfItsBanWhereverItIs(self) -> None:
        """A principal waits until the end of its ban, wherever it is; an address of the same name does not."""
        self.ban("principal", "ann")
        self.clock.advance(20)
        self.assertEqual((self.bans.waits(clientKey("ann", None)), self.bans.waits(clientKey("bob", None))), (40, 0))
        self.assertEqual(self.bans.waits(None), 0)
        self.clock.advance(40)
        self.assertEqual((self.bans.waits(clientKey("ann", None)), list(self.bans)), (0, []))

    def test_address(self) -> None:
        """An address waits; of IPv6 all with the same first half; an IPv4 address written as IPv6 is the same."""
        for name in ("192.0.2.1", "2001:db8::1", "::ffff:192.0.2.9"):
            self.ban("address", name)
        for address, seconds in (
            (IPv4Address("TCP", "192.0.2.1", 5), 60), (IPv4Address("TCP", "192.0.2.2", 5), 0),
            (IPv6Address("TCP", "2001:db8::2", 5), 60), (IPv6Address("TCP", "2001:db8:0:1::2", 5), 0),
            (IPv4Address("TCP", "192.0.2.9", 5), 60),
        ):  # fmt: skip
            self.assertEqual(self.bans.waits(addressKey(address)), seconds, address)

    def test_banEndsEarlyOnce(self) -> None:
        """A ban ends early, once; another one for the same replaces it."""
        self.ban("principal", "ann")
        self.ban("principal", "ann", 5.0)
        self.assertEqual([each.until for each in self.bans], [5.0])
        self.assertEqual([self.bans.remove("principal", "ann") for _ in range(2)], [True, False])
        self.assertEqual(self.bans.waits(clientKey("ann", None)), 0)

    def test_whatCannotBeBanned(self) -> None:
        """What cannot be banned."""
        for kind, name in (
            ("address", "x"), ("address", "127.0.0.1"), ("address", "::1"), ("principal", "spawn:clock"),
        ):  # fmt: skip
            self.assertRaises(BadRequest, self.ban, kind, name)

    def test_theirNumberIsBounded(self) -> None:
        """Their number is bounded; those that have ended do not count."""
        self.patch(bans, "MAX_BANS", 2)
        self.ban("principal", "a", 1.0)
        self.ban("principal", "b")
        self.assertRaises(NoCapacity, self.ban, "principal", "c")
        self.ban("principal", "b")
        self.clock.advance(1)
        self.ban("principal", "c")
        self.assertEqual({each.name for each in self.bans}, {"b", "c"})

    def test_keysOfClients(self) -> None:
        """A client's keys are those of its bans."""
        for text, name in (("192.0.2.1:5", "192.0.2.1"), ("[2001:db8::1]:5", "2001:db8::2")):
            self.assertEqual(keysOf("ann", text), (banKey("principal", "ann"), banKey("address", name)))
        self.assertEqual(
            [keysOf(None, text) for text in ("unix", "stdio", "127.0.0.1:5")],
            [(banKey("principal", "anonymous"), None)] * 3,
        )
