"""FlexiMQ over TCP and over WebSocket, as a client sees it (FlexiMQ document and docs/reference/dialects.rst)."""

import struct
import threading
from typing import Any

import msgpack

from tests.conversations.case import SocketCase, onOwnListeners
from tests.conversations.clients import FlexiClient, WebSocketStream
from tests.wire.flexi_frames import Heard, frame

#: An id that nobody has.
NOBODY = 0xFFFFFFFE


def cut(heard: list[Heard]) -> list[tuple[str, int, Any]]:
    """Return kind, sender and payload of messages."""
    return [(each.kind, each.sender, each.value) for each in heard]


class FlexiCase(SocketCase):
    """A conversation over TCP; subclasses use another carrier."""

    def join(self, header: Any = None) -> FlexiClient:
        """Return a client that has joined."""
        return self.flexi(header)

    def fresh(self) -> FlexiClient:
        """Return a client that has not joined."""
        return self.stranger()

    def assertTurnedAway(self, client: FlexiClient, status: int, id: str | None = None) -> None:
        """Check that a client that has not joined gets one error and then the end."""
        [heard] = client.untilEnd()
        correlation = {"reqrep": {"type": "correlation", "id": id}} if id else {}
        self.assertEqual((heard.kind, heard.sender, heard.header), ("REP", 0, {"status": status} | correlation))

    def assertOnlyError(self, client: FlexiClient, heard: list[Heard], status: int, id: str | None = None) -> None:
        """Check that this is one error to a client that has joined."""
        self.assertEqual(len(heard), 1, heard)
        self.assertError(heard[0], client, status, id)


class JoinTests(FlexiCase):
    """How a client comes in, or does not."""

    def test_answer(self) -> None:
        """A JOIN is answered by REP with a new id, status 200 and nothing else."""
        client = self.fresh()
        heard = client.send("JOIN").hear()
        self.assertEqual((heard.kind, heard.header, heard.version), ("REP", {"status": 200}, 1))
        self.assertEqual((heard.reserved, heard.payload), (bytes(16), b""))
        self.assertTrue(1000 <= heard.sender <= NOBODY, heard)

    def test_ids(self) -> None:
        """No two clients have one id."""
        self.assertEqual(len({self.join().id for _ in range(5)}), 5)

    def test_idsCountUp(self) -> None:
        """A later client has a higher id, though the earlier one has left."""
        first = self.join()
        first.close()
        self.assertGreater(self.join().id, first.id)

    def test_reqrep(self) -> None:
        """A JOIN with reqrep is correlated."""
        client = self.fresh()
        heard = client.send("JOIN", {"reqrep": {"type": "request", "id": "J1"}}).hear()
        self.assertEqual(heard.header, {"status": 200, "reqrep": {"type": "correlation", "id": "J1"}})

    def test_unknownKey(self) -> None:
        """A key that no document names is ignored."""
        self.assertGreaterEqual(self.join({"client_name": "svc", "x": 1}).id, 1000)

    def test_credentials(self) -> None:
        """Credentials are taken where nothing checks them."""
        for auth in (
            {"type": "token", "token": "t"},
            {"type": "basic", "username": "u", "password": "p"},
            {"type": "api_key", "api_key": "k"},
        ):
            self.assertGreaterEqual(self.join({"auth": auth}).id, 1000)

    def test_malformedCredentials(self) -> None:
        """Credentials of an unknown type, or without their fields: 604 and the end."""
        for auth in ({"type": "magic"}, {"type": "token"}, {"type": "basic", "username": "u"}, "token"):
            self.assertTurnedAway(self.fresh().send("JOIN", {"auth": auth}), 604)

    def test_forbiddenField(self) -> None:
        """A forbidden field: 400 and the end."""
        for name, value in (("topic", "x"), ("routing", [{"client_id": 1}]), ("status", 200)):
            self.assertTurnedAway(self.fresh().send("JOIN", {name: value}), 400)

    def test_malformedReqrep(self) -> None:
        """A reqrep of the wrong type: 400, correlated where there is an id, and the end."""
        reqrep = {"type": "correlation", "id": "J2"}
        self.assertTurnedAway(self.fresh().send("JOIN", {"reqrep": reqrep}), 400, "J2")

    def test_withClientId(self) -> None:
        """A JOIN with an id: 400 and the end."""
        self.assertTurnedAway(self.fresh().send("JOIN", client_id=1234), 400)

    def test_otherMessageFirst(self) -> None:
        """Any other message before the JOIN: 401 and the end."""
        self.assertTurnedAway(self.fresh().send("PING", {"keepalive": {"timestamp": 1}}), 401)

    def test_otherVersionFirst(self) -> None:
        """Another version: 400 and the end, on a listener of FlexiMQ's own as behind a JOIN."""
        client = self.join()
        client.send("PING", {"keepalive": {"timestamp": 1}}, version=2)
        self.assertOnlyError(client, client.untilEnd(), 400)

    def test_twice(self) -> None:
        """A second JOIN: 409, whatever it holds, and the id stays."""
        client = self.join()
        for header in (None, {"topic": "x"}):
            self.assertOnlyError(client, client.answer("JOIN", header, client_id=0), 409)


