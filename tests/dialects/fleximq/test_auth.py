"""Credentials in FlexiMQ: what a JOIN shows, and what happens while that is looked into (document 4.2, 5.2)."""

from typing import Any

from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.errors import AuthenticationFailed, JoinRejected, NoCapacity
from fleximq.limits import Limits
from fleximq.security.credentials import ApiKey, Certificate, Password, Signature, Token
from fleximq.security.principal import Admitted, Principal
from tests.dialects.admissions import FakeAdmission
from tests.dialects.conversations import ConversationCase, makeContext
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.dialects.test_fleximq_ws import FlexiWebSocketPeer
from tests.dialects.websocket_peer import BINARY, masked
from tests.wire.flexi_frames import Heard, cut, frame
from tests.wire.flexi_variants import VARIANTS

ALICE = Principal("alice", scheme="tokens")
GOOD, BAD = {"auth": {"type": "token", "token": "good"}}, {"auth": {"type": "token", "token": "bad"}}
SHOWN: tuple[tuple[dict[str, str], Any], ...] = (
    ({"type": "token", "token": "t"}, Token("t")),
    ({"type": "basic", "username": "u", "password": "p"}, Password("u", "p")),
    ({"type": "api_key", "api_key": "k"}, ApiKey("k")),
)


class AuthCase(FlexiCase):
    """A server where ``good`` is alice's token."""

    def setUp(self) -> None:
        """Begin with an admission that decides at once."""
        self.admission = FakeAdmission({Token("good"): ALICE})
        super().setUp()

    def makeServer(self, **more: Any) -> Any:
        """Return a server with this admission."""
        return super().makeServer(admission=self.admission, **more)

    def assertRefused(self, peer: FlexiPeer, status: int, id: str | None = None) -> Heard:
        """Check the shape of an error before the JOIN, and that the connection closes."""
        [heard] = peer.messages()
        header: dict[str, Any] = {"status": status}
        if id is not None:
            header["reqrep"] = {"type": "correlation", "id": id}
        self.assertEqual((heard.kind, heard.sender, heard.header, type(heard.value)), ("REP", 0, header, str))
        self.assertTrue(peer.closed)
        return heard

    def decide(self) -> None:
        """Decide on the oldest JOIN, and let what is answered be written."""
        self.admission.decide()
        self.clock.advance(0)


