"""FlexiMQ messages after the JOIN: the order of the checks, and what errors look like."""

from typing import Any

import msgpack

from fleximq.dialects.fleximq.messages import FlexiMessages
from fleximq.limits import Limits
from tests.dialects.flexi_peer import FlexiCase
from tests.wire.flexi_frames import NAMES, Heard, cut, frame
from tests.wire.test_flexi_rules import documented
from tests.wire.test_fleximq_header import good, smallest

#: Types that may be sent after the JOIN.
KINDS = [kind for kind in NAMES if kind != "JOIN"]


class CheckTests(FlexiCase):
    """Each kind of wrong message, and the order in which they are found."""

    def setUp(self) -> None:
        """Join one client."""
        super().setUp()
        self.peer = self.server.join()

    def refused(
        self, kind: str | int, header: Any, status: int, id: str | None = None, path: str = "", **more: Any
    ) -> Heard:
        """Send something wrong; check its one answer, and that the connection goes on."""
        heard: list[Heard] = self.peer.answer(kind, header, **more)
        self.assertEqual(len(heard), 1, (kind, header, heard))
        self.assertError(heard[0], self.peer, status, id, path)
        self.assertFalse(self.peer.closed)
        return heard[0]

    def addressed(self, kind: str) -> dict[str, Any]:
        """Return the smallest header of a type, its routing, if any, to this peer itself."""
        header = smallest(kind)
        if "routing" in header:
            header["routing"] = [{"client_id": self.peer.id, "path": "/p"}]
        return header

    def facts(self, header: dict[str, Any]) -> tuple[str | None, str]:
        """Return the id and the path that an error about this header has to name."""
        return ("01H2XQMGPE7ZPXXNKQD9XE8S6R" if "reqrep" in header else None), ("/p" if "routing" in header else "")

    def test_required(self) -> None:
        """Each missing field: 400, with the id and the path of the rest."""
        for kind in KINDS:
            for field in documented()[kind][0]:
                header = self.addressed(kind)
                del header[field]
                self.refused(kind, header, 400, *self.facts(header))

    def test_forbidden(self) -> None:
        """Each forbidden field: 400, naming it."""
        for kind in KINDS:
            for field in documented()[kind][1]:
                header = self.addressed(kind)
                header[field] = [{"client_id": 1234, "path": "/p"}] if field == "routing" else good(field, kind)
                heard = self.refused(kind, header, 400, *self.facts(header))
                self.assertIn(field, heard.value)

    def test_noMap(self) -> None:
        """Not MessagePack, or no map: 400; nothing to correlate with."""
        for kind in KINDS:
            for raw in (b"\xc1", b"\x81", msgpack.packb([{"topic": "t"}]), msgpack.packb("topic"), b"\xc0"):
                self.refused(kind, raw, 400)

    def test_unknownType(self) -> None:
        """A type that does not exist: its frame is skipped, 501, correlated if there was an id."""
        for kind in (10, 11, 128, 255):
            self.refused(kind, None, 501)
            self.refused(kind, b"\xc1", 501, payload=b"skipped")
            self.refused(kind, {"reqrep": {"id": "U", "type": 3}}, 501, "U")

    def test_forgedId(self) -> None:
        """A ClientID other than the own one: 403, not forwarded."""
        other = self.server.join().subscribe("t")
        for kind in KINDS:
            for client_id in (0, 1, other.id, 0xFFFFFFFF):
                header = self.addressed(kind)
                if "routing" in header:
                    header["routing"] = [{"client_id": other.id, "path": "/p"}]
                header |= {"topic": "t"} if "topic" in header else {}
                self.refused(kind, header, 403, *self.facts(header), client_id=client_id)
        self.assertEqual(other.messages(), [])

    def test_typeBeforeId(self) -> None:
        """An unknown type under a forged id: 501."""
        self.refused(99, None, 501, client_id=5)

    def test_idBeforeHeader(self) -> None:
        """A forged id with a broken header: 403."""
        self.refused("PUB", b"\xc1", 403, client_id=5)

    def test_headerBeforeFields(self) -> None:
        """Forbidden before required before types before routing."""
        self.assertIn("'auth'", self.refused("REQ", {"auth": 1}, 400).value)
        self.assertIn("'reqrep'", self.refused("REQ", {"routing": 7, "status": "x"}, 400).value)
        self.assertIn("'status'", self.refused("NOTIF", {"routing": 7, "status": "x"}, 400).value)
        self.refused("NOTIF", {"routing": 7}, 602)

    def test_routing(self) -> None:
        """Missing routing: 400. Wrong routing: 602, with the id and the path as far as they can be read."""
        reqrep = {"type": "request", "id": "R"}
        self.refused("REQ", {"reqrep": reqrep}, 400, "R")
        self.refused("NOTIF", {}, 400)
        for routing in (None, 5, [], [7], [{"path": 5}], [{"client_id": 0, "path": ""}]):
            self.refused("REQ", {"reqrep": reqrep, "routing": routing}, 602, "R")
        self.refused("REQ", {"reqrep": reqrep, "routing": [{"client_id": 0, "path": "/x"}]}, 602, "R", "/x")
        two = [{"client_id": 1, "path": "/a"}, {"client_id": 1, "path": "/b"}]
        self.refused("REQ", {"reqrep": reqrep, "routing": two}, 602, "R", "/a")
        self.refused("REQ", {"reqrep": reqrep, "routing": [{"client_id": 1000}]}, 602, "R")
        self.refused("NOTIF", {"routing": [{"client_id": 1000}]}, 602)
        self.refused("PUB", {"topic": "t", "routing": []}, 602)

    def test_auth(self) -> None:
        """Credentials after the JOIN are a forbidden field: 400, not 604."""
        self.refused("PUB", {"topic": "t", "auth": {"type": "magic"}}, 400)

    def test_allWrongInOneRun(self) -> None:
        """Equal wrong messages, which arrive as one run, are answered one by one."""
        heard = cut(self.peer.ask(frame("SUB", self.peer.id, {"topic": ""}) * 3))
        self.assertEqual([each.status for each in heard], [603] * 3)

    def test_counted(self) -> None:
        """Every error is counted by its status."""
        self.refused("PUB", {}, 400)
        self.refused("PUB", {}, 400)
        self.refused(99, None, 501)
        self.assertEqual(self.server.counts("error"), {"error: 400": 2, "error: 501": 1})