class TopicTests(FlexiCase):
    """PUB, SUB and UNSUB."""

    def setUp(self) -> None:
        """Two clients, of which Bob has subscribed."""
        super().setUp()
        self.alice, self.bob = self.join(), self.join().subscribe(self.topic)
        self.bob.barrier()

    def test_silence(self) -> None:
        """SUB and UNSUB that succeed are not answered, repeated or not."""
        self.bob.subscribe(self.topic).tell("UNSUB", {"topic": self.topic}).tell("UNSUB", {"topic": self.topic})
        self.assertEqual(self.bob.barrier(), [])

    def test_delivery(self) -> None:
        """A PUB arrives with its publisher's id, header and payload unchanged."""
        value = {"article": "x", "n": [1, 2, {"z": None}]}
        sent = frame("PUB", self.alice.id, {"topic": self.topic, "mine": 1}, msgpack.packb(value))
        self.alice.say(sent)
        self.assertEqual(self.bob.hear().raw, sent)

    def test_onlySubscribers(self) -> None:
        """Neither the publisher nor others get it."""
        self.alice.publish(self.topic, 1)
        self.assertEqual((self.alice.barrier(), self.join().barrier()), ([], []))

    def test_twice(self) -> None:
        """A repeated SUB changes nothing."""
        self.bob.subscribe(self.topic).barrier()
        self.alice.publish(self.topic, 1).barrier()
        self.assertEqual(cut(self.bob.barrier()), [("PUB", self.alice.id, 1)])

    def test_case(self) -> None:
        """Topics are case-sensitive."""
        self.alice.publish(self.topic.upper(), 1).barrier()
        self.assertEqual(self.bob.barrier(), [])

    def test_own(self) -> None:
        """A publisher that has subscribed gets its own message."""
        self.bob.publish(self.topic, "self")
        self.assertEqual(cut(self.bob.barrier()), [("PUB", self.bob.id, "self")])

    def test_unsub(self) -> None:
        """After UNSUB nothing comes, to its sender only."""
        carol = self.join().subscribe(self.topic)
        carol.barrier()
        self.bob.tell("UNSUB", {"topic": self.topic}).barrier()
        self.alice.publish(self.topic, 2).barrier()
        self.assertEqual((self.bob.barrier(), cut(carol.barrier())), ([], [("PUB", self.alice.id, 2)]))

    def test_narrowed(self) -> None:
        """Routing narrows a PUB to the subscribers that are listed."""
        carol = self.join().subscribe(self.topic)
        carol.barrier()
        others = [{"client_id": carol.id, "path": "/p"}, {"client_id": self.alice.id}]
        self.alice.publish(self.topic, 3, routing=others).barrier()
        self.assertEqual(cut(carol.barrier()), [("PUB", self.alice.id, 3)])
        self.assertEqual((self.bob.barrier(), self.alice.barrier()), ([], []))

    def test_narrowedToBroker(self) -> None:
        """Routing to the broker alone means everybody."""
        self.alice.publish(self.topic, 4, routing=[{"client_id": 1}]).barrier()
        self.assertEqual(cut(self.bob.barrier()), [("PUB", self.alice.id, 4)])

    def test_wildcards(self) -> None:
        """``*`` is one level, a last ``#`` any number; several matches make one copy."""
        t = self.topic
        one, many = self.join().subscribe(f"{t}.*"), self.join().subscribe(f"{t}/#", f"{t}.a.b", f"{t}.*.b")
        one.barrier()
        many.barrier()
        for name in (t, f"{t}.a", f"{t}/a", f"{t}.a.b", f"{t}x.a"):
            self.alice.publish(name, name)
        self.alice.barrier()
        self.assertEqual([each.value for each in one.barrier()], [f"{t}.a", f"{t}/a"])
        self.assertEqual([each.value for each in many.barrier()], [t, f"{t}.a", f"{t}/a", f"{t}.a.b"])

    def test_literalPublication(self) -> None:
        """A PUB to a name with wildcards is to that name alone."""
        self.bob.subscribe(f"{self.topic}.a").barrier()
        self.alice.publish(f"{self.topic}.*", 1).barrier()
        self.assertEqual(self.bob.barrier(), [])

    def test_order(self) -> None:
        """20,000 pipelined PUBs arrive complete and in order."""
        alice, number = self.alice, 20000
        stream = b"".join(
            alice.variant.frame("PUB", alice.id, {"topic": self.topic}, msgpack.packb(n)) for n in range(number)
        )
        talking = threading.Thread(target=alice.say, args=(stream,), daemon=True)
        talking.start()
        self.assertEqual([self.bob.hear().value for _ in range(number)], list(range(number)))
        talking.join()

    def test_wholeHeader(self) -> None:
        """A header of exactly 65,536 bytes is carried unchanged."""
        empty = len(msgpack.packb({"topic": self.topic, "pad": bytes(60000)})) - 60000
        raw = msgpack.packb({"topic": self.topic, "pad": bytes(65536 - empty)})
        self.assertEqual(len(raw), 65536)
        self.alice.send("PUB", raw)
        self.assertEqual(self.bob.hear().raw[26:-8], raw)

    def test_largestMessage(self) -> None:
        """A message of exactly 16 MiB is carried."""
        head = len(self.alice.variant.frame("PUB", self.alice.id, {"topic": self.topic}))
        payload = msgpack.packb(bytes((16 << 20) - head - 5))
        threading.Thread(target=self.alice.send, args=("PUB", {"topic": self.topic}, payload), daemon=True).start()
        self.assertEqual(len(self.bob.hear().raw), 16 << 20)

    def test_reserved(self) -> None:
        """Reserved bytes are sent on as zeros."""
        self.alice.send("PUB", {"topic": self.topic}, reserved=b"\xff" * 16)
        self.assertEqual(self.bob.hear().reserved, bytes(16))


