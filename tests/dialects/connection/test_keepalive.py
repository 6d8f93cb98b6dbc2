"""Keep-alive: PINGs to the idle, an end for the silent (FlexiMQ document 3.7)."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.deadlines import Deadlines
from fleximq.dialects.connection.keepalive import KeepAlive
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer


class KeepAliveTests(SynchronousTestCase):
    """The timer alone."""

    def setUp(self) -> None:
        """Watch a connection that was heard at second 0."""
        self.clock = Clock()
        self.heard = 0.0
        self.pings: list[float] = []
        self.ends: list[float] = []
        self.watch = KeepAlive(Deadlines(self.clock), 30.0, self)

    def lastReceived(self) -> float:
        """Return when the connection was heard."""
        return self.heard

    def ping(self) -> None:
        """Note a PING."""
        self.pings.append(self.clock.seconds())

    def silent(self) -> None:
        """Note the end."""
        self.ends.append(self.clock.seconds())

    def run_(self, until: int) -> None:
        """Let seconds pass, one by one."""
        while self.clock.seconds() < until:
            self.clock.advance(1)

    def test_silent(self) -> None:
        """A PING after each interval of silence, the end after three, and no more then."""
        self.run_(500)
        self.assertEqual((self.pings, self.ends), ([30.0, 60.0], [90.0]))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_heardNow(self) -> None:
        """A connection that is heard is left alone."""
        while self.clock.seconds() < 300:
            self.heard = self.clock.seconds()
            self.run_(int(self.clock.seconds()) + 29)
        self.assertEqual((self.pings, self.ends), ([], []))

    def test_heardOnce(self) -> None:
        """The silence counts from when it was last heard."""
        self.run_(20)
        self.heard = 20.0
        self.run_(500)
        self.assertEqual((self.pings, self.ends), ([50.0, 80.0], [110.0]))

    def test_answering(self) -> None:
        """One that answers each PING lives on."""
        while self.clock.seconds() < 600:
            self.clock.advance(1)
            if self.pings and self.pings[-1] == self.clock.seconds():
                self.heard = self.clock.seconds()
        self.assertEqual((len(self.pings), self.ends), (20, []))

    def test_suggested(self) -> None:
        """5 and 300 seconds, and what lies between, are taken over; what lies outside is not."""
        for seconds, wanted in ((0, 30), (4, 30), (5, 5), (6, 6), (299, 299), (300, 300), (301, 300), (1 << 31, 300)):
            self.watch.suggest(seconds)
            self.assertEqual(self.watch.interval, wanted)

    def test_suggestionActs(self) -> None:
        """A suggestion acts at once, in both directions."""
        self.watch.suggest(5)
        self.run_(10)
        self.assertEqual(self.pings, [5.0, 10.0])
        self.heard = 10.0
        self.watch.suggest(100)
        self.run_(109)
        self.assertEqual(self.pings, [5.0, 10.0])
        self.run_(500)
        self.assertEqual((self.pings[2:], self.ends), ([110.0, 210.0], [310.0]))

    def test_stopped(self) -> None:
        """Once stopped nothing happens, and no timer is left."""
        self.watch.stop()
        self.watch.stop()
        self.watch.suggest(5)
        self.run_(500)
        self.assertEqual((self.pings, self.ends, self.clock.getDelayedCalls()), ([], [], []))


class FlexiKeepAliveTests(FlexiCase):
    """PING and PONG of FlexiMQ."""

    def pinged(self, peer: FlexiPeer) -> list[str]:
        """Return the kinds of what was heard."""
        return [each.kind for each in peer.messages()]

    def test_pong(self) -> None:
        """A PING is answered from client 1 with the same timestamp and no interval (the document's example)."""
        peer = self.server.join()
        for timestamp in (1703123456789, 0, (1 << 64) - 1):
            for more in ({}, {"interval": 30}):
                [heard] = peer.tell("PING", {"keepalive": {"timestamp": timestamp, **more}}).messages()
                self.assertEqual(
                    (heard.kind, heard.sender, heard.header, heard.payload),
                    ("PONG", 1, {"keepalive": {"timestamp": timestamp}}, b""),
                )

    def test_ping(self) -> None:
        """The broker's PING comes from client 1, with a timestamp in milliseconds; whoever answers stays."""
        peer = self.server.join()
        for _ in range(10):
            self.clock.pump([15, 15.5])
            [heard] = peer.messages()
            self.assertEqual((heard.kind, heard.sender), ("PING", 1))
            self.assertGreater(heard.header["keepalive"]["timestamp"], 1_600_000_000_000)
            self.assertEqual(heard.header["keepalive"].get("interval", 30), 30)
            peer.tell("PONG", {"keepalive": {"timestamp": heard.header["keepalive"]["timestamp"]}})
        self.assertFalse(peer.closed)

    def test_silent(self) -> None:
        """Whoever is silent for three intervals is closed, with a counted reason."""
        self.server = self.makeServer(keepalive=2.0)
        peer = self.server.join()
        self.clock.pump([0.5] * 11)
        self.assertFalse(peer.closed)
        self.clock.pump([0.5] * 2)
        self.assertTrue(peer.closed)
        self.assertEqual(self.pinged(peer), ["PING", "PING"])
        peer.leave()
        self.assertEqual(self.server.counts("left"), {"left: keep-alive": 1})

    def test_anythingCounts(self) -> None:
        """Any byte is a sign of life, even of a frame that is not whole yet."""
        self.server = self.makeServer(keepalive=2.0)
        peer = self.server.join()
        for _ in range(20):
            self.clock.advance(1.9)
            peer.say(b"\x01" if _ == 0 else b"\x00")
        self.assertEqual((self.pinged(peer), peer.closed), ([], False))

    def test_hearingDoesNotCount(self) -> None:
        """What the broker sends is no sign of life of the peer."""
        self.server = self.makeServer(keepalive=2.0)
        quiet, busy = self.server.join().subscribe("t"), self.server.join()
        for _ in range(8):
            self.clock.advance(1)
            busy.publish("t", 1)
        self.assertEqual((quiet.closed, busy.closed), (True, False))

    def test_unsolicitedPong(self) -> None:
        """A PONG that nobody asked for is ignored, also one with an interval."""
        peer = self.server.join()
        self.assertEqual(peer.answer("PONG", {"keepalive": {"timestamp": 7}}), [])
        self.assertEqual(peer.answer("PONG", {"keepalive": {"timestamp": 7, "interval": "x"}}), [])

    def test_suggested(self) -> None:
        """An interval between 5 and 300 seconds is taken over from a PING, one outside is not, nor one of a PONG."""
        for kind, interval, wanted in (
            ("PING", 5, 5),
            ("PING", 60, 60),
            ("PING", 4, 30),
            ("PING", 301, 30),
            ("PONG", 5, 30),
        ):
            peer = self.server.join()
            peer.tell(kind, {"keepalive": {"timestamp": 1, "interval": interval}}).messages()
            self.clock.advance(wanted - 0.5)
            self.assertEqual(self.pinged(peer), [], (kind, interval))
            self.clock.advance(1)
            self.assertEqual(self.pinged(peer), ["PING"], (kind, interval))
            peer.leave()

    def test_suggestedForOne(self) -> None:
        """A suggestion holds for its own connection only."""
        one, other = self.server.join(), self.server.join()
        one.tell("PING", {"keepalive": {"timestamp": 1, "interval": 5}}).messages()
        self.clock.advance(6)
        self.assertEqual((self.pinged(one), self.pinged(other)), (["PING"], []))

    def test_notBeforeJoin(self) -> None:
        """Before the JOIN nobody is pinged; the handshake's deadline counts there."""
        self.server = self.makeServer(keepalive=1.0, handshakeTimeout=10.0)
        peer = self.server.connect()
        self.clock.pump([1] * 9)
        self.assertEqual((peer.heard(), peer.closed), (b"", False))

    def test_shortSetting(self) -> None:
        """A setting under a second pings without suggesting an interval of 0."""
        self.server = self.makeServer(keepalive=0.5)
        peer = self.server.join()
        self.clock.advance(0.6)
        [heard] = peer.messages()
        self.assertEqual(list(heard.header["keepalive"]), ["timestamp"])