class ErrorReportTests(FlexiCase):
    """A REP or NOTIF that reports an error itself is never answered, whatever is wrong with it."""

    def test_neverAnswered(self) -> None:
        """Forged ids, unknown targets, malformed headers: silence, and the connection goes on."""
        peer = self.server.join()
        routing = [{"client_id": 4711, "path": "/x"}]
        reqrep = {"type": "correlation", "id": "X"}
        for kind, header in (
            ("NOTIF", {"routing": routing}),
            ("NOTIF", {"routing": routing, "topic": "forbidden"}),
            ("NOTIF", {"routing": []}),
            ("NOTIF", {}),
            ("REP", {"routing": routing, "reqrep": reqrep}),
            ("REP", {"routing": routing}),
            ("REP", {"routing": routing, "reqrep": 5}),
            ("REP", {"routing": 5, "reqrep": reqrep}),
        ):
            for status in (400, 404, 600, 1 << 40):
                self.assertEqual(peer.answer(kind, {**header, "status": status}), [], (kind, header))
                self.assertEqual(peer.answer(kind, {**header, "status": status}, client_id=77), [])

    def test_belowIsAnswered(self) -> None:
        """With a status below 400, or none, it is answered."""
        peer = self.server.join()
        routing = [{"client_id": 4711, "path": "/x"}]
        for more in ({}, {"status": 200}, {"status": 399}):
            self.assertEqual([each.status for each in peer.answer("NOTIF", {"routing": routing, **more})], [600])
            self.assertEqual([each.status for each in peer.answer("NOTIF", {**more})], [400])

    def test_othersAreAnswered(self) -> None:
        """In other types a status of 400 or more changes nothing."""
        peer = self.server.join()
        header = {
            "routing": [{"client_id": 4711, "path": "/x"}],
            "reqrep": {"type": "request", "id": "R"},
            "status": 500,
        }
        [heard] = peer.answer("REQ", header)
        self.assertError(heard, peer, 600, "R", "/x")
        [heard] = peer.answer("PUB", {"topic": "", "status": 500})
        self.assertError(heard, peer, 400)

    def test_deliveredAllTheSame(self) -> None:
        """An error report to somebody who is there arrives."""
        alice, bob = self.server.join(), self.server.join()
        alice.tell("NOTIF", {"routing": [{"client_id": bob.id, "path": "/x"}], "status": 500})
        self.assertEqual([each.status for each in bob.messages()], [500])

    def test_countedSilently(self) -> None:
        """What is not answered is counted."""
        self.server.join().tell("NOTIF", {"status": 500})
        self.assertEqual(self.server.counts("error"), {"error: 400": 1})


