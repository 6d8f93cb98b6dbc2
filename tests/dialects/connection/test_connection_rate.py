"""Clients that are kept to their rates, in every dialect."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.rate_options import Rate
from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.connection.connection_rate import MIN_READ_BYTES, PAUSED, maxReadBytes
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.dialects.identity_ws import IdentityFactory
from fleximq.dialects.minimq import MiniFactory
from fleximq.security.peer_address import clientKey
from fleximq.security.rates.client_rates import Allowance, RateRules, Rates
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.wire.blipmq_frame import FrameType, encodeFrame
from tests.dialects.blipmq import case as blipmq
from tests.dialects.conversations import ConversationCase, Peer, makeContext
from tests.dialects.flexi_peer import FlexiPeer
from tests.dialects.websocket.test_inflation import deflated
from tests.dialects.websocket_peer import DEFLATE, TEXT, WebSocketPeer, masked, text
from tests.wire.flexi_frames import frame

TOO_MUCH = "too much at once: the rate is limited here"


class PaceCase(ConversationCase):
    """A broker with rates."""

    def limited(self, factory: Any, *client: Rate | None, refuses: bool = False, **more: Any) -> Factory:
        """Return a factory whose clients have these rates: of messages, bytes and subscriptions."""
        self.context: ListenerContext = makeContext(self.clock, **more)
        rates = Rates(RateRules(Allowance(*client), refuses=refuses), self.clock.seconds)
        self.context = replace(self.context, rates=rates)
        made: Factory = factory(self.context)
        return made

    def count(self, name: str) -> int:
        """Return how often something was counted."""
        return self.context.broker.counts.events.get(name, 0)


class PauseTests(PaceCase):
    """Ten a second, ten at once: who sends more is not read for a while."""

    rate = Rate(10, 10)

    def flexi(self, *client: Rate | None, **more: Any) -> FlexiPeer:
        """Return a FlexiMQ peer that has joined, after a second."""
        peer = FlexiPeer(self.limited(FlexiFactory, *client, **more)).join()
        self.clock.advance(1)
        return peer

    def test_below(self) -> None:
        """Who stays within its rate is not stopped."""
        peer = self.flexi(self.rate)
        for _ in range(30):
            peer.publish("t", "x")
            self.assertFalse(peer.paused)
            self.clock.advance(0.1)
        self.assertEqual(self.count(PAUSED), 0)

    def test_at(self) -> None:
        """As many as may come at once may come at once; with one more it is stopped until that is made good."""
        peer = self.flexi(self.rate)
        peer.say(b"".join(frame("PUB", peer.id, {"topic": "t"}, b"\xc0") for _ in range(10)))
        self.assertFalse(peer.paused)
        peer.publish("t", None)
        self.assertTrue(peer.paused)
        self.clock.advance(0.09)
        self.assertTrue(peer.paused)
        self.clock.advance(0.02)
        self.assertFalse(peer.paused)
        self.assertEqual(self.count(PAUSED), 1)

    def test_nothingLost(self) -> None:
        """All that was read is worked through, and what is said later too."""
        peer = self.flexi(self.rate)
        peer.tell("SUB", {"topic": "t"})
        peer.say(b"".join(frame("PUB", peer.id, {"topic": "t"}, bytes([n])) for n in range(100)))
        self.assertTrue(peer.paused)
        self.clock.advance(10)
        self.assertFalse(peer.paused)
        peer.publish("t", 100)
        self.assertEqual(peer.values(), list(range(101)))

    def test_runs(self) -> None:
        """A run counts the messages in it."""
        peer = self.flexi(self.rate)
        run = frame("PUB", peer.id, {"topic": "t"}, b"\xc0")
        peer.say(run)
        peer.say(run * 100)
        self.clock.advance(9)
        self.assertTrue(peer.paused)
        self.clock.advance(0.2)
        self.assertFalse(peer.paused)

    def test_bytes(self) -> None:
        """Bytes count as they are read, whole messages or not."""
        peer = self.flexi(None, Rate(1000, 1000))
        peer.say(frame("PUB", peer.id, {"topic": "t"}, bytes(10_000))[:3000])
        self.assertTrue(peer.paused)
        self.clock.advance(2.1)
        self.assertFalse(peer.paused)

    def test_subscriptions(self) -> None:
        """Subscriptions count by themselves."""
        peer = self.flexi(None, None, Rate(1, 2))
        for number in range(3):
            self.assertFalse(peer.paused)
            peer.tell("SUB", {"topic": f"t{number}"})
        self.assertTrue(peer.paused)
        self.assertEqual(len(self.context.broker.clients.find(peer.id).subscriptions), 3)  # type: ignore[union-attr]

    def test_silenceStands(self) -> None:
        """While it is not read, a client is not silent."""
        peer = self.flexi(None, Rate(10, 10), keepalive=5.0)
        peer.say(frame("PUB", peer.id, {"topic": "t"}, bytes(1000)))
        self.clock.pump([1.0] * 60)
        self.assertTrue(peer.paused)
        self.assertFalse(peer.closed)

    def test_gone(self) -> None:
        """When a stopped client goes, nothing is left of it."""
        peer = self.flexi(self.rate)
        peer.say(frame("PUB", peer.id, {"topic": "t"}, b"\xc0") * 100)
        peer.leave()
        self.assertEqual(len(self.context.broker.deadlines), 0)

    def test_principal(self) -> None:
        """All clients of a principal are stopped by what they send together."""
        self.limited(FlexiFactory)
        self.context.rates.change(RateRules(principal=Allowance(self.rate)))
        first, second = (self.context.rates.meter("anna") for _ in range(2))
        assert first is not None and second is not None
        first.spend(15, 0)
        second.spend(15, 0)
        self.assertEqual((first.wait(), second.wait()), (2.0, 2.0))

    def test_others(self) -> None:
        """BlipMQ, MiniMQ, Identity and FlexiMQ over WebSocket are stopped as well."""
        peers: dict[str, tuple[Peer, bytes]] = {
            "blipmq": (Peer(self.limited(BlipFactory, self.rate)).say(blipmq.hello() + blipmq.auth()), blipmq.ping(1)),
            "minimq": (Peer(self.limited(MiniFactory, self.rate)).say(b"PING:\n"), b"PING:\n"),
            "identity": (WebSocketPeer(self.limited(IdentityFactory, self.rate)).upgrade(), text("UNSUBSCRIBE:x")),
            "fleximq": (
                WebSocketPeer(self.limited(FlexiWebSocketFactory, self.rate)).upgrade(masked(2, frame("JOIN"))),
                masked(2, frame("PING", 1000, {"keepalive": {"timestamp": 1}})),
            ),
        }
        for name, (peer, message) in peers.items():
            self.assertFalse(peer.paused, name)
            peer.say(message * 30)
            self.assertTrue(peer.paused, name)
        self.clock.advance(2.5)
        for name, (peer, _) in peers.items():
            self.assertFalse(peer.paused, name)

    def test_inflated(self) -> None:
        """The bytes of a compressed message count as inflated."""
        factory = self.limited(IdentityFactory, None, Rate(10_000, 10_000))
        peer = WebSocketPeer(factory).upgrade(Sec_WebSocket_Extensions=DEFLATE)
        self.clock.advance(1)
        for paused in (False, True):
            peer.say(masked(TEXT, deflated(b"PUBLISH:t:" + bytes(5990)), rsv=4))
            self.assertEqual(peer.paused, paused)
        self.clock.advance(1)
        self.assertFalse(peer.paused)


class RefuseTests(PaceCase):
    """Five at once, refused beyond."""

    rate = Rate(1, 5)

    def test_fleximq(self) -> None:
        """REP 429, for messages that may be refused; PING and UNSUB are done all the same."""
        peer = FlexiPeer(self.limited(FlexiFactory, self.rate, refuses=True)).join()
        self.clock.advance(10)
        peer.tell("SUB", {"topic": "t"})
        run = b"".join(frame("PUB", peer.id, {"topic": "t"}, bytes([n])) for n in range(10))
        peer.say(run)
        heard = peer.messages()
        self.assertEqual([each.value for each in heard if each.kind == "PUB"], [0, 1, 2, 3])
        refused = [each for each in heard if each.kind == "REP"]
        self.assertEqual([(each.header["status"], each.value) for each in refused], [(429, TOO_MUCH)] * 6)
        peer.tell("REQ", {"routing": [{"client_id": 1, "path": "/x"}], "reqrep": {"type": "request", "id": "q"}})
        [answer] = peer.messages()
        self.assertEqual((answer.header["status"], answer.header["reqrep"]["id"]), (429, "q"))
        peer.tell("UNSUB", {"topic": "t"})
        self.assertEqual(peer.barrier(), [])
        self.assertFalse(peer.paused)

    def test_recovers(self) -> None:
        """What is refused is not charged: after a second there is room for one more."""
        peer = FlexiPeer(self.limited(FlexiFactory, self.rate, refuses=True)).join()
        for _ in range(20):
            peer.publish("t", "x")
        peer.messages()
        self.clock.advance(1)
        peer.publish("t", "x")
        peer.publish("t", "x")
        self.assertEqual([each.header["status"] for each in peer.messages()], [429])

    def test_subscriptions(self) -> None:
        """A subscription over the rate is refused and not made."""
        peer = FlexiPeer(self.limited(FlexiFactory, None, None, Rate(1, 1), refuses=True)).join()
        peer.tell("SUB", {"topic": "a"})
        peer.tell("SUB", {"topic": "b"})
        self.assertEqual([each.header["status"] for each in peer.messages()], [429])
        self.assertEqual(list(self.context.broker.clients.find(peer.id).subscriptions), ["a"])  # type: ignore[union-attr]

    def test_blipmq(self) -> None:
        """NACK 429 for each; an ACK is taken all the same."""
        peer = Peer(self.limited(BlipFactory, self.rate, refuses=True))
        peer.ask(blipmq.hello() + blipmq.auth())
        self.clock.advance(10)
        peer.ask(blipmq.subscribe("t"))
        asked = b"".join(blipmq.publish("t", b"x", correlation=n) for n in range(10, 16))
        self.assertEqual(peer.ask(asked), blipmq.nack(14, 429, TOO_MUCH) + blipmq.nack(15, 429, TOO_MUCH))
        self.assertEqual(peer.ask(blipmq.poll(1, 50)), blipmq.nack(50, 429, TOO_MUCH))
        self.clock.advance(1)
        self.assertEqual(peer.ask(blipmq.poll(1, 51))[:5], blipmq.publish("t", b"x", correlation=51)[:5])
        self.assertEqual(peer.ask(encodeFrame(FrameType.ACK, 1, (1).to_bytes(8, "big"))), b"")
        self.assertEqual(peer.ask(blipmq.ping(60)), blipmq.pong(60))

    def test_blipmqSubscribe(self) -> None:
        """A SUBSCRIBE over its rate gets NACK 429."""
        peer = Peer(self.limited(BlipFactory, None, None, Rate(1, 1), refuses=True))
        peer.ask(blipmq.hello() + blipmq.auth())
        peer.ask(blipmq.subscribe("t", correlation=7))
        self.assertEqual(peer.ask(blipmq.subscribe("t", correlation=8)), blipmq.nack(8, 429, TOO_MUCH))

    def test_minimq(self) -> None:
        """ERROR:429 in place of the answer, in the order of the commands; ACK stays silent."""
        peer = Peer(self.limited(MiniFactory, self.rate, refuses=True))
        self.assertEqual(peer.ask(b"PING:\n"), b"PONG:\n")
        produces = b"".join(b"PRODUCE:id%d:::t:::x:::-:::-\n" % n for n in range(7))
        error = b"ERROR:429:" + TOO_MUCH.encode() + b"\n"
        self.assertEqual(peer.ask(produces + b"PING:\n"), b"id0\nid1\nid2\nid3\nid4\n" + error * 2 + b"PONG:\n")
        self.assertEqual(peer.ask(b"CONSUME:t\nACK:id0\n"), error)

    def test_identity(self) -> None:
        """ERROR:429, and the connection lives on."""
        peer = WebSocketPeer(self.limited(IdentityFactory, self.rate, refuses=True)).upgrade()
        peer.texts()
        peer.askText("SUBSCRIBE:c")
        said = peer.askText(*(f"PUBLISH:c:{n}" for n in range(6)))
        self.assertEqual([each for each in said if each.startswith("ERROR")], [f"ERROR:429:{TOO_MUCH}"] * 2)
        self.assertEqual(len(said), 6)
        self.assertEqual(peer.askText("UNSUBSCRIBE:c"), ["UNSUB-ACK:c"])

    def test_bytes(self) -> None:
        """With a rate of bytes, a message is refused while there is a debt."""
        peer = FlexiPeer(self.limited(FlexiFactory, None, Rate(100, 100), refuses=True)).join()
        self.clock.advance(2)
        peer.publish("t", "x" * 1000)
        peer.publish("t", "x")
        self.assertEqual([each.header["status"] for each in peer.messages()], [429])
        self.clock.advance(12)
        peer.publish("t", "x")
        self.assertEqual(peer.messages(), [])


class FlappingTests(PaceCase):
    """Who leaves is told to those who watch."""

    def seen(self, factory: Any, peer: Any, lived: float = 1.0) -> float:
        """Let a client of a factory leave; return for how long it would have to stay away."""
        flapping = FlappingLimit(1, 300.0, self.clock.seconds)
        self.context = replace(makeContext(self.clock), flapping=flapping)
        came = peer(factory(self.context))
        client = next(iter(self.context.broker.clients), SimpleNamespace(principal="anna"))
        client.principal = "anna"
        self.clock.advance(lived)
        came.leave()
        return flapping.waits(clientKey("anna", None))

    def test_left(self) -> None:
        """A client that leaves soon is counted, by its principal."""
        self.assertEqual(self.seen(FlexiFactory, lambda factory: FlexiPeer(factory).join()), 300)
        self.assertEqual(self.seen(IdentityFactory, lambda factory: WebSocketPeer(factory).upgrade()), 300)

    def test_late(self) -> None:
        """One that leaves after a minute is not."""
        self.assertEqual(self.seen(FlexiFactory, lambda factory: FlexiPeer(factory).join(), 60.0), 0)

    def test_notLetIn(self) -> None:
        """One that was not let in is not."""
        self.assertEqual(self.seen(FlexiFactory, FlexiPeer), 0)

    def test_minimq(self) -> None:
        """MiniMQ clients are not: their document has a connection for each command."""
        self.assertEqual(self.seen(MiniFactory, lambda factory: Peer(factory).say(b"PING:\n")), 0)


class ReadMostTests(SynchronousTestCase):
    """Reads are made small where a burst is."""

    def most(self, *client: Rate | None) -> int:
        """Return how much may be read at once."""
        return maxReadBytes(RateRules(Allowance(*client)), 1 << 20)

    def test_without(self) -> None:
        """Without rates of messages or bytes there is no bound."""
        self.assertEqual([self.most(), self.most(None, None, Rate(1, 1))], [1 << 20] * 2)

    def test_small(self) -> None:
        """The smallest of all bursts counts, and no read is smaller than the least."""
        self.assertEqual(self.most(Rate(1, 100), Rate(1, 5000)), 5000)
        self.assertEqual(self.most(Rate(1, 100)), 6400)
        self.assertEqual(self.most(Rate(1, 1)), MIN_READ_BYTES)
        rules = RateRules(Allowance(bytes=Rate(1, 9000)), Allowance(bytes=Rate(1, 8000)))
        self.assertEqual([maxReadBytes(rules, most) for most in (1 << 20, 7000)], [8000, 7000])
