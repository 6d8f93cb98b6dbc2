"""What each dialect says to clients that may not do everything, and when that changes."""

from typing import Any

from fleximq.errors import Unauthorized
from fleximq.rights import EVERYTHING
from fleximq.security.permissions import Rights
from tests.dialects.blipmq.case import BlipCase, ack, nack, ping, poll, pong, publish, subscribe
from tests.dialects.conversations import Peer
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.dialects.minimq.case import MiniCase
from tests.dialects.test_identity_ws import IdentityCase
from tests.slow_journal import SlowJournal

DENIED = "not permitted"


def allow(peer: Peer, **grants: tuple[str, ...]) -> None:
    """Let a client do this, and nothing else any more."""
    session = peer.protocol.session
    session.broker.changeRights(session.client, Rights(grants))


class FlexiRightsTests(FlexiCase):
    """FlexiMQ: 403, and 603 for subscriptions."""

    def setUp(self) -> None:
        """Alice may do everything, Bob what is said."""
        super().setUp()
        self.meet()

    def meet(self, **more: Any) -> None:
        """Begin anew."""
        self.server = self.makeServer(**more)
        self.alice, self.bob = self.server.join(), self.server.join()

    def settle(self) -> None:
        """Let everything happen that waits for the reactor."""
        for _ in range(20):
            self.clock.advance(0)

    def assertDenied(self, peer: FlexiPeer, status: int = 403, id: str | None = None, path: str = "") -> None:
        """See that the only answer is this error."""
        [heard] = peer.barrier()
        self.assertError(heard, peer, status, id, path)
        self.assertIn(DENIED, heard.value)

    def test_publish(self) -> None:
        """A publication is refused, and the next one too; those that are permitted go on."""
        allow(self.bob, publish=("a",))
        self.alice.tell("SUB", {"topic": "#"})
        for _ in range(2):
            self.bob.publish("b", 1)
            self.assertDenied(self.bob)
        self.bob.publish("a", 2)
        self.assertEqual(self.bob.barrier(), [])
        self.assertEqual(self.alice.values(), [2])

    def test_publishLost(self) -> None:
        """What was permitted a moment ago is known no more: neither a run, nor one publication, nor for one client."""
        self.alice.tell("SUB", {"topic": "a"})
        for _ in range(3):
            self.bob.publish("a", 1)
        allow(self.bob)
        self.bob.publish("a", 2)
        self.assertDenied(self.bob)
        self.bob.tell("PUB", {"topic": "a", "routing": [{"client_id": self.alice.id}]})
        self.assertDenied(self.bob)
        self.assertEqual(self.alice.values(), [1, 1, 1])
        self.server.broker.changeRights(self.bob.protocol.session.client, EVERYTHING)
        self.bob.publish("a", 3)
        self.assertEqual((self.bob.barrier(), self.alice.values()), ([], [3]))

    def test_publishManyTopics(self) -> None:
        """Who uses more topics than are remembered is refused the others, too."""
        self.alice.tell("SUB", {"topic": "#"}).tell("SUB", {"topic": "b"})
        self.alice.publish("b", 1)
        allow(self.bob, publish=("t.*",))
        for number in range(5000):
            self.bob.publish(f"t.{number}", number)
        self.assertEqual(len(self.alice.messages()), 5001)
        self.bob.publish("b", 2)
        self.assertDenied(self.bob)

    def test_subscribe(self) -> None:
        """A subscription that could bring nothing is none."""
        allow(self.bob, subscribe=("a.*",))
        for topic in ("b", "b.#", "$sys/#"):
            self.bob.tell("SUB", {"topic": topic})
            self.assertDenied(self.bob, 603)
        self.bob.tell("SUB", {"topic": "#"})
        self.assertEqual(self.bob.barrier(), [])
        for topic in ("a", "a.b", "b"):
            self.alice.publish(topic, topic)
        self.assertEqual(self.bob.values(), ["a.b"])

    def test_subscriptionsLost(self) -> None:
        """Each is named; the others stay, those that take verbatim runs too."""
        for topic in ("a", "b.*", "c", "#"):
            self.bob.tell("SUB", {"topic": topic})
        self.alice.publish("a", 1)
        self.assertEqual(self.bob.values(), [1])
        allow(self.bob, subscribe=("c",))
        self.settle()
        heard = self.bob.messages()
        for each, topic in zip(heard, ("a", "b.*"), strict=True):
            self.assertError(each, self.bob, 603, path=topic)
        for topic in ("a", "b.x", "c"):
            self.alice.publish(topic, topic)
        self.assertEqual(self.bob.values(), ["c"])

    def test_follow(self) -> None:
        """What the journal has is for those who may have it."""
        journal = SlowJournal()
        self.meet(journal=journal, durable=("d.#",))
        for topic in ("d.a", "d.b"):
            self.alice.publish(topic, topic)
        journal.commit()
        allow(self.bob, subscribe=("d.a",))
        self.bob.tell("SUB", {"topic": "d.b", "from": "first"})
        self.assertDenied(self.bob, 603)
        self.bob.tell("SUB", {"topic": "d.*", "from": "first"})
        self.settle()
        self.assertEqual(self.bob.values(), ["d.a"])

    def test_request(self) -> None:
        """By path; a header that is known counts no more when the rights have changed."""
        allow(self.bob, request=("time/#",))
        self.request("1", "/time/now")
        self.request("2", "/time/now")
        self.assertEqual([each.kind for each in self.alice.messages()], ["REQ", "REQ"])
        self.request("3", "/date")
        self.assertDenied(self.bob, 403, "3", "/date")
        allow(self.bob)
        self.request("4", "/time/now")
        self.assertDenied(self.bob, 403, "4", "/time/now")
        self.assertEqual(self.alice.messages(), [])

    def request(self, id: str, path: str, target: int | None = None) -> None:
        """Let Bob ask."""
        routing = [{"client_id": target or self.alice.id, "path": path}]
        self.bob.tell("REQ", {"routing": routing, "reqrep": {"type": "request", "id": id}})

    def test_broker(self) -> None:
        """The broker's own paths are read or not."""
        allow(self.bob, read=("broker/about",), request=("#",))
        self.request("1", "/broker/about", 1)
        self.assertEqual([each.header["status"] for each in self.bob.messages()], [200])
        self.request("2", "/broker/clients", 1)
        self.assertDenied(self.bob, 403, "2", "/broker/clients")

    def test_notify(self) -> None:
        """By path, all of them; an entry with the broker's id needs no right."""
        allow(self.bob, notify=("a",))
        routing = [{"client_id": self.alice.id, "path": path} for path in ("/a", "/b")]
        self.bob.tell("NOTIF", {"routing": [routing[0], {"client_id": 1, "path": "/secret"}]})
        self.assertEqual(self.bob.barrier(), [])
        self.bob.tell("NOTIF", {"routing": routing})
        self.assertDenied(self.bob, path="/a")
        self.assertEqual([each.kind for each in self.alice.messages()], ["NOTIF"])

    def test_answer(self) -> None:
        """An answer needs no right where it is awaited."""
        allow(self.alice)
        self.request("1", "/p")
        self.alice.messages()
        routing = [{"client_id": self.bob.id, "path": "/p"}]
        answer = {"routing": routing, "status": 200, "reqrep": {"type": "correlation", "id": "1"}}
        for _ in range(2):
            self.alice.tell("REP", answer)
        self.assertDenied(self.alice, 403, "1", "/p")
        self.assertEqual([each.kind for each in self.bob.messages()], ["REP"])

    def test_expelled(self) -> None:
        """Who is expelled is brought nothing more, though the end waits for what is on its way to the disk."""
        journal = SlowJournal()
        self.meet(journal=journal, durable=("d.#",))
        self.bob.tell("SUB", {"topic": "a"})
        self.bob.publish("d.x", 1)
        session = self.bob.protocol.session
        session.expel(Unauthorized("no more"))
        self.alice.publish("a", 1)
        self.bob.publish("a", 2)
        self.settle()
        [heard] = self.bob.messages()
        self.assertError(heard, self.bob, 401)
        self.assertFalse(self.bob.closed)
        self.assertNotIn(session.client, list(self.server.broker.clients))
        journal.commit()
        self.settle()
        self.assertTrue(self.bob.closed)
        self.bob.leave()
        self.assertEqual(self.server.counts("left: "), {"left: error 401": 1})

    def test_broadcast(self) -> None:
        """A right of its own."""
        allow(self.bob, publish=("#",))
        self.bob.tell("BCAST", {})
        self.assertDenied(self.bob)
        self.assertEqual(self.alice.messages(), [])


