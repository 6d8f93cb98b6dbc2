"""How many connections are let as far as the protocols."""

from dataclasses import replace
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ILoggingContext
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.dialects.connection.handover import Handover
from fleximq.limits import Limits
from fleximq.security.peer_address import addressKey
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.security.rates.rate_limits import FLAPS, RateLimits
from fleximq.security.rates.token_bucket import KeyedBuckets
from fleximq.services.network.connection_limit import (
    LOG_INTERVAL,
    TOO_MANY_NEW,
    TOO_MANY_THERE,
    TOO_MANY_WAIT,
    ConnectionLimit,
)
from tests.log_observer import observeLog

LOST = Failure(ConnectionDone())
LOCAL = IPv4Address("TCP", "127.0.0.1", 5000)


class _Door(Handover):
    """Hands over what it is told."""


class _Doors(Factory[Any]):
    noisy = False

    def __init__(self) -> None:
        self.built: list[Any] = []

    def buildProtocol(self, addr: Any) -> Any:
        """Build a door, and note it."""
        self.built.append(_Door())
        return self.built[-1]


class _Noting(Protocol):
    lost = 0

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Count."""
        self.lost += 1


def peer(number: int) -> IPv4Address:
    """Return the address of another machine."""
    return IPv4Address("TCP", f"192.0.2.{number}", 5000)


class LimitTests(SynchronousTestCase):
    """A gate for three that wait, and two from each address."""

    def setUp(self) -> None:
        """Nobody is here yet."""
        self.clock = Clock()
        self.clients = 0
        self.counted: list[tuple[str, int]] = []
        self.said: list[LogEvent] = []
        connects, flapping = KeyedBuckets(None), FlappingLimit(1, 60.0, self.clock.seconds)
        self.connects, self.flapping = connects, flapping
        self.connectionLimit = ConnectionLimit(
            self.clock,
            Limits(waiting=3, clientsPerAddress=2),
            lambda: self.clients,
            lambda event, number: self.counted.append((event, number)),
            replace(RateLimits.of(Settings(), self.clock), connects=connects, flapping=flapping),
        )
        self.doors = _Doors()
        self.factory: Any = self.connectionLimit.limited(self.doors)
        observeLog(self, self.said.append)

    def come(self, address: Any = LOCAL) -> tuple[Any, StringTransport]:
        """Connect from an address; return the protocol and its transport."""
        protocol, transport = self.factory.buildProtocol(address), StringTransport()
        protocol.makeConnection(transport)
        return protocol, transport

    def isIn(self, address: Any = LOCAL) -> bool:
        """Connect, and tell whether the connection was left open."""
        return not self.come(address)[1].disconnecting

    def test_waiting(self) -> None:
        """As many may wait as are allowed, one more is closed, which is counted."""
        self.assertEqual([self.isIn() for _ in range(4)], [True, True, True, False])
        self.assertEqual(self.counted, [(TOO_MANY_WAIT, 1)])
        self.assertEqual(self.connectionLimit.refused, 1)

    def test_letIn(self) -> None:
        """Who was let in waits no longer."""
        for _ in range(3):
            self.come()
        self.clients = 1
        self.assertEqual(self.connectionLimit.waiting, 2)
        self.assertTrue(self.isIn())

    def test_gone(self) -> None:
        """A connection that is lost makes room, and is lost for its protocol."""
        first, _ = self.come()
        noting = _Noting()
        for _ in range(2):
            self.come()
        first.handOver(noting, b"")
        first.connectionLost(LOST)
        self.assertEqual((noting.lost, self.connectionLimit.waiting), (1, 2))
        self.assertTrue(self.isIn())

    def test_handedOverTwice(self) -> None:
        """The end is noticed behind any number of doors."""
        first, _ = self.come()
        second = _Door()
        first.handOver(second, b"")
        second.handOver(_Noting(), b"")
        first.connectionLost(LOST)
        self.assertEqual(self.connectionLimit.waiting, 0)

    def test_neverHandedOver(self) -> None:
        """A connection that ends at the door is noticed as well."""
        self.come()[0].connectionLost(LOST)
        self.assertEqual(self.connectionLimit.waiting, 0)

    def test_address(self) -> None:
        """One address has as many connections as allowed, let in or not; others are not concerned."""
        self.clients = 1
        self.assertEqual([self.isIn(peer(1)), self.isIn(peer(1)), self.isIn(peer(1))], [True, True, False])
        self.assertEqual(self.counted, [(TOO_MANY_THERE, 1)])
        self.assertTrue(self.isIn(peer(2)))

    def test_addressAgain(self) -> None:
        """An address whose connection is lost may come again, and one without any is forgotten."""
        protocols = [self.come(peer(1))[0] for _ in range(2)]
        for protocol in protocols:
            protocol.connectionLost(LOST)
        self.assertTrue(self.isIn(peer(1)))

    def test_thisMachine(self) -> None:
        """Loopback and UNIX sockets are not counted by address."""
        for address in (LOCAL, UNIXAddress(b"/run/x"), None):
            self.assertIsNone(addressKey(address))

    def test_prefix(self) -> None:
        """IPv6 addresses count by their first 64 bits, mapped ones as what they map."""
        one, other = (IPv6Address("TCP", f"2001:db8::{each}", 1) for each in ("1", "2"))
        far, mapped = (IPv6Address("TCP", each, 1) for each in ("2001:db8:0:1::1", "::ffff:192.0.2.1"))
        self.assertEqual(addressKey(one), addressKey(other))
        self.assertNotEqual(addressKey(one), addressKey(far))
        self.assertEqual(addressKey(mapped), addressKey(peer(1)))

    def test_tooOften(self) -> None:
        """An address that connects more often than it may is closed; it is not counted against it, nor others."""
        self.connects.change(Rate(1, 2))
        for _ in range(2):
            self.come(peer(1))[0].connectionLost(LOST)
        self.assertEqual([self.isIn(peer(1)), self.isIn(peer(2)), self.isIn()], [False, True, True])
        self.clock.advance(1)
        self.assertTrue(self.isIn(peer(1)))
        self.assertEqual(self.counted, [(TOO_MANY_NEW, 1)])

    def test_flaps(self) -> None:
        """An address that has to stay away is closed, until its time is over."""
        self.flapping.left(addressKey(peer(1)), 1.0)
        self.assertEqual([self.isIn(peer(1)), self.isIn(peer(2))], [False, True])
        self.assertEqual(self.counted, [(FLAPS, 1)])
        self.clock.advance(60)
        self.assertTrue(self.isIn(peer(1)))

    def test_proxied(self) -> None:
        """Behind a proxy, a connection is counted as waiting at first, and by its address when that is known."""
        self.factory = self.connectionLimit.limited(self.doors, proxied=True)
        self.assertEqual([self.isIn(peer(1)) for _ in range(4)], [True, True, True, False])
        leaves = [self.connectionLimit.enterFrom(peer(1)) for _ in range(2)]
        self.assertIsNone(self.connectionLimit.enterFrom(peer(1)))
        assert leaves[0] is not None
        leaves[0]()
        self.assertIsNotNone(self.connectionLimit.enterFrom(peer(1)))

    def test_logged(self) -> None:
        """A flood is one line a second, which names the option and says how many there were."""
        for _ in range(8):
            self.come()
        self.clock.advance(LOG_INTERVAL)
        self.come()
        lines = [event for event in self.said if "option" in event]
        self.assertEqual(
            [(event["option"], event["more"]) for event in lines], [("--max-waiting", 0), ("--max-waiting", 4)]
        )

    def test_nobodyBuilt(self) -> None:
        """A factory that wants no more connections does not take a place."""
        self.doors.buildProtocol = lambda addr: None  # type: ignore[method-assign]
        self.assertIsNone(self.factory.buildProtocol(LOCAL))
        self.assertEqual(self.connectionLimit.waiting, 0)

    def test_calledByName(self) -> None:
        """Where Twisted logs that a port was opened, it is FlexiMQ's."""
        verifyObject(ILoggingContext, self.factory)
        self.assertEqual(self.factory.logPrefix(), "FlexiMQ")

    def test_startAndStop(self) -> None:
        """The factory behind is started and stopped with the first and last port."""
        self.factory.doStart()
        self.assertEqual(self.doors.numPorts, 1)
        self.factory.doStop()
        self.assertEqual(self.doors.numPorts, 0)