class ShownTests(AuthCase):
    """What is shown."""

    def test_kinds(self) -> None:
        """Each kind of credentials goes to the admission, in all variants; the client is who that says."""
        for variant in VARIANTS:
            for auth, credentials in SHOWN:
                self.admission.known[credentials] = ALICE
                peer = self.server.connect()
                peer.variant = variant
                peer.join({"auth": auth})
                self.assertEqual(self.admission.asked.pop(), credentials)
                client = self.server.client(peer)
                self.assertEqual((client.principal, client.identity), ("alice", ALICE))
                self.assertIs(client.rights, self.admission.rights)
                self.assertIs(client.conversation, peer.protocol.session)

    def test_none(self) -> None:
        """Who shows nothing is asked about too: 401, or let in as nobody."""
        self.assertRefused(self.server.connect().tell("JOIN"), 401)
        self.assertEqual(self.admission.asked, [None])
        self.admission.known[None] = None
        self.assertIsNone(self.server.client(self.server.join()).principal)

    def test_wrong(self) -> None:
        """Wrong credentials: 401, correlated, also where none are needed."""
        self.admission.known[None] = None
        header = BAD | {"reqrep": {"type": "request", "id": "J"}}
        self.assertRefused(self.server.connect().tell("JOIN", header), 401, "J")

    def test_otherErrors(self) -> None:
        """A kind that is not checked here: 604; policy: 605; it cannot be checked now: 503."""
        for error, status in ((AuthenticationFailed("a"), 604), (JoinRejected("b"), 605), (NoCapacity("c"), 503)):
            self.admission.known[Token("bad")] = error
            self.assertEqual(self.assertRefused(self.server.connect().tell("JOIN", BAD), status).value, str(error))

    def test_malformed(self) -> None:
        """Nobody is asked about credentials that are malformed, or about a JOIN that is wrong otherwise."""
        for header in ({"auth": {"type": "token"}}, GOOD | {"topic": "t"}):
            self.server.connect().tell("JOIN", header)
        self.server.connect().send("JOIN", GOOD, client_id=5)
        self.assertEqual(self.admission.asked, [])

    def test_second(self) -> None:
        """Nobody is asked again: a second JOIN is a 409."""
        peer = self.server.join(GOOD)
        self.assertError(peer.tell("JOIN", GOOD).messages()[0], peer, 409)
        self.assertEqual(len(self.admission.asked), 1)

    def test_unforeseen(self) -> None:
        """If asking goes wrong in a way that nobody foresaw, nobody comes in."""
        self.admission.known[Token("bad")] = ValueError("odd")
        for later in (False, True):
            self.admission.later = later
            peer = self.server.connect().tell("JOIN", BAD)
            if later:
                self.decide()
            self.assertNotIn(b"odd", self.assertRefused(peer, 500).payload)
        self.assertEqual(len(self.server.broker.clients), 0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)

    def test_certificate(self) -> None:
        """A certificate counts where nothing else is shown, and only there."""
        shown = Certificate("alice's")
        self.admission.known[shown] = ALICE
        for header, asked in ((None, shown), (GOOD, Token("good"))):
            peer = self.server.connect()
            peer.protocol.session.certificate = lambda: shown
            peer.join(header)
            self.assertEqual(self.admission.asked.pop(), asked)


class ChallengeTests(AuthCase):
    """A public key."""

    KEY = {"type": "public_key", "public_key": "p"}  # noqa: RUF012

    def challenge(self, peer: FlexiPeer, id: str | None = None) -> str:
        """Return the challenge for a JOIN with the key."""
        reqrep = {} if id is None else {"reqrep": {"type": "request", "id": id}}
        [heard] = peer.tell("JOIN", {"auth": self.KEY, **reqrep}).messages()
        wanted = {} if id is None else {"reqrep": {"type": "correlation", "id": id}}
        self.assertEqual((heard.kind, heard.sender, heard.header), ("REP", 0, {"status": 401, **wanted}))
        self.assertEqual(set(heard.value), {"error", "challenge"})
        self.assertFalse(peer.closed)
        return str(heard.value["challenge"])

    def test_signed(self) -> None:
        """The JOIN is answered with a challenge, and another JOIN with its signature joins; each gets its own."""
        challenges = set()
        for _ in range(2):
            peer = self.server.connect()
            challenge = self.challenge(peer, "J")
            self.assertEqual(self.admission.asked, [])
            self.admission.known[Signature("p", challenge, "s")] = ALICE
            peer.join({"auth": self.KEY | {"signature": "s"}})
            self.assertEqual(self.server.client(peer).principal, "alice")
            self.admission.asked.clear()
            challenges.add(challenge)
        self.assertEqual(len(challenges), 2)

    def test_once(self) -> None:
        """There is one challenge on a connection, and one attempt."""
        peer = self.server.connect()
        self.challenge(peer)
        self.assertRefused(peer.tell("JOIN", {"auth": self.KEY}), 401)
        peer = self.server.connect()
        self.challenge(peer)
        self.assertRefused(peer.tell("JOIN", {"auth": self.KEY | {"signature": "s"}}), 401)

    def test_withoutChallenge(self) -> None:
        """A signature before the challenge is one of no challenge."""
        self.assertRefused(self.server.connect().tell("JOIN", {"auth": self.KEY | {"signature": "s"}}), 401)
        self.assertEqual(self.admission.asked, [Signature("p", "", "s")])

    def test_deadline(self) -> None:
        """The handshake's deadline goes on."""
        peer = self.server.connect()
        self.challenge(peer)
        self.clock.advance(11)
        self.assertTrue(peer.closed)

    def test_malformed(self) -> None:
        """A key or signature that is no text: 604."""
        for auth in ({"type": "public_key"}, {"type": "public_key", "public_key": 7}, self.KEY | {"signature": b"s"}):
            self.assertRefused(self.server.connect().tell("JOIN", {"auth": auth}), 604)