class BlipRightsTests(BlipCase):
    """BlipMQ: NACK 401."""

    def setUp(self) -> None:
        """Somebody who may do everything, and another one."""
        super().setUp()
        self.alice, self.bob = self.login("alice"), self.login("bob")

    def test_publish(self) -> None:
        """Every frame is refused; what was known is forgotten."""
        self.bob.say(publish("a", b"1", 0))
        allow(self.bob, publish=("b",))
        said = publish("a", b"1", 0, 7) + publish("a", b"1", 1, 8) + publish("b", b"1", 1, 9) + ping(10)
        self.assertEqual(self.bob.ask(said), nack(7, 401, DENIED) + nack(8, 401, DENIED) + pong(10))

    def test_subscribe(self) -> None:
        """Names are literal."""
        allow(self.bob, subscribe=("a.#",))
        self.subscribed(self.bob, "a.b")
        for topic in ("b", "#"):
            self.assertEqual(self.bob.ask(subscribe(topic, 1, 5)), nack(5, 401, DENIED))

    def test_poll(self) -> None:
        """A subscription is silent while it is not permitted, and goes on when it is."""
        id = self.subscribed(self.bob, "a")
        self.alice.say(publish("a", b"1"))
        allow(self.bob)
        self.assertEqual(self.bob.ask(poll(id, 5) + ack(1, id)), nack(5, 401, DENIED) + nack(1, 401, DENIED))
        allow(self.bob, subscribe=("a",))
        self.assertEqual(self.bob.ask(poll(id, 6)), publish("a", b"1", 1, 1))
        self.assertEqual(self.bob.ask(ack(1, id) + poll(id, 7)), b"")