class DirectTests(FlexiCase):
    """REQ, REP, NOTIF and BCAST."""

    def setUp(self) -> None:
        """Two clients."""
        super().setUp()
        self.alice, self.bob = self.join(), self.join()

    def test_request(self) -> None:
        """A REQ arrives with the requester's id, header and payload unchanged."""
        header = {"routing": [{"client_id": self.bob.id, "path": "/api"}], "reqrep": {"type": "request", "id": "R"}}
        self.alice.tell("REQ", header, {"q": 1})
        heard = self.bob.hear()
        self.assertEqual((heard.kind, heard.sender, heard.header), ("REQ", self.alice.id, header))
        self.assertEqual(heard.value, {"q": 1})

    def test_reply(self) -> None:
        """A REP arrives as it was sent; its path may be missing, its id need not be known."""
        self.bob.reply(self.alice.id, "never asked", {"r": 1}, status=201)
        heard = self.alice.hear()
        fields = {
            "routing": [{"client_id": self.alice.id}],
            "reqrep": {"type": "correlation", "id": "never asked"},
            "status": 201,
        }
        self.assertEqual((heard.kind, heard.sender, heard.header), ("REP", self.bob.id, fields))
        self.assertEqual(heard.value, {"r": 1})

    def test_unknownTarget(self) -> None:
        """A REQ to nobody: REP 600, correlated, with the path."""
        [heard] = self.alice.request(NOBODY, "/x", "R2").barrier()
        self.assertError(heard, self.alice, 600, "R2")
        self.assertEqual(heard.header["routing"][0]["path"], "/x")

    def test_otherDialect(self) -> None:
        """A REQ to a client of another dialect: REP 600."""
        self.mini().barrier()
        [other] = [
            each["client_id"]
            for each in self.alice.ask("/broker/clients", {"after": self.bob.id})["clients"]
            if each["dialect"] == "minimq"
        ]
        self.assertOnlyError(self.alice, self.alice.request(other, "/x", "R3").barrier(), 600, "R3")

    def test_unknownPath(self) -> None:
        """A REQ to the broker on a path it does not have: REP 404."""
        self.assertOnlyError(self.alice, self.alice.request(1, "/no/such/path", "R4").barrier(), 404, "R4")

    def test_about(self) -> None:
        """The broker tells about itself."""
        about = self.alice.ask("/broker/about")
        self.assertEqual((about["name"], about["dialects"]), ("FlexiMQ", ["fleximq", "blipmq", "minimq", "identity"]))
        self.assertGreaterEqual(about["clients"], 2)

    def test_clients(self) -> None:
        """The broker lists who is connected, page by page."""
        listing = self.alice.ask("/broker/clients", {"after": self.alice.id - 1, "limit": 1})
        self.assertEqual([each["client_id"] for each in listing["clients"]], [self.alice.id])
        self.assertEqual(listing["next"], self.alice.id)

    def test_topics(self) -> None:
        """The broker lists topics with their subscribers."""
        self.bob.subscribe(self.topic).barrier()
        [row] = self.alice.ask("/broker/topics", {"after": self.topic[:-1], "limit": 1})["topics"]
        self.assertEqual((row["topic"], row["subscribers"], row["queued"]), (self.topic, 1, None))

    def test_twoTargets(self) -> None:
        """A REQ with two targets: 602, and neither gets it."""
        route = {"client_id": self.bob.id, "path": "/x"}
        heard = self.alice.answer("REQ", {"routing": [route, route], "reqrep": {"type": "request", "id": "R5"}})
        self.assertOnlyError(self.alice, heard, 602, "R5")
        self.assertEqual(self.bob.barrier(), [])

    def test_responderLeaves(self) -> None:
        """A responder that disconnects with the request open: REP 502."""
        self.alice.request(self.bob.id, "/slow", "R6")
        self.assertEqual(self.bob.hear().kind, "REQ")
        self.bob.close()
        heard = self.alice.hear()
        self.assertError(heard, self.alice, 502, "R6")
        self.assertEqual(heard.header["routing"][0]["path"], "/slow")

    def test_notif(self) -> None:
        """A NOTIF reaches each known target once; each unknown entry is reported as it was sent, in order."""
        carol = self.join()
        entries = [
            {"client_id": self.bob.id, "path": "/n"},
            {"client_id": NOBODY, "path": "/lost"},
            {"client_id": carol.id, "path": "/m"},
            {"client_id": 999, "path": ""},
            {"client_id": self.bob.id, "path": "/again"},
            {"client_id": 1, "path": "/broker"},
        ]
        reports = self.alice.tell("NOTIF", {"routing": entries}, "hi").barrier()
        self.assertEqual([(each.kind, each.sender, each.status) for each in reports], [("NOTIF", 1, 600)] * 2)
        self.assertEqual([each.header["routing"] for each in reports], [[entries[1]], [entries[3]]])
        for each in (self.bob, carol):
            [heard] = each.barrier()
            self.assertEqual((heard.kind, heard.header, heard.value), ("NOTIF", {"routing": entries}, "hi"))

    def test_lostReply(self) -> None:
        """A REP to nobody is reported by NOTIF 600 with the entry that failed."""
        [heard] = self.alice.reply(NOBODY, "R7").barrier()
        self.assertEqual((heard.kind, heard.sender), ("NOTIF", 1))
        self.assertEqual((heard.status, heard.header["routing"]), (600, [{"client_id": NOBODY}]))

    def test_errorsAreNotAnswered(self) -> None:
        """A REP or NOTIF that carries an error is never answered."""
        self.alice.reply(NOBODY, "R8", status=500).tell("NOTIF", {"routing": [], "status": 404})
        self.assertEqual(self.alice.barrier(), [])

    def test_broadcast(self) -> None:
        """A BCAST reaches all other clients that have joined, however they are connected."""
        others = [self.bob, self.flexi(), self.flexiWs()]
        self.alice.tell("BCAST", None, self.topic)
        self.assertEqual(self.alice.barrier(), [])
        for each in others:
            self.assertEqual(cut(each.barrier()), [("BCAST", self.alice.id, self.topic)])


