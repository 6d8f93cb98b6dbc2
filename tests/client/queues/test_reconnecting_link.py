"""The clients of BlipMQ and MiniMQ on an event loop whose turns are steps of a clock."""

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blipmq.loop_client import LoopBlipClient
from fleximq.client.errors import ConnectionLost
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