class LaterTests(AuthCase):
    """Credentials whose check takes its time."""

    def setUp(self) -> None:
        """Decide later."""
        super().setUp()
        self.admission.later = True

    def test_waits(self) -> None:
        """Until it is decided nothing is answered, and nothing more is read."""
        peer = self.server.connect().tell("JOIN", GOOD)
        self.assertEqual((peer.heard(), peer.paused, len(self.server.broker.clients)), (b"", True, 0))
        self.decide()
        [heard] = peer.messages()
        self.assertEqual((heard.sender, heard.status, peer.paused), (1000, 200, False))

    def test_inOrder(self) -> None:
        """What was said behind the JOIN, however it was cut, is done in its order when it is decided."""
        said = self.conversation()
        wanted = self.heardOf(said, len(said))
        self.assertEqual([each.kind for each in wanted], ["REP", "REP", "PUB", "PUB", "PONG"])
        for place in range(len(frame("JOIN", 0, GOOD)), len(said)):
            self.assertEqual([each[:4] for each in self.heardOf(said, place)], [each[:4] for each in wanted], place)

    def conversation(self) -> bytes:
        """Return a JOIN twice, and what its client says next."""
        news = {"topic": "news"}
        return (
            frame("JOIN", 0, GOOD) * 2
            + frame("SUB", 1000, news)
            + frame("PUB", 1000, news, b"\x01")
            + frame("PUB", 1000, news, b"\x02")
            + frame("PING", 1000, {"keepalive": {"timestamp": 5}})
        )

    def heardOf(self, said: bytes, place: int) -> list[Heard]:
        """Return what is heard if the JOIN is decided when so many bytes were said."""
        self.server = self.makeServer()
        peer = self.server.connect().say(said[:place])
        self.assertEqual(peer.heard(), b"")
        self.decide()
        return cut(peer.heard() + peer.say(said[place:]).heard())

    def test_inPortions(self) -> None:
        """Reads that arrive while it is waited are kept."""
        said = self.conversation()
        peer = self.server.connect()
        for start in range(0, len(said), 7):
            peer.say(said[start : start + 7])
        self.decide()
        self.assertEqual([each.kind for each in peer.messages()], ["REP", "REP", "PUB", "PUB", "PONG"])

    def test_variants(self) -> None:
        """It is the same in every variant."""
        for variant in VARIANTS:
            self.server = self.makeServer()
            peer = self.server.connect()
            peer.variant = variant
            news = {"topic": "news"}
            peer.say(
                variant.frame("JOIN", 0, GOOD)
                + variant.frame("SUB", 1000, news)
                + variant.frame("PUB", 1000, news, b"\x01")
                + variant.frame("JOIN", 0, GOOD)[:30]
            )
            self.decide()
            self.assertEqual([each.kind for each in peer.messages()], ["REP", "PUB"], variant)

    def test_refused(self) -> None:
        """If it is decided against the client, what it said behind the JOIN is not done."""
        peer = self.server.connect().say(frame("JOIN", 0, BAD) + frame("PUB", 1000, {"topic": "news"}, b"\x01"))
        peer.say(frame("PUB", 1000, {"topic": "news"}, b"\x02"))
        self.decide()
        self.assertRefused(peer, 401)
        self.assertIsNone(self.server.broker.topics.find("news"))

    def test_framing(self) -> None:
        """Wrong framing behind the JOIN is answered behind its answer."""
        peer = self.server.connect().say(frame("JOIN", 0, GOOD) + frame("PUB", 1000, version=9))
        self.decide()
        self.assertEqual([each.status for each in peer.messages()], [200, 400])
        self.assertTrue(peer.closed)

    def test_full(self) -> None:
        """A broker that became full meanwhile says 503."""
        self.server = self.makeServer(limits=Limits(clients=1))
        peer = self.server.connect().tell("JOIN", GOOD)
        self.server.foreign()
        self.decide()
        self.assertRefused(peer, 503)

    def test_lost(self) -> None:
        """A connection that is lost meanwhile drops the check and leaves nothing behind."""
        before = len(self.server.context.broker.deadlines)
        peer = self.server.connect().say(self.conversation())
        peer.leave()
        self.assertEqual((self.admission.dropped, self.admission.waiting), (1, 0))
        self.assertEqual(len(self.server.context.broker.deadlines), before)
        self.assertEqual(self.server.counts("not let in"), {"not let in: connection lost": 1})

    def test_inputEnded(self) -> None:
        """Who ends its input meanwhile still gets its answers; then the connection closes."""
        peer = self.server.connect().say(self.conversation()).endInput()
        self.assertFalse(peer.closed)
        self.decide()
        self.assertEqual([each.kind for each in peer.messages()], ["REP", "REP", "PUB", "PUB", "PONG"])
        self.assertTrue(peer.closed)

    def test_deadline(self) -> None:
        """The handshake's deadline counts meanwhile as well; what is decided later changes nothing."""
        peer = self.server.connect().tell("JOIN", GOOD)
        self.clock.advance(9.9)
        self.assertFalse(peer.closed)
        self.clock.advance(0.2)
        self.assertEqual((peer.closed, peer.heard(), self.admission.dropped), (True, b"", 1))
        self.assertEqual(len(self.server.broker.clients), 0)

    def test_stopped(self) -> None:
        """A broker that stops meanwhile closes the connection."""
        peer = self.server.connect().tell("JOIN", GOOD)
        peer.protocol.session.end("broker stopped")
        self.assertEqual((peer.closed, self.admission.waiting), (True, 0))


