"""FlexiMQ messages from client to client: REQ, REP, NOTIF, BCAST, and what the broker answers itself."""

from typing import Any

import msgpack

import fleximq
from fleximq.compiled import choice
from fleximq.limits import Limits
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.processor_time import Measured
from tests.slow_journal import SlowJournal
from tests.wire.flexi_frames import Heard, frame

ULID = "01H2XQMGPE7ZPXXNKQD9XE8S6R"


def notified(heard: Heard) -> tuple[str, int, Any, str]:
    """Return what matters of a NOTIF 600: kind, sender, header, type of the payload."""
    return (heard.kind, heard.sender, heard.header, type(heard.value).__name__)


def lost(**entry: Any) -> tuple[str, int, Any, str]:
    """Return the NOTIF 600 that is due for this routing entry."""
    return ("NOTIF", 1, {"status": 600, "routing": [entry]}, "str")


class DirectCase(FlexiCase):
    """Two clients who know each other's id."""

    def setUp(self) -> None:
        """Join Alice and Bob."""
        super().setUp()
        self.meet()

    def meet(self, **settings: Any) -> None:
        """Join Alice and Bob on a new server."""
        self.server = self.makeServer(**settings)
        self.alice, self.bob = self.server.join(), self.server.join()


class RequestTests(DirectCase):
    """Document 3.3."""

    def test_forwarded(self) -> None:
        """A REQ reaches its target with the sender's id, header and payload unchanged to the byte."""
        header = {
            "reqrep": {"id": ULID, "type": "request", "extra": 1},
            "routing": [{"path": "/api/users", "client_id": self.bob.id, "note": "n"}],
            "status": 200,
            "traceparent": "00-x",
        }
        self.alice.send("REQ", header, b"\x81\xa9user_data\xa3...")
        self.assertEqual(self.bob.heard(), frame("REQ", self.alice.id, header, b"\x81\xa9user_data\xa3..."))
        self.assertEqual(self.alice.barrier(), [])

    def test_opaquePayload(self) -> None:
        """A payload that is no MessagePack is carried all the same."""
        header = {"routing": [{"client_id": self.bob.id, "path": ""}], "reqrep": {"type": "request", "id": "R"}}
        self.alice.send("REQ", header, b"\xc1\xc1")
        self.assertEqual(self.bob.heard(), frame("REQ", self.alice.id, header, b"\xc1\xc1"))

    def test_answered(self) -> None:
        """A REP reaches the one its routing names, unchanged, with or without path and status."""
        self.alice.request(self.bob.id, "/api", "R1")
        for more in ({}, {"status": 201}):
            for entry in ({"client_id": self.alice.id}, {"client_id": self.alice.id, "path": "/api/users"}):
                header = {"routing": [entry], "reqrep": {"type": "correlation", "id": "R1"}, **more}
                self.bob.send("REP", header, b"\x01")
                self.assertEqual(self.alice.heard(), frame("REP", self.bob.id, header, b"\x01"))

    def test_unaskedAnswer(self) -> None:
        """The broker does not demand that it remembers the request."""
        self.bob.reply(self.alice.id, "never asked")
        self.assertEqual([each.kind for each in self.alice.messages()], ["REP"])

    def test_toOneself(self) -> None:
        """A client may ask itself."""
        self.alice.request(self.alice.id, "/me", "R")
        self.assertEqual([each.kind for each in self.alice.messages()], ["REQ"])

    def test_unknownTarget(self) -> None:
        """2 to 999, and whoever is not there: REP 600, correlated, with the path."""
        for target in (2, 999, self.bob.id + 1, 0xFFFFFFFE):
            [heard] = self.alice.request(target, "/api", "R").barrier()
            self.assertError(heard, self.alice, 600, "R", "/api")

    def test_invalidTarget(self) -> None:
        """0 and 4294967295: 602."""
        for target in (0, 0xFFFFFFFF):
            [heard] = self.alice.request(target, "/api", "R").barrier()
            self.assertError(heard, self.alice, 602, "R", "/api")

    def test_otherDialect(self) -> None:
        """A client of another dialect takes no requests: 600."""
        [heard] = self.alice.request(self.server.foreign().id, "/api", "R").barrier()
        self.assertError(heard, self.alice, 600, "R", "/api")

    def test_departed(self) -> None:
        """Who has left is not there."""
        self.bob.leave()
        [heard] = self.alice.request(self.bob.id, "/api", "R").barrier()
        self.assertError(heard, self.alice, 600, "R", "/api")

    def test_notJoined(self) -> None:
        """A connection that has not joined cannot be asked."""
        self.server.connect()
        [heard] = self.alice.request(self.bob.id + 1, "/api", "R").barrier()
        self.assertError(heard, self.alice, 600, "R", "/api")

    def test_answerToNobody(self) -> None:
        """A REP whose target is not there: NOTIF 600 with the entry as sent."""
        for entry in ({"client_id": 4711}, {"client_id": 4711, "path": "/x"}, {"client_id": 2, "path": ""}):
            header = {"routing": [entry], "reqrep": {"type": "correlation", "id": "R"}}
            [heard] = self.alice.answer("REP", header)
            self.assertEqual(notified(heard), lost(**entry))

    def test_answerToOtherDialect(self) -> None:
        """A client of another dialect takes no answers either."""
        stranger = self.server.foreign()
        [heard] = self.alice.reply(stranger.id, "R").barrier()
        self.assertEqual(notified(heard), lost(client_id=stranger.id))

    def test_answerToTheBroker(self) -> None:
        """A REP to 1 is ignored."""
        self.assertEqual(self.alice.reply(1, "R").barrier(), [])

    def test_answerToInvalid(self) -> None:
        """A REP to 0 or 4294967295: REP 602."""
        for target in (0, 0xFFFFFFFF):
            [heard] = self.alice.reply(target, "R").barrier()
            self.assertError(heard, self.alice, 602, "R")

    def test_pipelined(self) -> None:
        """Many requests at once are kept apart by their ids."""
        for number in range(50):
            self.alice.request(self.bob.id, "/api", f"R{number}")
        self.assertEqual([each.header["reqrep"]["id"] for each in self.bob.messages()], [f"R{n}" for n in range(50)])


