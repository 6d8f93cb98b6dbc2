"""FlexiMQ connections before and at the JOIN (document 3.2, 4.1, 4.2, 5.2)."""

from typing import Any
from unittest.mock import patch

import msgpack
from twisted.internet.address import IPv4Address

from fleximq.limits import Limits
from fleximq.security.access_policy import AccessPolicy
from fleximq.values import nesting
from fleximq.wire import fleximq_array_header, fleximq_header
from tests.dialects.admissions import REFUSAL, REFUSING
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.wire.flexi_frames import NAMES, Heard, cut, frame
from tests.wire.test_flexi_rules import documented
from tests.wire.test_fleximq_header import smallest


class Counted:
    """msgpack, with a count of what is unpacked."""

    def __init__(self) -> None:
        self.packb = msgpack.packb
        self.count = 0

    def unpackb(self, *arguments: Any, **more: Any) -> Any:
        """Count, and unpack."""
        self.count += 1
        return msgpack.unpackb(*arguments, **more)


class ReadOnceTests(FlexiCase):
    """The header of a JOIN is read once, whatever becomes of it."""

    def test_once(self) -> None:
        """Accepted, refused for a field, for its keys and for its type; as a map and as an array."""
        for kind, header in [
            ("JOIN", {"auth": TOKEN}),
            ("JOIN", {"auth": {"type": "x"}, "reqrep": {"type": "request", "id": "1"}}),
            ("JOIN", {"topic": "t"}),
            ("JOIN", {1: 2}),
            ("JOIN", {("a",): 2}),
            ("JOIN", [None, None, None, None, ["token", "t"], None]),
            ("JOIN", [None, ["request", "1"], "t", None, None, None]),
            ("JOIN", [1, 2]),
            ("PUB", {"topic": "t"}),
        ]:
            counted = Counted()
            peer = self.server.connect()
            with (
                patch.object(nesting, "msgpack", counted),
                patch.object(fleximq_header, "msgpack", counted),
                patch.object(fleximq_array_header, "msgpack", counted),
            ):
                peer.ask(frame(kind, header=header))
            self.assertEqual(counted.count, 1, header)


TOKEN = {"type": "token", "token": "authentication-token"}


class AcceptedTests(FlexiCase):
    """A JOIN that lets a client in."""

    def test_answer(self) -> None:
        """REP with the new id, status 200 and nothing else: no routing, no reserved bits, no payload."""
        peer = self.server.connect()
        self.assertEqual(
            peer.ask(frame("JOIN")),
            b"\x01\x02\x00\x00\x03\xe8" + bytes(16) + b"\x00\x00\x00\x0a\x81\xa6status\xcc\xc8" + bytes(8),
        )
        self.assertFalse(peer.closed)

    def test_idsCountUp(self) -> None:
        """Ids begin at 1000 and count up, and those of the departed do not come again."""
        first, second = self.server.join(), self.server.join()
        first.leave()
        self.assertEqual([first.id, second.id, self.server.join().id], [1000, 1001, 1002])

    def test_emptyMap(self) -> None:
        """An empty map is as good as no header."""
        self.assertEqual(self.server.join({}).id, 1000)

    def test_credentials(self) -> None:
        """Well-formed credentials of each kind are accepted where nobody is asked for them."""
        for auth in (
            TOKEN,
            {"type": "basic", "username": "user123", "password": "securePassword!"},
            {"type": "api_key", "api_key": "abcdef1234567890zyxwvu"},
        ):
            self.server.join({"auth": auth})

    def test_reqrep(self) -> None:
        """A JOIN may carry reqrep; the answer is correlated."""
        peer = self.server.connect()
        [heard] = peer.tell("JOIN", {"reqrep": {"type": "request", "id": "J1"}}).messages()
        self.assertEqual(
            (heard.kind, heard.sender, heard.header),
            ("REP", 1000, {"status": 200, "reqrep": {"type": "correlation", "id": "J1"}}),
        )

    def test_unknownKeysAndPayload(self) -> None:
        """Unknown keys and a payload are ignored."""
        peer = self.server.connect()
        [heard] = peer.tell("JOIN", {"client_name": "x", "5": None}, {"hello": 1}).messages()
        self.assertEqual(heard.header, {"status": 200})

    def test_reservedBytes(self) -> None:
        """Reserved bytes are ignored."""
        [heard] = self.server.connect().send("JOIN", reserved=b"\xff" * 16).messages()
        self.assertEqual((heard.header, heard.reserved), ({"status": 200}, bytes(16)))

    def test_useAtOnce(self) -> None:
        """What arrives behind the JOIN in the same read is worked off, by the id that will have been given."""
        peer = self.server.connect()
        ping = frame("PING", 1000, {"keepalive": {"timestamp": 5}})
        heard = cut(peer.ask(frame("JOIN") + frame("SUB", 1000, {"topic": "t"}) + ping))
        self.assertEqual([each.kind for each in heard], ["REP", "PONG"])

    def test_counted(self) -> None:
        """The client is registered with its dialect and name."""
        self.server.join()
        [client] = self.server.broker.clients
        self.assertEqual((client.id, client.dialect, client.name), (1000, "fleximq", "fleximq-1000"))
        self.assertEqual(self.server.counts("joined"), {"joined: fleximq": 1})


