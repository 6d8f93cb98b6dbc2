"""The clients of BlipMQ and MiniMQ on an event loop whose turns are steps of a clock."""

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blipmq.loop_client import LoopBlipClient
from fleximq.client.errors import ConnectionLost, ProduceFailed, ProduceTimeout
from fleximq.client.minimq.loop_client import LoopMiniClient
from fleximq.client.settings import ClientSettings
from fleximq.values.urls import Url
from tests.client.loops.test_loop_client import Dialing

URL = Url.parse("tcp://localhost:7890")


class GreetingTests(SynchronousTestCase):
    """A broker that does not admit the client."""

    def test_bytesBeforeAdmission(self) -> None:
        """More than 1 MiB before the client is admitted ends the connection, even as one unfinished line or frame."""
        begins = {LoopBlipClient: (1 << 23).to_bytes(4, "big") + b"\3" + bytes(8), LoopMiniClient: b"x"}
        for kind, begin in begins.items():
            loop = Dialing()
            opening = Deferred.fromCoroutine(kind(loop, [URL], ClientSettings(reconnect=None)).open())
            for piece in (begin, bytes((1 << 20) - len(begin))):
                loop.connection.bytesReceived(loop.wire, piece)
            loop.clock.advance(0)
            self.assertNoResult(opening)
            loop.connection.bytesReceived(loop.wire, b"x")
            loop.clock.advance(0)
            self.assertIn("more than 1048576 bytes", str(self.failureResultOf(opening, ConnectionLost).value))


class ProduceManyTests(SynchronousTestCase):
    """Several MiniMQ messages of which only some are answered."""

    def setUp(self) -> None:
        """Connect."""
        self.loop = Dialing()
        settings = ClientSettings(reconnect=None, keep_alive=None)
        opening = Deferred.fromCoroutine(LoopMiniClient(self.loop, [URL], settings).open())
        self.loop.clock.advance(0)
        self.send(b"PONG:\n")
        self.client: LoopMiniClient = self.successResultOf(opening)
        self.producing = Deferred.fromCoroutine(self.client.produce_many("a", ["0", "1", "2"], 5.0))
        self.loop.clock.advance(0)

    def send(self, data: bytes) -> None:
        """Let the broker send lines."""
        self.loop.connection.bytesReceived(self.loop.wire, data)
        self.loop.clock.advance(0)

    def lose(self) -> None:
        """Let the connection end."""
        self.loop.connection.transportLost(self.loop.wire, ConnectionLost("gone"))
        self.loop.clock.advance(0)

    def test_lost(self) -> None:
        """After a loss the error has the ids of those that were confirmed."""
        self.send(b"zero\none\n")
        self.lose()
        error = self.failureResultOf(self.producing, ConnectionLost).value
        self.assertEqual((error.confirmed, str(error)), ({0: "zero", 1: "one"}, "gone"))

    def test_late(self) -> None:
        """So has the error after the time limit."""
        self.send(b"zero\n")
        self.loop.clock.advance(6)
        self.loop.clock.advance(0)
        self.assertEqual(self.failureResultOf(self.producing, ProduceTimeout).value.confirmed, {0: "zero"})

    def test_refusedAndLost(self) -> None:
        """A refusal before the loss is raised instead of the loss, without waiting on the lost connection."""
        self.loop.connection.bytesReceived(self.loop.wire, b"zero\nERROR:400:too long\n")
        self.lose()
        error = self.failureResultOf(self.producing, ProduceFailed).value
        self.assertEqual((error.place, error.confirmed), (1, {0: "zero"}))

    def test_waitsForEnd(self) -> None:
        """After a 400 the call ends when the connection has ended, or the broker has answered a PING."""
        self.send(b"zero\nERROR:400:too long\ntwo\n")
        self.assertNoResult(self.producing)
        self.send(b"PONG:\n")
        error = self.failureResultOf(self.producing, ProduceFailed).value
        self.assertEqual((error.place, error.confirmed), (1, {0: "zero", 2: "two"}))