class OpenRequestTests(DirectCase):
    """Nobody waits in vain: 502, 504, 429."""

    def test_responderLeaves(self) -> None:
        """REP 502 for each open request, correlated, with its path; answered ones are done."""
        for number in (1, 2, 3):
            self.alice.request(self.bob.id, f"/p{number}", f"R{number}")
        self.bob.reply(self.alice.id, "R2")
        self.alice.messages()
        self.bob.leave()
        self.clock.advance(0)
        first, third = self.alice.messages()
        self.assertError(first, self.alice, 502, "R1", "/p1")
        self.assertError(third, self.alice, 502, "R3", "/p3")

    def test_requesterLeaves(self) -> None:
        """Who left is told nothing, and an answer to it is answered by NOTIF 600."""
        self.alice.request(self.bob.id, "/p", "R")
        self.alice.leave()
        self.assertEqual([each.kind for each in self.bob.messages()], ["REQ"])
        [heard] = self.bob.reply(self.alice.id, "R").barrier()
        self.assertEqual(notified(heard), lost(client_id=self.alice.id))

    def test_bothLeave(self) -> None:
        """Two who wait for each other, and for themselves, may leave in any order."""
        for asking, asked in ((self.alice, self.bob), (self.bob, self.alice), (self.alice, self.alice)):
            asking.request(asked.id, "/p", "R")
        self.alice.leave()
        self.bob.leave()
        self.clock.advance(1)
        self.assertEqual(len(self.server.broker.clients), 0)

    def test_noDeadline(self) -> None:
        """Without a setting an answer may take any time."""
        self.alice.request(self.bob.id, "/p", "R")
        for _ in range(400):
            self.clock.advance(20)
            self.alice.barrier()
            self.bob.barrier()
        self.bob.reply(self.alice.id, "R")
        self.assertEqual([each.kind for each in self.alice.messages()], ["REP"])

    def test_deadline(self) -> None:
        """With a deadline: REP 504 when it passes; a late answer arrives all the same."""
        self.meet(requestTimeout=2.0)
        self.alice.request(self.bob.id, "/slow", "R1")
        self.alice.request(self.bob.id, "/quick", "R2")
        self.clock.advance(1.9)
        self.bob.messages()
        self.bob.reply(self.alice.id, "R2")
        self.assertEqual([each.kind for each in self.alice.messages()], ["REP"])
        self.clock.advance(0.2)
        [heard] = self.alice.messages()
        self.assertError(heard, self.alice, 504, "R1", "/slow")
        self.bob.reply(self.alice.id, "R1")
        self.assertEqual([each.sender for each in self.alice.messages()], [self.bob.id])

    def test_onlyOneEnd(self) -> None:
        """After a 504 the responder's leave adds no 502."""
        self.meet(requestTimeout=2.0)
        self.alice.request(self.bob.id, "/slow", "R1")
        self.clock.advance(2.1)
        self.alice.messages()
        self.bob.leave()
        self.clock.advance(1)
        self.assertEqual(self.alice.messages(), [])

    def test_tooManyOpen(self) -> None:
        """Below and at the limit requests go out; above it: 429, not forwarded; an answer makes room."""
        self.meet(limits=Limits(requests=2))
        self.alice.request(self.bob.id, "/p", "R1").request(self.bob.id, "/p", "R2")
        self.assertEqual(self.alice.barrier(), [])
        [heard] = self.alice.request(self.bob.id, "/p", "R3").barrier()
        self.assertError(heard, self.alice, 429, "R3", "/p")
        self.assertEqual([each.header["reqrep"]["id"] for each in self.bob.messages()], ["R1", "R2"])
        self.bob.reply(self.alice.id, "R1")
        self.alice.messages()
        self.assertEqual(self.alice.request(self.bob.id, "/p", "R3").barrier(), [])