class FramingTests(FlexiCase):
    """What ends a connection: lengths over their limits, another version."""

    def setUp(self) -> None:
        """Join one client that may say 4 KiB."""
        super().setUp()
        self.server = self.makeServer(limits=Limits(message=4096))
        self.peer = self.server.join()

    def test_tooLarge(self) -> None:
        """One byte over: 413 with the correlation, then close; nothing behind it is looked at."""
        header = {"routing": [{"client_id": self.peer.id, "path": "/p"}], "reqrep": {"type": "request", "id": "R"}}
        size = 4096 - len(frame("REQ", self.peer.id, header))
        self.assertEqual([each.kind for each in self.peer.answer("REQ", header, bytes(size))], ["REQ"])
        [heard] = self.peer.send("REQ", header, bytes(size + 1)).messages()
        self.assertError(heard, self.peer, 413, "R", "/p")
        self.assertTrue(self.peer.closed)

    def test_onThePrefix(self) -> None:
        """The answer comes with the length, before the payload."""
        whole = frame("PUB", self.peer.id, {"topic": "t"}, bytes(5000))
        prefix = whole[: len(whole) - 5000]
        self.assertEqual(self.peer.ask(prefix[:-1]), b"")
        [heard] = cut(self.peer.ask(prefix[-1:]))
        self.assertError(heard, self.peer, 413)

    def test_headerTooLarge(self) -> None:
        """Of a header that is too long nothing is known."""
        [heard] = cut(self.peer.ask(frame("REQ", self.peer.id, bytes(65537))[:26]))
        self.assertError(heard, self.peer, 413)
        self.assertTrue(self.peer.closed)

    def test_errorReportTooLarge(self) -> None:
        """An error report that is too large is not answered, but ends the connection."""
        header = {"routing": [{"client_id": self.peer.id, "path": "/p"}], "status": 500}
        self.assertEqual((self.peer.send("NOTIF", header, bytes(5000)).heard(), self.peer.closed), (b"", True))

    def test_version(self) -> None:
        """Another version: 400, then close."""
        [heard] = self.peer.send("PUB", {"topic": "t"}, version=2).messages()
        self.assertError(heard, self.peer, 400)
        self.assertTrue(self.peer.closed)

    def test_goodOnesBefore(self) -> None:
        """What came before in the same read is done and answered first."""
        other = self.server.join().subscribe("t")
        good = frame("PUB", self.peer.id, {"topic": "t"}, b"\x01")
        heard = cut(self.peer.ask(good * 2 + frame("SUB", self.peer.id, {"topic": ""}) + frame(0, 0, version=9) + good))
        self.assertEqual([each.status for each in heard], [603, 400])
        self.assertEqual(other.values(), [1, 1])

    def test_reasonCounted(self) -> None:
        """The reason of the end is counted."""
        self.peer.send("PUB", version=3).leave()
        self.assertEqual(self.server.counts("left"), {"left: error 400": 1})

    def test_defaults(self) -> None:
        """Without a setting 16 MiB are taken whole, and one more byte is refused."""
        server = self.makeServer()
        peer = server.join().subscribe("t")
        header = {"topic": "t"}
        most = (16 << 20) - len(frame("PUB", peer.id, header))
        peer.protocol.dataReceived(frame("PUB", peer.id, header, bytes(most)))
        self.assertEqual(len(peer.heard()), 16 << 20)
        peer.protocol.dataReceived(frame("PUB", peer.id, header)[:-8] + (most + 1).to_bytes(8, "big"))
        self.assertEqual([each.status for each in peer.messages()], [413])


class ReservedTests(FlexiCase):
    """Reserved bytes are ignored when they come in, and zero when they go out."""

    def test_restamped(self) -> None:
        """Every type that is forwarded is forwarded with zeros, the rest unchanged."""
        alice, bob = self.server.join(), self.server.join()
        bob.subscribe("t")
        routing = [{"client_id": bob.id, "path": "/p"}]
        headers: list[tuple[str, dict[str, Any]]] = [
            ("PUB", {"topic": "t"}),
            ("PUB", {"topic": "t", "routing": routing}),
            ("BCAST", {}),
            ("NOTIF", {"routing": routing}),
            ("REQ", {"routing": routing, "reqrep": {"type": "request", "id": "R"}}),
            ("REP", {"routing": routing, "reqrep": {"type": "correlation", "id": "R"}}),
        ]
        for kind, header in headers:
            for reserved in (b"\x01" + bytes(15), bytes(15) + b"\x80", b"\xff" * 16):
                alice.send(kind, header, b"\x05", reserved=reserved)
                self.assertEqual(bob.heard(), frame(kind, alice.id, header, b"\x05"), kind)

    def test_inARun(self) -> None:
        """A run of stamped frames, then others, then stamped ones again."""
        alice, bob = self.server.join(), self.server.join().subscribe("t")
        clean = frame("PUB", alice.id, {"topic": "t"}, b"\x05")
        marked = frame("PUB", alice.id, {"topic": "t"}, b"\x05", reserved=b"x" * 16)
        alice.say(clean * 3 + marked * 3 + clean * 2 + marked)
        self.assertEqual(bob.heard(), clean * 9)


class OwnFaultTests(FlexiCase):
    """Broken inside: only the connection concerned ends."""

    def test_internal(self) -> None:
        """What nobody foresaw: 500, then close, and the failure is logged; others notice nothing."""
        alice, bob = self.server.join(), self.server.join()
        self.patch(FlexiMessages, "message_BCAST", lambda *arguments: 1 / 0)
        [heard] = alice.send("BCAST").messages()
        self.assertError(heard, alice, 500)
        self.assertTrue(alice.closed)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(bob.barrier(), [])
