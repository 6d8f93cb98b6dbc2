"""What is kept while credentials are checked, and certificates of transports."""

import struct
from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificate
from OpenSSL.crypto import FILETYPE_PEM, load_certificate
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.connection.credential_check import certificateOf
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.dialects.handshake import MAX_UNAUTHENTICATED_BYTES
from fleximq.dialects.minimq import MiniFactory
from fleximq.security.credentials import Certificate
from fleximq.wire.websocket_frame import BINARY
from tests.certificates import makeCertificate
from tests.dialects.admissions import FakeAdmission
from tests.dialects.conversations import Peer, makeContext
from tests.dialects.test_fleximq_ws import FlexiWebSocketPeer
from tests.dialects.websocket_peer import masked
from tests.wire.flexi_frames import cut, frame


class BegunTests(SynchronousTestCase):
    """How much may be begun before anybody is let in, for each dialect on a stream."""

    def said(self, known: dict[Any, Any], size: int, shown: Certificate | None = None) -> list[bool]:
        """Return who is cut off that begins something large, says so many bytes of it, and then one more."""
        context = makeContext(Clock(), admission=FakeAdmission(known))
        join = frame("JOIN", 0)[:-8] + struct.pack(">Q", 1 << 23)
        hello = struct.pack(">IBQ", 11, 1, 1) + b"\0\1"
        found = []
        for factory, beginning, head in (
            (FlexiFactory(context), b"", join),
            (BlipFactory(context), hello, struct.pack(">IBQ", 1 << 23, 2, 2)),
            (MiniFactory(context), b"", b"PRODUCE:"),
        ):
            peer = Peer(factory)
            peer.protocol.session.certificate = lambda: shown
            peer.say(beginning + head + bytes(size - len(beginning + head))).say(b"x")
            found.append(peer.closed)
        return found

    def test_bound(self) -> None:
        """What credentials never take is refused where they are required."""
        self.assertEqual(self.said({}, MAX_UNAUTHENTICATED_BYTES), [False] * 3)
        self.assertEqual(self.said({}, MAX_UNAUTHENTICATED_BYTES + 1), [True] * 3)

    def test_nothingRequired(self) -> None:
        """Without required credentials, or with a certificate, a first line of MiniMQ may be longer."""
        self.assertEqual(self.said({None: None}, MAX_UNAUTHENTICATED_BYTES + 1), [True, True, False])
        self.assertEqual(self.said({}, MAX_UNAUTHENTICATED_BYTES + 1, Certificate("alice's")), [True, True, False])

    def test_onWebSockets(self) -> None:
        """It is the same inside a WebSocket."""
        peer = FlexiWebSocketPeer(FlexiWebSocketFactory(makeContext(Clock(), admission=FakeAdmission({}))))
        peer.upgrade()
        join = frame("JOIN", 0)[:-8] + struct.pack(">Q", 1 << 23)
        peer.say(masked(BINARY, join + bytes(MAX_UNAUTHENTICATED_BYTES + 1 - len(join))))
        peer.say(masked(BINARY, b"x"))
        [heard] = cut(peer.frames()[0].payload)
        self.assertEqual(heard.status, 413)


class CertificateTests(SynchronousTestCase):
    """What a transport says of its peer."""

    def test_none(self) -> None:
        """A transport without TLS has none, and a peer need not show one."""
        transport: Any = StringTransport()
        self.assertIsNone(certificateOf(transport))
        transport.getPeerCertificate = lambda: None
        self.assertIsNone(certificateOf(transport))

    def test_shown(self) -> None:
        """The certificate that was shown comes as one of the cryptography package."""
        folder = Path(self.mktemp())
        folder.mkdir()
        pem = makeCertificate(folder).certificate.read_bytes()
        transport: Any = StringTransport()
        transport.getPeerCertificate = lambda: load_certificate(FILETYPE_PEM, pem)
        self.assertEqual(certificateOf(transport), Certificate(load_pem_x509_certificate(pem)))
