"""Client certificates over real TLS: who shows a good one is let in by its name, in every dialect."""

import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.client.settings import Tls
from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate
from tests.conversations.clients import (
    PATIENCE,
    Ack,
    BlipClient,
    FlexiClient,
    IdentityClient,
    MiniClient,
    Nack,
    Stream,
    WebSocketStream,
)
from tests.web_socket_client import Refused

SETTINGS = """\
auth = ["certificate:"]

[principals.alice]
read = ["broker/about", "broker/clients"]
"""


class CertificateTests(SynchronousTestCase):
    """A listener that asks for certificates and takes clients without."""

    def setUp(self) -> None:
        """Start the broker."""
        self.open = ExitStack()
        self.addCleanup(self.open.close)
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.server = makeCertificate(self.folder)
        self.alice = makeCertificate(self.folder, "alice", self.server)
        (self.folder / "fleximq.toml").write_text(SETTINGS)
        listen = (
            f"fleximqtls:cert={self.server.certificate}:key={self.server.key}:clientCA={self.server.certificate}"
            ":clientRequired=no:inner=tcp\\:0\\:interface=127.0.0.1"
        )
        self.broker = self.open.enter_context(
            BrokerProcess("--config", str(self.folder / "fleximq.toml"), "--listen", listen)
        )

    def connect(self, own: Made | None) -> ssl.SSLSocket:
        """Return a connection inside TLS that shows this."""
        stream = socket.create_connection(("127.0.0.1", self.broker.port(0)), timeout=PATIENCE)
        return self.open.enter_context(self.server.trusting(own).wrap_socket(stream, server_hostname="localhost"))

    def dialects(self, own: Made | None) -> dict[str, Any]:
        """Return what each dialect answers first to somebody who shows nothing else."""
        blip = BlipClient(self.connect(own))
        blip.hello()
        found = {
            "fleximq": FlexiClient(Stream(self.connect(own))).send("JOIN").hear().status,
            "blipmq": blip.auth(""),
            "minimq": MiniClient(self.connect(own)).ask("PING:"),
        }
        try:
            found["fleximqWs"] = FlexiClient(WebSocketStream(self.connect(own))).send("JOIN").hear().status
            found["identity"] = IdentityClient(self.connect(own)).greeting[1][:9]
        except Refused as refused:
            found["identity"] = str(refused)
        return found

    def test_allLetInWhoShowsGoodOne(self) -> None:
        """All let in who shows a good one; the broker knows them by the name in it."""
        self.assertEqual(
            self.dialects(self.alice),
            {"fleximq": 200, "blipmq": Ack(2, 0), "minimq": "PONG:", "fleximqWs": 200, "identity": "CHANNELS:"},
        )
        client = FlexiClient(Stream(self.connect(self.alice))).join()
        known = client.ask("/broker/clients")["clients"]
        self.assertEqual({each["principal"] for each in known}, {"alice"})

    def test_endOfTLSIsCountedAsClientThatHasClosedNotAsLostConnection(self) -> None:
        """The end of TLS is counted as a client that has closed, not as a lost connection."""
        watching = FlexiClient(Stream(self.connect(self.alice))).join()
        stream = self.connect(self.alice)
        FlexiClient(Stream(stream)).join()
        stream.unwrap().close()
        files = Tls(str(self.server.certificate), str(self.alice.certificate), str(self.alice.key))
        for url in (f"tls://localhost:{self.broker.port(0)}", f"wss://localhost:{self.broker.port(0)}/ws"):
            connect(url, tls=files).close()
        left: dict[str, int] = {}
        deadline = time.monotonic() + PATIENCE
        while sum(left.values()) < 3 and time.monotonic() < deadline:
            counts = watching.ask("/broker/about")["counts"]
            left = {name: count for name, count in counts.items() if name.startswith("left: ")}
        self.assertEqual(left, {"left: client closed": 3})

    def test_notShown(self) -> None:
        """None lets in who shows none."""
        self.assertEqual(
            self.dialects(None),
            {
                "fleximq": 401,
                "blipmq": Nack(2, 401, "invalid API key"),
                "minimq": "ERROR:401:credentials are required here",
                "fleximqWs": 401,
                "identity": "HTTP/1.1 401 Unauthorized",
            },
        )
