"""Who a MiniMQ client is: what its listener knows of it, since it cannot say."""

from fleximq.dialects.minimq import MiniFactory
from fleximq.errors import AuthenticationFailed, JoinRejected, NoCapacity
from fleximq.security.credentials import Certificate
from fleximq.security.principal import Principal
from tests.dialects.admissions import WRONG, FakeAdmission
from tests.dialects.conversations import ConversationCase, Peer, makeContext

SHOWN = Certificate("alice's")


class AuthCase(ConversationCase):
    """A listener where alice's certificate is known."""

    def setUp(self) -> None:
        """Open it."""
        super().setUp()
        self.admission = FakeAdmission({SHOWN: Principal("alice")})
        self.context = makeContext(self.clock, admission=self.admission)
        self.factory = MiniFactory(self.context)

    def peer(self, shown: Certificate | None = SHOWN) -> Peer:
        """Return somebody who has just connected, and shown this."""
        peer = self.connect(self.factory)
        peer.protocol.session.certificate = lambda: shown
        return peer


class AtOnceTests(AuthCase):
    """What is decided at once."""

    def test_certificate(self) -> None:
        """The client is whom its certificate names."""
        self.assertEqual(self.peer().ask(b"PING:\nPING:\n"), b"PONG:\n" * 2)
        self.assertEqual([client.principal for client in self.context.broker.clients], ["alice"])
        self.assertEqual(self.admission.asked, [SHOWN])

    def test_required(self) -> None:
        """Without one, where that is required, the first line is answered by 401, and the connection closes."""
        peer = self.peer(None)
        self.assertEqual((peer.ask(b"PING:\nPING:\n"), peer.closed), (f"ERROR:401:{WRONG}\n".encode(), True))
        self.assertEqual(len(self.context.broker.clients), 0)

    def test_anonymous(self) -> None:
        """Without one, where nobody has to show any, it is nobody."""
        self.admission.known[None] = None
        self.assertEqual(self.peer(None).ask(b"PING:\n"), b"PONG:\n")

    def test_otherErrors(self) -> None:
        """Certificates are not checked: 401; policy: 403; they cannot be checked now: 500. All close."""
        for error, code in ((AuthenticationFailed("a"), 401), (JoinRejected("b"), 403), (NoCapacity("c"), 500)):
            self.admission.known[SHOWN] = error
            peer = self.peer()
            self.assertEqual((peer.ask(b"PING:\n"), peer.closed), (f"ERROR:{code}:{error}\n".encode(), True))

    def test_ack(self) -> None:
        """An ACK as the first line is answered too: nothing comes behind it that this could be mistaken for."""
        self.assertEqual(self.peer(None).ask(b"ACK:x\n"), f"ERROR:401:{WRONG}\n".encode())

    def test_expires(self) -> None:
        """When the certificate ends, the client is told 401, and the connection closes."""
        self.admission.known[SHOWN] = Principal("alice", expires=50.0)
        peer = self.peer()
        peer.ask(b"PING:\n")
        self.clock.pump([50, 0])
        self.assertEqual((peer.heard(), peer.closed), (b"ERROR:401:the credentials have expired\n", True))


class LaterTests(AuthCase):
    """What takes its time."""

    def setUp(self) -> None:
        """Decide later."""
        super().setUp()
        self.admission.later = True

    def decide(self, peer: Peer) -> bytes:
        """Decide, and return what is heard of that."""
        self.admission.decide()
        self.clock.advance(0)
        return peer.heard()

    def test_inOrder(self) -> None:
        """The first line and all behind it are answered in their order, wherever they were cut."""
        said = b"PRODUCE:1:::q:::a:::::::\nPRODUCE:2:::q:::b:::::::\nCONSUME:q\nCONSUME:q\nCONSUME:q\nPING:\n"
        expected = b"1\n2\n1:::q:::a::::::\n2:::q:::b::::::\nNO_MSG\nPONG:\n"
        for place in range(said.index(b"\n") + 1, len(said) + 1):
            self.setUp()
            peer = self.peer()
            self.assertEqual((peer.ask(said[:place]), peer.paused), (b"", True), place)
            heard = self.decide(peer) + peer.ask(said[place:])
            self.assertEqual(heard.replace(b":::::::\n", b"::::::\n"), expected, place)
            self.assertFalse(peer.paused)

    def test_refused(self) -> None:
        """Only the first line is answered if it is decided against the client."""
        peer = self.peer(None).say(b"PRODUCE:1:::q:::a::::::\nPING:\n").say(b"PING:\n")
        self.assertEqual((self.decide(peer), peer.closed), (f"ERROR:401:{WRONG}\n".encode(), True))
        self.assertIsNone(self.context.broker.topics.find("q"))

    def test_inputEnded(self) -> None:
        """Who ends its input meanwhile still gets its answers."""
        peer = self.peer().say(b"PING:\nPING:\n").endInput()
        self.assertFalse(peer.closed)
        self.assertEqual((self.decide(peer), peer.closed), (b"PONG:\n" * 2, True))

    def test_lost(self) -> None:
        """A connection that is lost drops the check."""
        self.peer().say(b"PING:\nPING:\n").leave()
        self.assertEqual((self.admission.dropped, self.admission.waiting), (1, 0))

    def test_deadline(self) -> None:
        """The handshake's deadline counts meanwhile, though the first line is there."""
        peer = self.peer().say(b"PING:\n")
        self.clock.advance(10)
        self.assertEqual((peer.closed, peer.heard()), (True, b""))
