"""Behind a proxy that says for whom it speaks: everything that the broker counts or shows is the peer's own."""

import socket
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, FlexiClient, MiniClient, Stream
from tests.services.network.test_proxy_protocol import header1, header2


class ProxiedCase(SynchronousTestCase):
    """A broker behind a proxy."""

    options: ClassVar[tuple[str, ...]] = ()
    listens: ClassVar[tuple[str, ...]] = ("haproxy:tcp:0:interface=127.0.0.1",)

    def setUp(self) -> None:
        """Start it."""
        listens = [word for each in self.listens for word in ("--listen", each)]
        self.broker = BrokerProcess(*listens, "--allow-anonymous", *self.options).__enter__()
        self.addCleanup(self.broker.stop)

    def through(self, header: bytes, port: int = 0) -> socket.socket:
        """Return a connection that the proxy passes on with this header."""
        connected = socket.create_connection(("127.0.0.1", self.broker.port(port)), 10)
        self.addCleanup(connected.close)
        connected.sendall(header)
        return connected

    def addresses(self, flexi: FlexiClient) -> list[str]:
        """Return where all clients come from, as the broker lists them."""
        return sorted(each["address"] for each in flexi.ask("/broker/clients")["clients"])


class AddressTests(ProxiedCase):
    """All dialects on one port, and MiniMQ alone on another."""

    listens = ("haproxy:tcp:0:interface=127.0.0.1", "minimq+haproxy:tcp:0:interface=127.0.0.1")

    def test_listed(self) -> None:
        """Lists of clients and the log have the peer's own address, whatever it speaks, and on every listener."""
        flexi = FlexiClient(Stream(self.through(header1("192.0.2.1", 1001)))).join()
        BlipClient(self.through(header2((192, 0, 2, 2), 1002))).login()
        MiniClient(self.through(header2((192, 0, 2, 3), 1003))).ask("PING:")
        MiniClient(self.through(header1("2001:db8::4", 1004), port=1)).ask("PING:")
        self.assertEqual(
            self.addresses(flexi), ["192.0.2.1:1001", "192.0.2.2:1002", "192.0.2.3:1003", "[2001:db8::4]:1004"]
        )
        self.broker.waitForOutput(r"joined from 192\.0\.2\.2:1002")
        self.broker.waitForOutput(r"joined from \[2001:db8::4\]:1004")

    def test_halfClosed(self) -> None:
        """A peer that ends its input gets its answers through the proxy too."""
        stream = Stream(self.through(header1(), port=1))
        stream.say(b"PRODUCE:a:::t:::x:::-:::-\n")
        stream.endInput()
        self.assertEqual(stream.readAll(), b"a\n")


class GateTests(ProxiedCase):
    """Two connections of each address."""

    options = ("--max-clients-per-address", "2")

    def test_perAddress(self) -> None:
        """The third of an address is closed; those of others, through the same proxy, are not."""
        for _ in range(2):
            FlexiClient(Stream(self.through(header1()))).join()
        third = Stream(self.through(header2() + b"PING:\n"))
        self.assertEqual(third.readAll(), b"")
        FlexiClient(Stream(self.through(header1("192.0.2.8")))).join()
        self.broker.waitForOutput("Closing the connection from 192.0.2.7:50000: too many connections from one address")


class JoinRateTests(ProxiedCase):
    """Two attempts to join of each address."""

    options = ("--max-join-rate", "0.01,2")

    def test_joins(self) -> None:
        """Attempts are counted by the peer's own address."""
        for _ in range(2):
            FlexiClient(Stream(self.through(header1()))).join()
        refused = FlexiClient(Stream(self.through(header1())))
        refused.tell("JOIN")
        self.assertEqual(refused.hear().status, 605)
        FlexiClient(Stream(self.through(header1("192.0.2.8")))).join()


class FlappingTests(ProxiedCase):
    """Three departures of each address."""

    options = ("--max-disconnects", "3")

    def test_flaps(self) -> None:
        """Departures are counted by the peer's own address: who came and went too often is closed at the gate."""
        for number in range(3):
            FlexiClient(Stream(self.through(header1()))).join().close()
            self.broker.waitForOutput(rf"(?s)( left: .*){{{number + 1}}}")
        self.assertEqual(Stream(self.through(header2() + b"PING:\n")).readAll(), b"")
        self.broker.waitForOutput("Closing the connection from 192.0.2.7:50000: came and went too often")
        FlexiClient(Stream(self.through(header1("192.0.2.8")))).join()