class NotificationTests(DirectCase):
    """Document 3.4."""

    def test_forwarded(self) -> None:
        """Each target gets the frame as it was sent, all routing entries included."""
        header = {
            "routing": [
                {"client_id": self.alice.id, "path": "/notifications"},
                {"client_id": self.bob.id, "path": "/alerts"},
            ],
            "status": 200,
        }
        carol = self.server.join()
        carol.send("NOTIF", header, b"\xa3abc")
        sent = frame("NOTIF", carol.id, header, b"\xa3abc")
        self.assertEqual((self.alice.heard(), self.bob.heard(), carol.heard()), (sent, sent, b""))

    def test_onePerTarget(self) -> None:
        """One copy for each distinct target."""
        self.alice.tell("NOTIF", {"routing": [{"client_id": self.bob.id, "path": path} for path in ("/a", "/b", "/a")]})
        self.assertEqual(len(self.bob.messages()), 1)

    def test_toOneself(self) -> None:
        """A client may notify itself."""
        self.alice.tell("NOTIF", {"routing": [{"client_id": self.alice.id, "path": "/a"}]})
        self.assertEqual([each.kind for each in self.alice.messages()], ["NOTIF"])

    def test_unknown(self) -> None:
        """One NOTIF 600 for each unknown entry, in order and as sent, behind the copies."""
        stranger = self.server.foreign()
        entries: list[dict[str, Any]] = [
            {"client_id": 4711, "path": "/a"},
            {"client_id": self.bob.id, "path": "/b"},
            {"client_id": 2, "path": ""},
            {"client_id": stranger.id, "path": "/c"},
            {"client_id": 4711, "path": "/d"},
            {"client_id": self.alice.id, "path": "/e"},
        ]
        heard = self.alice.answer("NOTIF", {"routing": entries})
        self.assertEqual([heard[0].kind, heard[0].sender], ["NOTIF", self.alice.id])
        self.assertEqual([notified(each) for each in heard[1:]], [lost(**entries[place]) for place in (0, 2, 3, 4)])
        self.assertEqual(len(self.bob.messages()), 1)

    def test_toTheBroker(self) -> None:
        """An entry for 1 is ignored."""
        header = {"routing": [{"client_id": 1, "path": "/broker/about"}, {"client_id": self.bob.id, "path": ""}]}
        self.assertEqual(self.alice.answer("NOTIF", header), [])
        self.assertEqual(len(self.bob.messages()), 1)

    def test_toInvalid(self) -> None:
        """An entry for 0 or 4294967295: 602, and nobody gets anything."""
        for target in (0, 0xFFFFFFFF):
            header = {"routing": [{"client_id": self.bob.id, "path": "/a"}, {"client_id": target, "path": "/b"}]}
            [heard] = self.alice.answer("NOTIF", header)
            self.assertError(heard, self.alice, 602, path="/a")
        self.assertEqual(self.bob.messages(), [])

    def test_thousandEntries(self) -> None:
        """1,000 entries are worked off, 1,001 are 602."""
        routing = [{"client_id": self.bob.id, "path": ""}] + [{"client_id": 9000 + n, "path": ""} for n in range(999)]
        self.assertEqual(len(self.alice.answer("NOTIF", {"routing": routing})), 999)
        self.assertEqual(len(self.bob.messages()), 1)
        [heard] = self.alice.answer("NOTIF", {"routing": [*routing, routing[0]]})
        self.assertError(heard, self.alice, 602)
        self.assertEqual(self.bob.messages(), [])


