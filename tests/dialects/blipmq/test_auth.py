"""AUTH in BlipMQ: keys, certificates, another try, and what happens while a key is looked into."""

from typing import Any

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.blipmq.session import ownerOf
from fleximq.errors import AuthenticationFailed, JoinRejected, NoCapacity
from fleximq.rights import EVERYTHING
from fleximq.security.credentials import ApiKey, Certificate
from fleximq.security.principal import Admitted, Principal
from tests.dialects.admissions import FakeAdmission
from tests.dialects.blipmq.case import BlipCase, ack, auth, hello, nack, ping, poll, pong, publish, subscribe
from tests.dialects.conversations import Peer, makeContext

ALICE = Principal("alice")
WRONG = "invalid API key"


class AuthCase(BlipCase):
    """A listener where ``good`` is alice's key."""

    def listen(self, **settings: Any) -> None:
        """Open it."""
        self.admission = FakeAdmission({ApiKey("good"): ALICE})
        self.context = makeContext(self.clock, admission=self.admission, **settings)
        self.factory = BlipFactory(self.context)

    def greeted(self) -> Peer:
        """Return a peer that has said HELLO."""
        peer = self.connect(self.factory)
        self.assertEqual(peer.ask(hello()), ack(1))
        return peer

    def decide(self, peer: Peer) -> bytes:
        """Decide on the oldest AUTH, and return what is heard of that."""
        self.admission.decide()
        self.clock.advance(0)
        return peer.heard()


class KeyTests(AuthCase):
    """Right and wrong keys."""

    def test_right(self) -> None:
        """The client is whom the key belongs to."""
        self.assertEqual(self.greeted().ask(auth(2, "good") + ping(3)), ack(2) + pong(3))
        self.assertEqual([client.principal for client in self.context.broker.clients], ["alice"])

    def test_wrong(self) -> None:
        """401 in the document's words; the connection stays open and may try again, as often as it takes."""
        peer = self.greeted()
        for correlation in range(2, 7):
            self.assertEqual(peer.ask(auth(correlation, "bad")), nack(correlation, 401, WRONG))
        self.assertEqual(peer.ask(ping(8) + auth(9, "good")), nack(8, 401, "unauthenticated") + ack(9))

    def test_otherErrors(self) -> None:
        """No keys are checked here: 401; they cannot be checked now: 500; in both cases it may try again."""
        peer = self.greeted()
        for error, code, words in ((AuthenticationFailed("x"), 401, WRONG), (NoCapacity("busy"), 500, "busy")):
            self.admission.known[ApiKey("bad")] = error
            self.assertEqual(peer.ask(auth(2, "bad")), nack(2, code, words))
        self.assertEqual(peer.ask(auth(3, "good")), ack(3))

    def test_policy(self) -> None:
        """Whom policy keeps out is told so, and the connection closes."""
        self.admission.known[ApiKey("good")] = JoinRejected("not today")
        peer = self.greeted()
        self.assertEqual((peer.ask(auth(2, "good")), peer.closed), (nack(2, 401, "not today"), True))

    def test_empty(self) -> None:
        """An empty key shows nothing."""
        self.assertEqual(self.greeted().ask(auth(2, "")), nack(2, 401, WRONG))
        self.admission.known[None] = None
        self.assertEqual(self.greeted().ask(auth(2, "")), ack(2))
        self.assertEqual(self.admission.asked, [None, None])

    def test_certificate(self) -> None:
        """A certificate counts with an empty key, and where nothing checks keys; a wrong key stays wrong."""
        shown = Certificate("bob's")
        self.admission.known |= {shown: Principal("bob"), ApiKey("any"): AuthenticationFailed("no keys here")}
        for key, answer, asked in (
            ("", ack(2), [shown]),
            ("good", ack(2), [ApiKey("good")]),
            ("any", ack(2), [ApiKey("any"), shown]),
            ("bad", nack(2, 401, WRONG), [ApiKey("bad")]),
        ):
            peer = self.greeted()
            peer.protocol.session.certificate = lambda: shown
            self.assertEqual(peer.ask(auth(2, key)), answer, key)
            self.assertEqual(self.admission.asked, asked)
            self.admission.asked.clear()

    def test_owner(self) -> None:
        """Subscriptions belong to the principal, whichever of its keys it shows; nobody's, to the key."""
        self.admission.known |= {ApiKey("other"): ALICE, ApiKey("bob's"): Principal("bob")}
        first, second, bob = (self.greeted() for _ in range(3))
        for peer, key in ((first, "good"), (second, "other"), (bob, "bob's")):
            peer.ask(auth(2, key))
        id = self.subscribed(first, "news", 0)
        first.ask(publish("news", b"x", 0))
        self.assertEqual(bob.ask(poll(id, 7)), nack(7, 404, "unknown subscription or delivery tag"))
        self.assertEqual(second.ask(poll(id, 7)), publish("news", b"x", 0, 7))

    def test_ownersDiffer(self) -> None:
        """No key can be that of a principal."""
        owner = ownerOf(Admitted(ALICE, EVERYTHING), "k")
        self.assertEqual(owner, "principal:alice")
        self.assertNotIn(owner, (ownerOf(Admitted(None, EVERYTHING), key) for key in ("alice", owner, "k")))