class ExpiryTests(AuthCase):
    """Credentials that end."""

    def test_expires(self) -> None:
        """When they do, the client gets 401 from the broker, and the connection closes."""
        self.admission.known[Token("good")] = Principal("alice", expires=50.0)
        peer = self.server.join(GOOD)
        self.clock.advance(49)
        self.assertFalse(peer.closed)
        self.clock.pump([1, 0])
        [heard] = [each for each in peer.messages() if each.kind == "REP"]
        self.assertError(heard, peer, 401)
        self.assertTrue(peer.closed)

    def test_left(self) -> None:
        """A client that has left is not waited for."""
        before = len(self.server.context.broker.deadlines)
        self.admission.known[Token("good")] = Principal("alice", expires=50.0)
        self.server.join(GOOD).leave()
        self.clock.advance(0)
        self.assertEqual(len(self.server.context.broker.deadlines), before)


class WebSocketTests(ConversationCase):
    """FlexiMQ over WebSocket, where the request may have said who it is."""

    def setUp(self) -> None:
        """Begin with an admission that decides at once."""
        super().setUp()
        self.admission = FakeAdmission({Token("good"): ALICE})
        self.context = makeContext(self.clock, admission=self.admission)
        self.factory = FlexiWebSocketFactory(self.context)

    def arrive(self, admitted: Admitted | None = None) -> FlexiWebSocketPeer:
        """Return a client whose request said who it is."""
        self.factory.protocolClass.admitted, before = admitted, self.factory.protocolClass.admitted
        self.addCleanup(setattr, self.factory.protocolClass, "admitted", before)
        peer = FlexiWebSocketPeer(self.factory, piece=self.piece)
        self.factory.protocolClass.admitted = before
        peer.upgrade()
        return peer

    def test_byRequest(self) -> None:
        """Its JOIN need not show anything, and nobody is asked again."""
        self.arrive(Admitted(ALICE, self.admission.rights)).join()
        self.assertEqual([client.principal for client in self.context.broker.clients], ["alice"])
        self.assertEqual(self.admission.asked, [])

    def test_both(self) -> None:
        """What a JOIN shows counts."""
        self.assertRefused(self.arrive(Admitted(ALICE, self.admission.rights)).tell("JOIN", BAD))

    def test_revoked(self) -> None:
        """Who was known at the request, and is no more at the JOIN, is not let in."""
        self.assertRefused(self.arrive(Admitted(Principal("bob"), self.admission.rights)).tell("JOIN"))

    def test_expiredMeanwhile(self) -> None:
        """Credentials that have expired between the request and the JOIN let nobody in, and nothing behind it."""
        alice = Principal("alice", expires=5.0)
        self.admission.known = {Token("good"): alice}
        peer = self.arrive(Admitted(alice, self.admission.rights))
        self.clock.advance(5)
        self.assertRefused(peer.tell("JOIN"))

    def test_neither(self) -> None:
        """Who showed nothing at all gets 401."""
        self.assertRefused(self.arrive().tell("JOIN"))

    def assertRefused(self, peer: FlexiWebSocketPeer) -> None:
        """Check that a peer hears 401 and nothing else, and that nobody came in."""
        [heard] = cut(b"".join(each.payload for each in peer.frames() if each.opcode == BINARY))
        self.assertEqual((heard.sender, heard.status), (0, 401))
        self.assertEqual(len(self.context.broker.clients), 0)

    def test_later(self) -> None:
        """What stands behind a JOIN that is decided later is kept, cut wherever it may be."""
        self.admission.later = True
        news = {"topic": "news"}
        said = (
            masked(BINARY, frame("JOIN", 0, GOOD) + frame("SUB", 1000, news))
            + masked(BINARY, frame("PUB", 1000, news, b"\x01"))
            + masked(BINARY, frame("PUB", 1000, news, b"\x02" + bytes(70_000)))
            + masked(BINARY, frame("PUB", 1000, news, b"\x03"), fin=False)
            + masked(0, b"")
        )
        for place in (*range(len(frame("JOIN", 0, GOOD)) + 6, 400, 3), 50_000, len(said)):
            self.context = makeContext(self.clock, admission=self.admission)
            self.factory = FlexiWebSocketFactory(self.context)
            peer = self.arrive()
            peer.say(said[:place])
            self.assertEqual((peer.heard(), peer.paused), (b"", True), place)
            self.admission.decide()
            self.clock.advance(0)
            peer.say(said[place:])
            self.assertEqual(
                [(each.kind, each.payload[:1]) for each in peer.messages()],
                [("REP", b""), ("PUB", b"\1"), ("PUB", b"\2"), ("PUB", b"\3")],
                place,
            )
            self.assertFalse(peer.paused)

    def test_laterRefused(self) -> None:
        """A JOIN that is refused later ends with its answer and a close frame; the rest is not done."""
        self.admission.later = True
        peer = self.arrive()
        peer.say(masked(BINARY, frame("JOIN", 0, BAD)) + masked(BINARY, frame("PUB", 1000, {"topic": "news"})))
        self.admission.decide()
        self.clock.advance(0)
        self.assertEqual(peer.closeCode(), 1008)
        self.assertFalse(peer.paused)
        self.assertIsNone(self.context.broker.topics.find("news"))

    def test_laterEnded(self) -> None:
        """A client that ends its input meanwhile gets its answer."""
        self.admission.later = True
        peer = self.arrive()
        peer.say(masked(BINARY, frame("JOIN", 0, GOOD)))
        peer.endInput()
        self.assertFalse(peer.closed)
        self.admission.decide()
        self.clock.advance(0)
        self.assertIn(BINARY, [each.opcode for each in peer.frames()])
        self.assertTrue(peer.closed)