class BroadcastTests(DirectCase):
    """Document 3.5."""

    def test_everybodyElse(self) -> None:
        """All joined clients but the sender get the frame as it was sent."""
        carol, stranger = self.server.join(), self.server.connect()
        self.server.foreign()
        header = {"status": 200, "more": [1]}
        self.alice.send("BCAST", header, b"\xc3")
        sent = frame("BCAST", self.alice.id, header, b"\xc3")
        self.assertEqual([each.heard() for each in (self.bob, carol, self.alice, stranger)], [sent, sent, b"", b""])

    def test_echo(self) -> None:
        """If so set, the sender too."""
        self.meet(bcastEcho=True)
        self.alice.send("BCAST")
        self.assertEqual(self.alice.heard(), frame("BCAST", self.alice.id))
        self.assertEqual(self.bob.heard(), frame("BCAST", self.alice.id))

    def test_departed(self) -> None:
        """Who has left gets nothing, and nobody is told."""
        self.bob.leave()
        self.assertEqual(self.alice.answer("BCAST"), [])
        self.assertEqual(self.bob.heard(), b"")


class BrokerPathTests(DirectCase):
    """REQs to client 1."""

    def ask(self, path: str, *value: Any) -> Heard:
        """Ask the broker and return its answer."""
        heard: Heard
        [heard] = self.alice.request(1, path, "B", *value).barrier()
        return heard

    def told(self, path: str, *value: Any) -> Any:
        """Ask the broker, check the shape of the answer and return its value."""
        heard = self.ask(path, *value)
        header = {
            "status": 200,
            "routing": [{"client_id": self.alice.id, "path": path}],
            "reqrep": {"type": "correlation", "id": "B"},
        }
        self.assertEqual((heard.kind, heard.sender, heard.header, heard.reserved), ("REP", 1, header, bytes(16)))
        return heard.value

    def test_about(self) -> None:
        """What runs here, and how much of it."""
        self.clock.advance(2)
        about = self.told("/broker/about")
        self.assertEqual((about["name"], about["version"]), ("FlexiMQ", fleximq.__version__))
        self.assertEqual(about["implementation"], choice.IMPLEMENTATION)
        self.assertEqual((about["clients"], about["uptime"]), (2, 2.0))
        self.assertEqual(about["counts"]["joined: fleximq"], 2)

    def test_clients(self) -> None:
        """Who is here, of all dialects, by id."""
        stranger = self.server.foreign()
        listing = self.told("/broker/clients", {})
        self.assertEqual(
            [(each["client_id"], each["dialect"], each["name"]) for each in listing["clients"]],
            [
                (self.alice.id, "fleximq", f"fleximq-{self.alice.id}"),
                (self.bob.id, "fleximq", f"fleximq-{self.bob.id}"),
                (stranger.id, "minimq", f"minimq-{stranger.id}"),
            ],
        )
        self.assertIsNone(listing["next"])

    def test_topics(self) -> None:
        """Every topic by name, with subscribers and messages."""
        self.alice.subscribe("b", "a", "p.*")
        self.bob.subscribe("a").publish("a").publish("a").publish("c")
        self.alice.messages()
        rows = {
            each["topic"]: each for each in self.told("/broker/topics")["topics"] if not each["topic"].startswith("$")
        }
        self.assertEqual(list(rows), ["a", "b", "c"])
        self.assertEqual(
            [(rows[name]["subscribers"], rows[name]["published"]) for name in "abc"], [(2, 2), (1, 0), (0, 1)]
        )

    def test_paged(self) -> None:
        """Pages follow each other by ``after`` and ``next`` until ``next`` is nil."""
        for _ in range(5):
            self.server.foreign()
        found, after = [], 0
        for _ in range(4):
            page = self.told("/broker/clients", {"after": after, "limit": 2})
            found.append([each["client_id"] for each in page["clients"]])
            after = page["next"]
        self.assertEqual(found, [[1000, 1001], [1002, 1003], [1004, 1005], [1006]])
        self.assertIsNone(after)

    def test_unknownPath(self) -> None:
        """Any other path: 404, correlated."""
        for path in ("/no/such/path", "", "/", "/broker", "/broker/about/", "/Broker/About", "broker/about"):
            self.assertError(self.ask(path), self.alice, 404, "B", path)

    def test_unknownPathFirst(self) -> None:
        """What the arguments of an unknown path look like does not matter: still 404."""
        header = {"routing": [{"client_id": 1, "path": "/none"}], "reqrep": {"type": "request", "id": "B"}}
        for payload in (b"\xc1", b"\x81", b"\x05", msgpack.packb(bytes(65537))):
            [heard] = self.alice.answer("REQ", header, payload)
            self.assertError(heard, self.alice, 404, "B", "/none")

    def test_badArguments(self) -> None:
        """Arguments that are no map, or have wrong types or values: 400."""
        value: Any
        for value in (
            [],
            "x",
            5,
            {"limit": 0},
            {"limit": 1001},
            {"limit": "5"},
            {"limit": True},
            {"after": "x"},
            {"after": True},
        ):
            self.assertError(self.ask("/broker/clients", value), self.alice, 400, "B", "/broker/clients")
        self.assertError(self.ask("/broker/topics", {"after": 5}), self.alice, 400, "B", "/broker/topics")

    def test_longArguments(self) -> None:
        """65,536 bytes of arguments are taken, 65,537 are not: 400, whatever they are."""
        header = {"routing": [{"client_id": 1, "path": "/broker/about"}], "reqrep": {"type": "request", "id": "B"}}
        for size, wanted in ((65536, 200), (65537, 400)):
            arguments = msgpack.packb({"x": bytes(size - 6)})
            self.assertEqual(len(arguments), size)
            [heard] = self.alice.answer("REQ", header, arguments)
            self.assertEqual(heard.status, wanted)

    def test_manyArguments(self) -> None:
        """Millions of tiny values are refused before they are read."""
        header = {"routing": [{"client_id": 1, "path": "/broker/about"}], "reqrep": {"type": "request", "id": "B"}}
        payload = b"\xdd" + (1 << 22).to_bytes(4, "big") + b"\x90" * (1 << 22)
        with Measured() as measured:
            self.alice.protocol.dataReceived(frame("REQ", self.alice.id, header, payload))
            [heard] = self.alice.messages()
            self.assertError(heard, self.alice, 400, "B", "/broker/about")
        self.assertLess(measured.seconds, 0.5)

    def test_noMessagePack(self) -> None:
        """Arguments that are no MessagePack: 400."""
        header = {"routing": [{"client_id": 1, "path": "/broker/about"}], "reqrep": {"type": "request", "id": "B"}}
        for payload in (b"\xc1", b"\x81", msgpack.packb({}) * 2, b"\xdd\xff\xff\xff\xff", b"\x91" * 5000):
            [heard] = self.alice.answer("REQ", header, payload)
            self.assertError(heard, self.alice, 400, "B", "/broker/about")