class ErrorTests(FlexiCase):
    """What is refused while the connection lives on, and what ends it."""

    def refused(self, kind: str | int, header: Any, status: int, **more: Any) -> None:
        """Check that this gets one error of this status, and the connection lives on."""
        client = self.join()
        id = header["reqrep"]["id"] if isinstance(header, dict) and "reqrep" in header else None
        self.assertOnlyError(client, client.answer(kind, header, **more), status, id)

    def test_fields(self) -> None:
        """Forbidden, missing and wrong fields."""
        route = {"client_id": 1000, "path": "/x"}
        request = {"type": "request", "id": "1"}
        for kind, header, status in (
            ("BCAST", {"routing": [route]}, 400),
            ("SUB", {}, 400),
            ("SUB", {"topic": "t", "status": 200}, 400),
            ("PUB", {"topic": "t", "reqrep": request}, 400),
            ("PING", {}, 400),
            ("PING", {"keepalive": {"timestamp": "now"}}, 400),
            ("REQ", {"routing": [route]}, 400),
            ("REQ", {"reqrep": request}, 400),
            ("PUB", {"topic": 5}, 400),
            ("PUB", {"topic": ""}, 400),
            ("PUB", {"topic": "x" * 1025}, 400),
            ("SUB", {"topic": ""}, 603),
            ("SUB", {"topic": "x" * 1025}, 603),
            ("NOTIF", {"routing": []}, 602),
            ("NOTIF", {"routing": [{"client_id": 1000}]}, 602),
            ("NOTIF", {"routing": [route] * 1001}, 602),
            ("REQ", {"routing": [{"client_id": 0, "path": ""}], "reqrep": request}, 602),
            ("REQ", {"routing": [{"client_id": 0xFFFFFFFF, "path": ""}], "reqrep": request}, 602),
            ("REQ", {"routing": [{"client_id": 999, "path": ""}], "reqrep": request}, 600),
        ):
            self.refused(kind, header, status)

    def test_notMessagePack(self) -> None:
        """A header that is not MessagePack, or no map: 400."""
        for raw in (b"\xc1", b"\xa1x", b"\x81"):
            self.refused("PUB", raw, 400)

    def test_unknownType(self) -> None:
        """An unknown type: its frame is skipped, 501."""
        self.refused(77, {}, 501, payload=b"skipped")

    def test_forged(self) -> None:
        """Another's id: 403, and nothing is forwarded."""
        bob = self.join().subscribe(self.topic)
        bob.barrier()
        self.refused("PUB", {"topic": self.topic}, 403, client_id=bob.id)
        self.assertEqual(bob.barrier(), [])

    def test_ownTopics(self) -> None:
        """Only the broker publishes to ``$sys/`` and ``$dead/``: 403."""
        for topic in ("$sys/clients/joined", "$dead/x"):
            self.refused("PUB", {"topic": topic}, 403)

    def test_longHeader(self) -> None:
        """A header over 65,536 bytes is refused on its length with 413, and the connection ends."""
        client = self.join()
        client.say(struct.pack(">BBI16xI", 1, 5, client.id, 65537))
        self.assertOnlyError(client, client.untilEnd(), 413)

    def test_longMessage(self) -> None:
        """A message over the limit is refused on its length with 413, and the connection ends."""
        client = self.join()
        raw = msgpack.packb({"topic": self.topic})
        too = (16 << 20) - 34 - len(raw) + 1
        client.say(struct.pack(">BBI16xI", 1, 5, client.id, len(raw)) + raw + struct.pack(">Q", too))
        self.assertOnlyError(client, client.untilEnd(), 413)

    def test_errorsBeforePong(self) -> None:
        """Errors come before the PONG of a PING behind what they are about, in order."""
        client = self.join()
        client.publish("").tell("SUB", {"topic": ""}).publish(self.topic, 1).request(NOBODY, "", "R")
        self.assertEqual([each.status for each in client.barrier()], [400, 603, 600])

    def test_ping(self) -> None:
        """A PONG comes from client 1, with the timestamp alone; an unsolicited PONG is ignored."""
        client = self.join()
        client.tell("PONG", {"keepalive": {"timestamp": 1}})
        client.send("PING", {"keepalive": {"timestamp": 1703123456789, "interval": 30}}, reserved=b"\xff" * 16)
        heard = client.hear()
        self.assertEqual((heard.kind, heard.sender, heard.reserved), ("PONG", 1, bytes(16)))
        self.assertEqual(heard.header, {"keepalive": {"timestamp": 1703123456789}})

    def test_byteByByte(self) -> None:
        """A frame may arrive byte by byte."""
        client = self.join()
        for byte in client.variant.frame("PING", client.id, {"keepalive": {"timestamp": 4}}):
            client.say(bytes([byte]))
        self.assertEqual(client.hear().kind, "PONG")