class MiniRightsTests(MiniCase):
    """MiniMQ: ERROR:403, and silence for an ACK."""

    DENIED = b"ERROR:403:not permitted\n"

    def setUp(self) -> None:
        """Somebody who may do everything, and another one."""
        super().setUp()
        self.meet()

    def meet(self, **settings: Any) -> None:
        """Begin anew."""
        self.listen(**settings)
        self.alice, self.bob = self.peer(), self.peer()
        for peer in (self.alice, self.bob):
            self.assertEqual(peer.ask(b"PING:\n"), b"PONG:\n")

    def test_produce(self) -> None:
        """What was known is forgotten; neighbours that are permitted go on, in order."""
        self.bob.ask(b"PRODUCE:1:::a:::x\n")
        allow(self.bob, publish=("b",))
        said = b"PRODUCE:2:::a:::x\nPRODUCE:3:::b:::x\nPRODUCE:4:::a:::x\n"
        self.assertEqual(self.bob.ask(said), self.DENIED + b"3\n" + self.DENIED)

    def test_consume(self) -> None:
        """One answer for each."""
        self.alice.ask(b"PRODUCE:1:::a:::x\nPRODUCE:2:::b:::x\n")
        allow(self.bob, consume=("b",))
        self.assertEqual(self.bob.ask(b"CONSUME:a\nCONSUME:a\nCONSUME:b\n"), self.DENIED * 2 + b"2:::b:::x::::::\n")

    def test_acknowledge(self) -> None:
        """Nothing is said, and nothing is done."""
        self.alice.ask(b"PRODUCE:1:::a:::x\nCONSUME:a\n")
        allow(self.bob, consume=("b",))
        self.assertEqual(self.bob.ask(b"ACK:1\nPING:\n"), b"PONG:\n")
        self.clock.advance(30)
        self.assertEqual(self.alice.ask(b"CONSUME:a\n"), b"1:::a:::x::::::\n")

    def test_wait(self) -> None:
        """Who waits for a message is told when it may no longer; what stands behind goes on."""
        self.meet(consumeWait=5.0)
        self.assertEqual(self.bob.ask(b"CONSUME:a\nPING:\n"), b"")
        allow(self.bob, consume=("a",))
        self.clock.advance(0)
        self.assertEqual(self.bob.heard(), b"")
        allow(self.bob)
        self.clock.advance(0)
        self.assertEqual(self.bob.heard(), self.DENIED + b"PONG:\n")
        self.alice.ask(b"PRODUCE:1:::a:::x\n")
        self.clock.advance(10)
        self.assertEqual(self.bob.heard(), b"")


class IdentityRightsTests(IdentityCase):
    """Identity: ERROR:403, and the channel."""

    def setUp(self) -> None:
        """Somebody who may do everything, and another one."""
        super().setUp()
        self.alice, self.bob = self.user(), self.user()

    def test_subscribe(self) -> None:
        """No channel comes into being; channels are never patterns."""
        allow(self.bob, subscribe=("a",))
        self.assertEqual(self.bob.askText("SUBSCRIBE:a"), ["SUB-ACK:a"])
        for channel in ("b", "#", "*"):
            self.assertEqual(self.bob.askText(f"SUBSCRIBE:{channel}"), [f"ERROR:403:not permitted: {channel}"])
        self.assertEqual(self.broker.topics.channels(), ["a"])

    def test_publish(self) -> None:
        """It takes more than a subscription; what was known is forgotten."""
        self.bob.askText("SUBSCRIBE:a")
        self.assertEqual(len(self.bob.askText("PUBLISH:a:x")), 1)
        allow(self.bob, subscribe=("a",))
        self.assertEqual(self.bob.askText("PUBLISH:a:x"), ["ERROR:403:not permitted: a"])
        self.assertEqual(self.bob.askText("PUBLISH:b:x"), ["ERROR:401:Not subscribed"])

    def test_lost(self) -> None:
        """A channel that is lost is named, and is a channel no more."""
        for channel in ("a", "b"):
            self.bob.askText(f"SUBSCRIBE:{channel}")
        allow(self.bob, subscribe=("b",), publish=("#",))
        self.clock.advance(0)
        self.assertEqual(self.bob.texts(), ["ERROR:403:not permitted any more: a"])
        self.assertEqual(self.bob.askText("PUBLISH:a:x"), ["ERROR:401:Not subscribed"])
        self.assertEqual(self.broker.topics.channels(), ["b"])