class SecondJoinTests(FlexiCase):
    """A second JOIN, whatever it holds: 409, and the id stays."""

    def test_conflict(self) -> None:
        """Good, bad, forged, with or without an id: always 409, correlated if there was one."""
        peer = self.server.join()
        for header, client_id, id in (
            (None, 0, None),
            (None, peer.id, None),
            (None, 77, None),
            ({"auth": TOKEN}, 0, None),
            ({"auth": "nonsense"}, 0, None),
            ({"topic": "t"}, 0, None),
            ({"reqrep": {"type": "request", "id": "J2"}}, 0, "J2"),
            (b"\xc1", 0, None),
        ):
            [heard] = peer.answer("JOIN", header, client_id=client_id)
            self.assertError(heard, peer, 409, id)
        self.assertFalse(peer.closed)

    def test_twoAtOnce(self) -> None:
        """Two equal JOINs in one read: let in, then 409."""
        peer = self.server.connect()
        first, second = cut(peer.ask(frame("JOIN") * 2))
        peer.id = first.sender
        self.assertEqual(first.header, {"status": 200})
        self.assertError(second, peer, 409)
        self.assertEqual(len(self.server.broker.clients), 1)


class RefusedTests(FlexiCase):
    """Every error before a successful JOIN closes, and carries ClientID 0, a status, no routing, words."""

    def assertRefused(self, peer: FlexiPeer, status: int, id: str | None = None) -> Heard:
        """Check the one answer of a peer that is not let in."""
        [heard] = peer.messages()
        header: dict[str, Any] = {"status": status}
        if id is not None:
            header["reqrep"] = {"type": "correlation", "id": id}
        self.assertEqual((heard.kind, heard.sender, heard.header, heard.reserved), ("REP", 0, header, bytes(16)))
        self.assertIsInstance(heard.value, str)
        self.assertTrue(peer.closed)
        self.assertEqual(len(self.server.broker.clients), 0)
        return heard

    def test_anythingElseFirst(self) -> None:
        """Any other message, known or not: 401."""
        for kind in [*range(1, 11), 77, 255]:
            header = smallest(NAMES[kind]) if kind < 10 and NAMES[kind] not in ("REQ", "REP") else None
            peer = self.server.connect()
            self.assertRefused(peer.send(kind, header), 401)

    def test_correlated(self) -> None:
        """A REQ before the JOIN has its id in the answer."""
        header = {"routing": [{"client_id": 1, "path": "/broker/about"}], "reqrep": {"type": "request", "id": "R"}}
        self.assertRefused(self.server.connect().tell("REQ", header), 401, "R")

    def test_errorBeforeJoin(self) -> None:
        """A REP or NOTIF that reports an error is not answered, but closed as well."""
        for kind in ("REP", "NOTIF"):
            peer = self.server.connect().tell(kind, {"status": 500})
            self.assertEqual((peer.heard(), peer.closed), (b"", True))

    def test_clientId(self) -> None:
        """A JOIN with a ClientID other than 0: 400."""
        for client_id in (1, 1000, 0xFFFFFFFF):
            self.assertRefused(self.server.connect().send("JOIN", client_id=client_id), 400)

    def test_clientIdBeforeHeader(self) -> None:
        """The ClientID is looked at before the header."""
        heard = self.assertRefused(self.server.connect().send("JOIN", {"auth": 7}, client_id=5), 400)
        self.assertIn("client id", heard.value)

    def test_forbidden(self) -> None:
        """Every forbidden field: 400."""
        for field in documented()["JOIN"][1]:
            for value in (1, None, {"type": "request", "id": "x"}):
                self.assertRefused(self.server.connect().tell("JOIN", {field: value}), 400)

    def test_forbiddenWithId(self) -> None:
        """The answer is correlated if there was an id."""
        header = {"topic": "t", "reqrep": {"type": "request", "id": "J"}}
        self.assertRefused(self.server.connect().tell("JOIN", header), 400, "J")

    def test_reqrep(self) -> None:
        """A malformed reqrep: 400, correlated if its id can be read."""
        for reqrep, id in (
            (None, None),
            ("J", None),
            ({}, None),
            ({"id": 5, "type": "request"}, None),
            ({"id": "J"}, "J"),
        ):
            self.assertRefused(self.server.connect().tell("JOIN", {"reqrep": reqrep}), 400, id)

    def test_auth(self) -> None:
        """Malformed or unknown credentials: 604."""
        for auth in (None, 1, {}, {"type": "magic"}, {"type": "token"}, {"type": "basic", "username": "u"}):
            self.assertRefused(self.server.connect().tell("JOIN", {"auth": auth}), 604)

    def test_authWithId(self) -> None:
        """A 604 is correlated too."""
        header = {"auth": 1, "reqrep": {"type": "request", "id": "J"}}
        self.assertRefused(self.server.connect().tell("JOIN", header), 604, "J")

    def test_header(self) -> None:
        """A header that is no map, or no MessagePack: 400."""
        for raw in (b"\xc1", msgpack.packb([]), msgpack.packb("x"), b"\x81"):
            self.assertRefused(self.server.connect().send("JOIN", raw), 400)

    def test_version(self) -> None:
        """Another version: 400, since the framing is unknown."""
        for version in (0, 2, 255):
            self.assertRefused(self.server.connect().send("JOIN", version=version), 400)

    def test_tooLarge(self) -> None:
        """Lengths over the limits: 413, before anything else is looked at."""
        self.assertRefused(self.server.connect().say(frame("PUB", 5, bytes(65537))[:26]), 413)
        huge = frame("JOIN", 0, {"reqrep": {"type": "request", "id": "J"}})[:-8] + b"\xff" * 8
        self.assertRefused(self.server.connect().say(huge), 413, "J")

    def test_capacity(self) -> None:
        """A full broker: 503; when somebody left there is room again."""
        self.server = self.makeServer(limits=Limits(clients=2))
        first, _ = self.server.join(), self.server.join()
        peer = self.server.connect().tell("JOIN", {"reqrep": {"type": "request", "id": "J"}})
        [heard] = peer.messages()
        self.assertEqual(
            (heard.sender, heard.header),
            (0, {"status": 503, "reqrep": {"type": "correlation", "id": "J"}}),
        )
        self.assertTrue(peer.closed)
        first.leave()
        self.server.join()

    def test_policy(self) -> None:
        """A peer that policy keeps out: 605, before its JOIN is looked into."""
        self.server = self.makeServer(admission=REFUSING)
        heard = self.assertRefused(self.server.connect().send("JOIN", client_id=7), 605)
        self.assertEqual(heard.value, REFUSAL)
        header = {"auth": 1, "reqrep": {"type": "request", "id": "J"}}
        self.assertRefused(self.server.connect().tell("JOIN", header), 605, "J")

    def test_policyAsksForTheAddress(self) -> None:
        """The peer's address decides."""
        self.server = self.makeServer(admission=AccessPolicy().admissionFor())
        self.assertRefused(self.server.connect(IPv4Address("TCP", "192.0.2.7", 1)).send("JOIN"), 605)
        self.server.join()

    def test_nothingBehindIt(self) -> None:
        """What stands behind a refused JOIN is not looked at."""
        peer = self.server.connect().say(frame("JOIN", 5) + frame("JOIN") + frame("BCAST", 1000))
        self.assertRefused(peer, 400)

    def test_counted(self) -> None:
        """Refusals are counted by status, and connections that never joined by their reason."""
        peer = self.server.connect().send("PING")
        peer.leave()
        self.assertEqual(self.server.counts("error"), {"error: 401": 1})
        self.assertEqual(self.server.counts("not let in"), {"not let in: error 401": 1})