class OverWebSocket(FlexiCase):
    """The same conversations over WebSocket."""

    def join(self, header: Any = None) -> FlexiClient:
        """Return a client that has joined."""
        return self.flexiWs(header)

    def fresh(self) -> FlexiClient:
        """Return a client that has not joined."""
        return self.opened(FlexiClient(WebSocketStream(self.place.address("fleximq"))))


class JoinOverWebSocketTests(OverWebSocket, JoinTests):
    """How a client comes in over WebSocket."""


class TopicOverWebSocketTests(OverWebSocket, TopicTests):
    """PUB, SUB and UNSUB over WebSocket."""


class DirectOverWebSocketTests(OverWebSocket, DirectTests):
    """REQ, REP, NOTIF and BCAST over WebSocket."""


class ErrorOverWebSocketTests(OverWebSocket, ErrorTests):
    """Errors over WebSocket."""


class UpgradeTests(FlexiCase):
    """How a WebSocket becomes one of FlexiMQ's."""

    def test_ways(self) -> None:
        """By path, its query aside, or by subprotocol."""
        for path, headers in (
            ("/ws", ()),
            ("/messaging?x=1", ()),
            ("/", ("Sec-WebSocket-Protocol: fleximq",)),
            ("/any", ("Sec-WebSocket-Protocol: chat, fleximq",)),
        ):
            carrier = WebSocketStream(self.place.address("fleximq"), path, headers)
            self.assertGreaterEqual(self.opened(FlexiClient(carrier)).join().id, 1000)

    def test_cutAnywhere(self) -> None:
        """Frames may be cut anywhere across messages, and several be in one."""
        client = self.flexiWs()
        pings = [client.variant.frame("PING", client.id, {"keepalive": {"timestamp": stamp}}) for stamp in (1, 2, 3)]
        stream = b"".join(pings)
        for start, end in ((0, 20), (20, len(pings[0]) + 10), (len(pings[0]) + 10, None)):
            client.say(stream[start:end])
        self.assertEqual([client.hear().header["keepalive"]["timestamp"] for _ in pings], [1, 2, 3])

    def test_closeCode(self) -> None:
        """The close frame behind an error that ends the connection names its kind."""
        client = self.flexiWs()
        client.say(struct.pack(">BBI16xI", 1, 5, client.id, 65537))
        client.untilEnd()
        self.assertEqual(client.carrier.code, 1009)


globals().update(
    onOwnListeners(
        JoinTests,
        TopicTests,
        DirectTests,
        ErrorTests,
        JoinOverWebSocketTests,
        TopicOverWebSocketTests,
        DirectOverWebSocketTests,
        ErrorOverWebSocketTests,
        UpgradeTests,
    )
)