class LeavingTests(DirectCase):
    """A peer that ends its input still gets what it waits for."""

    def half(self) -> FlexiPeer:
        """Let Alice ask Bob twice and end her input."""
        self.alice.request(self.bob.id, "/p", "R1").request(self.bob.id, "/p", "R2")
        return self.alice.endInput()

    def test_nothingOpen(self) -> None:
        """Where nothing is open, it is closed at once, behind the answers."""
        self.alice.say(frame("PING", self.alice.id, {"keepalive": {"timestamp": 1}})).endInput()
        self.assertEqual(([each.kind for each in self.alice.messages()], self.alice.closed), (["PONG"], True))

    def test_notJoined(self) -> None:
        """A connection that never joined is closed."""
        self.assertTrue(self.server.connect().endInput().closed)

    def test_waitsForAnswers(self) -> None:
        """It stays until the last answer was sent."""
        peer = self.half()
        self.bob.reply(peer.id, "R1")
        self.assertFalse(peer.closed)
        self.bob.reply(peer.id, "R2")
        self.assertTrue(peer.closed)
        self.assertEqual([each.header["reqrep"]["id"] for each in peer.messages()], ["R1", "R2"])

    def test_answersThatWillNotCome(self) -> None:
        """A 502 is an answer too."""
        peer = self.half()
        self.bob.leave()
        self.clock.advance(0)
        self.assertEqual(([each.status for each in peer.messages()], peer.closed), ([502, 502], True))

    def test_deadlinePasses(self) -> None:
        """So is a 504."""
        self.meet(requestTimeout=2.0)
        peer = self.half()
        self.clock.advance(2.1)
        heard = [each.status for each in peer.messages() if each.kind == "REP"]
        self.assertEqual((heard, peer.closed), ([504, 504], True))

    def test_probed(self) -> None:
        """PINGs to the peer show whether it still reads, as long as an answer is pending."""
        peer = self.half()
        heard = []
        for _ in range(5):
            self.clock.advance(0.5)
            heard.append([each.kind for each in peer.messages()])
        self.assertEqual(heard, [[], ["PING"], [], ["PING"], []])
        for peer in (self.alice, self.bob):
            peer.leave()
        self.clock.advance(100)

    def test_waitsForSafety(self) -> None:
        """A PONG that waits until what was published is safe is sent before the end, as the last answer or not."""
        for asks in (False, True):
            journal = SlowJournal()
            self.meet(journal=journal, durable=("t",))
            self.alice.publish("t")
            if asks:
                self.alice.request(self.bob.id, "/p", "R")
            self.alice.tell("PING", {"keepalive": {"timestamp": 1}}).endInput()
            if asks:
                self.bob.reply(self.alice.id, "R")
            self.assertFalse(self.alice.closed)
            journal.commit()
            self.clock.advance(0)
            self.assertEqual(self.alice.messages()[-1].kind, "PONG")
            self.assertTrue(self.alice.closed)

    def test_counted(self) -> None:
        """It left because it wanted to."""
        self.alice.endInput().leave()
        self.assertEqual(self.server.counts("left"), {"left: client closed": 1})