class DeadlineTests(FlexiCase):
    """Ten seconds until the JOIN."""

    def test_late(self) -> None:
        """Whoever has not joined in time is closed; bytes that are no whole frame do not count."""
        self.server = self.makeServer(handshakeTimeout=10.0)
        silent, slow = self.server.connect(), self.server.connect()
        slow.say(frame("JOIN")[:20])
        self.clock.advance(9.9)
        slow.say(frame("JOIN")[20:33])
        self.assertFalse(silent.closed or slow.closed)
        self.clock.advance(0.2)
        self.assertTrue(silent.closed and slow.closed)
        silent.leave()
        self.assertEqual(self.server.counts("not let in"), {"not let in: handshake deadline": 1})

    def test_inTime(self) -> None:
        """Who joins in time stays."""
        peer = self.server.connect()
        self.clock.advance(9.9)
        peer.join()
        self.clock.advance(0.2)
        self.assertFalse(peer.closed)

    def test_noTimerLeft(self) -> None:
        """A connection that is gone leaves no timer behind."""
        before = len(self.server.context.broker.deadlines)
        peers = [self.server.connect(), self.server.join(), self.server.connect().send("PING")]
        for peer in peers:
            peer.leave()
        self.clock.advance(0)
        self.assertEqual(len(self.server.context.broker.deadlines), before)
