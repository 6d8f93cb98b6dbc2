"""Clients that come to the listeners of a mesh while their node starts wait for it, and do not end with the owner."""

import signal
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import PATIENCE, BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.cluster.test_console_sessions import OWNS
from tests.conversations.clients import FlexiClient, IdentityClient, Stream, WebSocketStream

#: The listeners of a mesh.
_LISTENERS = ("fleximq+tcp:0:interface=127.0.0.1", "fleximq+ws://127.0.0.1:0", "identity+tcp:0:interface=127.0.0.1")


class EarlyClientTests(SynchronousTestCase):
    """Two brokers on a real server, which is stopped while the second one starts."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        self.servers = Servers(self.mktemp())
        self.addCleanup(self.servers.end)
        self.servers.wait()
        self.owner = self.start("a")
        self.owner.waitForOutput(OWNS)

    def start(self, name: str) -> BrokerProcess:
        """Start a node."""
        folder = Path(tempfile.mkdtemp(dir=".")).absolute()
        words = ["--cluster", self.servers.urls[0], "--cluster-bytes", "64MiB", "--allow-anonymous", "--mesh"]
        words += [word for each in _LISTENERS for word in ("--listen", each)]
        words += ["--http", "tcp:0:interface=127.0.0.1", "--cluster-wait", str(PATIENCE)]
        broker = BrokerProcess(*words, "--node", name, "--journal", f"{folder}/journal")
        broker.start()
        self.addCleanup(broker.stop, signal.SIGKILL)
        return broker

    def test_early(self) -> None:
        """They are served as soon as the node is ready, and stay when the owner dies."""
        self.servers.pause(0)
        node = self.start("b")
        node.waitFor(lambda: len(node.listeners) == len(_LISTENERS) + 1, "its listeners")
        ports = [("127.0.0.1", node.port(number)) for number in range(len(_LISTENERS))]
        joining = [
            _Joining(FlexiClient(Stream(ports[0])).join),
            _Joining(lambda: FlexiClient(WebSocketStream(ports[1])).join()),
            _Joining(lambda: IdentityClient(ports[2])),
        ]
        status, text = self.ready(node)
        self.assertEqual((status, "not in the mesh yet" in text), (503, True), text)
        self.servers.resume(0)
        node.waitForOutput("serves its clients itself")
        clients = [each.result() for each in joining]
        self.addCleanup(lambda: [each.close() for each in clients])
        node.waitFor(lambda: self.ready(node)[0] == 200, "its health")
        self.owner.stop(signal.SIGKILL)
        node.waitForOutput(OWNS)
        self.assertEqual([each.barrier() for each in clients[:2]], [[], []])
        self.assertEqual(clients[2].ask("SUBSCRIBE:news"), "SUB-ACK:news")

    def ready(self, node: BrokerProcess) -> tuple[int, str]:
        """Return status and text of ``/readyz``."""
        url = f"http://127.0.0.1:{node.port(len(_LISTENERS))}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


class _Joining(threading.Thread):
    """Connects a client, which is answered later."""

    def __init__(self, join: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._joined = join
        self._client: Any = None
        self.start()

    def run(self) -> None:
        self._client = self._joined()

    def result(self) -> Any:
        """Return the client that has joined."""
        self.join(PATIENCE)
        return self._client
