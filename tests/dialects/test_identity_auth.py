"""Who an Identity client is: what its request says, or its certificate."""

from fleximq.dialects.identity_ws import IdentityFactory
from fleximq.errors import AuthenticationFailed, JoinRejected, NoCapacity
from fleximq.limits import Limits
from fleximq.security.credentials import Certificate
from fleximq.security.principal import Admitted, Principal
from tests.dialects.admissions import WRONG, FakeAdmission
from tests.dialects.conversations import ConversationCase, makeContext
from tests.dialects.websocket_peer import CLOSE, WebSocketPeer, text

SHOWN = Certificate("alice's")
ALICE = Principal("alice")
GREETING = ["IDENTITY:user-00000000", "CHANNELS:"]


class AuthTests(ConversationCase):
    """A listener where alice's certificate is known."""

    def setUp(self) -> None:
        """Open it."""
        super().setUp()
        self.listen()

    def listen(self, limits: Limits | None = None) -> None:
        """Open it anew."""
        self.admission = FakeAdmission({SHOWN: ALICE})
        self.context = makeContext(self.clock, admission=self.admission, limits=limits or Limits())
        self.factory = IdentityFactory(self.context)

    def arrive(self, admitted: Admitted | None = None, shown: Certificate | None = None) -> WebSocketPeer:
        """Return somebody who has connected, with a request that said this."""
        peer = WebSocketPeer(self.factory)
        peer.protocol.session.handshake.admitted = admitted
        peer.protocol.session.certificate = lambda: shown
        return peer.upgrade(text("SUBSCRIBE:a"))

    def refusal(self, peer: WebSocketPeer) -> tuple[str, int]:
        """Return the one text of a peer that was refused, and the code with which it was closed."""
        first, last = peer.frames()
        self.assertEqual(last.opcode, CLOSE)
        return first.payload.decode(), int.from_bytes(last.payload[:2], "big")

    def test_byRequest(self) -> None:
        """Who has said it in the request is greeted."""
        self.assertEqual(self.arrive(Admitted(ALICE, self.admission.rights)).texts(), [*GREETING, "SUB-ACK:a"])
        self.assertEqual([client.principal for client in self.context.broker.clients], ["alice"])
        self.assertEqual(self.admission.asked, [])

    def test_byCertificate(self) -> None:
        """So is who has shown a certificate."""
        self.assertEqual(self.arrive(shown=SHOWN).texts(), [*GREETING, "SUB-ACK:a"])

    def test_refused(self) -> None:
        """Nobody else comes in, whatever stands behind the request."""
        self.assertEqual(self.refusal(self.arrive()), (f"ERROR:401:{WRONG}", 1008))
        for error, code, closing in (
            (AuthenticationFailed("a"), 401, 1008),
            (JoinRejected("b"), 403, 1008),
            (NoCapacity("c"), 503, 1013),
        ):
            self.admission.known[SHOWN] = error
            self.assertEqual(self.refusal(self.arrive(shown=SHOWN)), (f"ERROR:{code}:{error}", closing))
        self.assertEqual(len(self.context.broker.clients), 0)

    def test_full(self) -> None:
        """A broker that is full says so to whoever may come."""
        self.listen(Limits(clients=1))
        self.arrive(shown=SHOWN)
        self.assertEqual(self.refusal(self.arrive(Admitted(ALICE, self.admission.rights)))[0][:10], "ERROR:503:")

    def test_later(self) -> None:
        """While it is looked into nothing is said, and what was said already waits."""
        self.admission.later = True
        peer = self.arrive(shown=SHOWN)
        self.assertEqual((peer.texts(), peer.paused), ([], True))
        peer.sayText("SUBSCRIBE:b")
        self.admission.decide()
        self.clock.advance(0)
        self.assertEqual((peer.texts(), peer.paused), ([*GREETING, "SUB-ACK:a", "SUB-ACK:b"], False))

    def test_expires(self) -> None:
        """When the credentials end the client is told so and closed."""
        self.admission.known[SHOWN] = Principal("alice", expires=50.0)
        peer = self.arrive(shown=SHOWN)
        peer.texts()
        self.clock.pump([50, 0])
        expired, closing = peer.frames()[-2:]
        self.assertEqual(expired.payload, b"ERROR:401:the credentials have expired")
        self.assertEqual((closing.opcode, closing.payload[:2]), (CLOSE, (1008).to_bytes(2, "big")))