class LaterTests(AuthCase):
    """Keys whose check takes its time."""

    def setUp(self) -> None:
        """Decide later."""
        super().setUp()
        self.admission.later = True

    def test_waits(self) -> None:
        """Nothing is answered and nothing more is read until then."""
        peer = self.greeted()
        self.assertEqual((peer.ask(auth(2, "good")), peer.paused), (b"", True))
        self.assertEqual((self.decide(peer), peer.paused), (ack(2), False))

    def test_inOrder(self) -> None:
        """What was said behind AUTH is done in its order, wherever it was cut."""
        said = auth(2, "good") + subscribe("news", 0, 3) + publish("news", b"x", 0, 4) + poll(1, 5) + ping(6)
        wanted = ack(2) + ack(3, 1) + publish("news", b"x", 0, 5) + pong(6)
        for place in range(len(auth(2, "good")), len(said) + 1):
            self.listen()
            self.admission.later = True
            peer = self.greeted()
            self.assertEqual(peer.ask(said[:place]), b"", place)
            self.assertEqual(self.decide(peer) + peer.ask(said[place:]), wanted, place)

    def test_oneAtATime(self) -> None:
        """One key is looked into at a time; the next AUTH waits for its answer."""
        peer = self.greeted()
        peer.say(auth(2, "bad") + ping(3) + auth(4, "bad") + auth(5, "good") + ping(6) + auth(7, "good"))
        self.assertEqual(self.admission.waiting, 1)
        self.assertEqual(self.decide(peer), nack(2, 401, WRONG) + nack(3, 401, "unauthenticated"))
        self.assertEqual((self.admission.waiting, peer.paused), (1, True))
        peer.say(ping(8))
        self.assertEqual(self.decide(peer), nack(4, 401, WRONG))
        self.assertEqual(self.decide(peer), ack(5) + pong(6) + nack(7, 400, "already authenticated") + pong(8))
        self.assertFalse(peer.paused)

    def test_inputEnded(self) -> None:
        """Who ends its input meanwhile still gets all answers, through any number of tries."""
        peer = self.greeted()
        peer.say(auth(2, "bad") + auth(3, "good") + ping(4)).endInput()
        self.assertEqual((self.decide(peer), peer.closed), (nack(2, 401, WRONG), False))
        self.assertEqual((self.decide(peer), peer.closed), (ack(3) + pong(4), True))

    def test_certificate(self) -> None:
        """Asking a second time, about the certificate, waits as well."""
        shown = Certificate("bob's")
        self.admission.known |= {shown: Principal("bob"), ApiKey("any"): AuthenticationFailed("no keys here")}
        peer = self.greeted()
        peer.protocol.session.certificate = lambda: shown
        peer.say(auth(2, "any") + ping(3))
        self.assertEqual((self.decide(peer), peer.paused), (b"", True))
        self.assertEqual((self.decide(peer), peer.paused), (ack(2) + pong(3), False))

    def test_lost(self) -> None:
        """A connection that is lost drops the check."""
        peer = self.greeted().say(auth(2, "good") + ping(3))
        peer.leave()
        self.assertEqual((self.admission.dropped, self.admission.waiting), (1, 0))

    def test_deadline(self) -> None:
        """The handshake's deadline counts meanwhile."""
        peer = self.greeted().say(auth(2, "good"))
        self.clock.advance(10)
        self.assertEqual((peer.closed, peer.heard(), len(self.context.broker.clients)), (True, b"", 0))


class ExpiryTests(AuthCase):
    """Keys that end."""

    def test_expires(self) -> None:
        """The client is told so by a NACK that answers nothing, and the connection closes."""
        self.admission.known[ApiKey("good")] = Principal("alice", expires=50.0)
        peer = self.greeted()
        peer.ask(auth(2, "good"))
        self.clock.pump([50, 0])
        self.assertEqual((peer.heard(), peer.closed), (nack(0, 401, "the credentials have expired"), True))
