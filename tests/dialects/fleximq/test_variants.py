"""FlexiMQ as the one client library in use speaks it: the other layout, and headers by position."""

from typing import Any

import msgpack

from tests.dialects.conversations import inPieces
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.wire.flexi_frames import Heard, cut, frame
from tests.wire.flexi_variants import INNER_B, LAYOUT_B, MAPS, POSITIONAL, POSITIONAL_B, VARIANTS, Variant, inLayoutB


class VariantCase(FlexiCase):
    """A server, and peers of any variant."""

    def fresh(self, variant: Variant) -> FlexiPeer:
        """Return a peer of this variant that has not joined."""
        peer = self.server.connect()
        peer.variant = variant
        return peer

    def join(self, variant: Variant, header: Any = None) -> FlexiPeer:
        """Return a peer of this variant that has joined."""
        return self.fresh(variant).join(header)

    def strictly(self) -> None:
        """Turn the variants off."""
        self.server = self.makeServer(strictFleximq=True)


class JoinTests(VariantCase):
    """How the answer to a JOIN looks."""

    def test_status(self) -> None:
        """Whoever sent a map reads status 200, in its layout; whoever sent an array gets no status."""
        for variant in VARIANTS:
            [heard] = self.fresh(variant).send("JOIN", {}).messages()
            self.assertEqual((heard.kind, heard.header), ("REP", {} if variant.positional else {"status": 200}))

    def test_correlated(self) -> None:
        """The correlation comes as a map in all of them."""
        for variant in VARIANTS:
            self.join(variant, {"reqrep": {"type": "request", "id": "J"}})

    def test_refused(self) -> None:
        """Errors before the JOIN are in the layout that was seen."""
        for variant in VARIANTS:
            [heard] = self.fresh(variant).send("SUB", {"topic": "t"}).messages()
            self.assertEqual((heard.sender, heard.header, type(heard.value)), (0, {"status": variant.status(401)}, str))

    def test_tooLarge(self) -> None:
        """So is a 413 to the very first message, though none of it was taken."""
        for variant in (MAPS, LAYOUT_B):
            peer = self.fresh(variant)
            whole = variant.frame("JOIN", 0, {"auth": {"type": "token", "token": "x"}}, bytes(100))
            place = 26 if variant.isB else len(whole) - 108
            peer.say(whole[:place] + (1 << 40).to_bytes(8, "big") + whole[place + 8 : len(whole) - 100])
            [heard] = peer.messages()
            self.assertEqual((heard.sender, heard.status, peer.closed), (0, 413, True))

    def test_withoutHeader(self) -> None:
        """A JOIN without a header tells no layout: the answer is in the document's, what follows in the one seen."""
        peer = self.fresh(LAYOUT_B)
        [heard] = cut(peer.say(frame("JOIN")).heard())
        self.assertEqual(heard.header, {"status": 200})
        peer.id = heard.sender
        [heard] = peer.send("SUB", {"topic": ""}).messages()
        self.assertError(heard, peer, 603)


class MixedTests(VariantCase):
    """Clients of all variants with each other."""

    def setUp(self) -> None:
        """Join one of each."""
        super().setUp()
        self.peers = [self.join(variant, {}) for variant in VARIANTS]

    def heardByAll(self, but: FlexiPeer | None = None) -> list[list[Heard]]:
        """Return what each heard, one left out."""
        return [peer.messages() for peer in self.peers if peer is not but]

    def test_published(self) -> None:
        """A PUB reaches all with the same map and payload, in each one's layout."""
        for peer in self.peers:
            peer.subscribe("t")
        for sender in self.peers:
            for number in range(3):
                sender.publish("t", number)
            for heard in self.heardByAll():
                self.assertEqual(
                    [(each.kind, each.sender, each.header, each.value) for each in heard],
                    [("PUB", sender.id, {"topic": "t"}, number) for number in range(3)],
                )

    def test_run(self) -> None:
        """So does a run in one read."""
        for peer in self.peers:
            peer.subscribe("t", "u")
        for sender in self.peers:
            frames = [
                sender.variant.frame("PUB", sender.id, {"topic": topic}, msgpack.packb(topic)) for topic in "ttutuuut"
            ]
            sender.say(b"".join(frames))
            for heard in self.heardByAll():
                self.assertEqual([each.value for each in heard], list("ttutuuut"))

    def test_broadcast(self) -> None:
        """A BCAST too."""
        for sender in self.peers:
            sender.tell("BCAST", {"status": 200}, "word")
            for peer in self.peers:
                wanted = [] if peer is sender else [({"status": peer.variant.status(200)}, "word")]
                self.assertEqual([(each.header, each.value) for each in peer.messages()], wanted)

    def test_asked(self) -> None:
        """REQ and REP pass between any two of them."""
        for asking in self.peers:
            for asked in self.peers:
                [request] = (
                    asking.request(asked.id, "/p", "R", 1).messages()
                    if asking is asked
                    else (asking.request(asked.id, "/p", "R", 1) and asked.messages())
                )
                self.assertEqual(
                    request.header,
                    {"routing": [{"client_id": asked.id, "path": "/p"}], "reqrep": {"type": "request", "id": "R"}},
                )
                [answer] = asked.reply(asking.id, "R", 2, status=404) and asking.messages()
                wanted = asked.id, asking.variant.status(404), 2
                self.assertEqual((answer.sender, answer.header["status"], answer.value), wanted)

    def test_recordedJoin(self) -> None:
        """The JOIN of the newer generation, byte by byte as its client library sends it."""
        peer = self.server.connect()
        peer.variant = INNER_B
        header = msgpack.packb({"reqrep": ["request", "01H2XQMGPE7ZPXXNKQD9XE8S6R"], "client_name": "svc"})
        peer.say(bytes.fromhex("010000000000" + "00" * 16 + "0000003c" + "0000000000000000") + header)
        self.assertEqual(len(header), 0x3C)
        [heard] = peer.messages()
        wanted = {"status": 200, "reqrep": {"type": "correlation", "id": "01H2XQMGPE7ZPXXNKQD9XE8S6R"}}
        self.assertEqual((heard.kind, heard.header), ("REP", wanted))
        peer.id = heard.sender
        self.clock.advance(31)
        [ping] = peer.messages()
        self.assertEqual(peer.answer("PONG", {"keepalive": {"timestamp": ping.header["keepalive"]["timestamp"]}}), [])

    def test_notified(self) -> None:
        """A NOTIF to several reaches each in its layout."""
        routing = [{"client_id": peer.id, "path": "/n"} for peer in self.peers]
        for sender in self.peers:
            sender.tell("NOTIF", {"routing": routing}, "n")
            for heard in self.heardByAll():
                self.assertEqual([(each.kind, each.header) for each in heard], [("NOTIF", {"routing": routing})])

    def test_errors(self) -> None:
        """The same rules, the same errors."""
        for peer in self.peers:
            for kind, header, status in (
                ("SUB", {"topic": ""}, 603),
                ("PUB", {}, 400),
                ("PUB", {"topic": "t", "auth": {"type": "token", "token": "x"}}, 400),
                ("NOTIF", {"routing": []}, 602),
            ):
                [heard] = peer.answer(kind, header)
                self.assertError(heard, peer, status)
            [heard] = peer.request(4711, "/p", "R").barrier()
            self.assertError(heard, peer, 600, "R", "/p")

    def test_keptAlive(self) -> None:
        """The broker's PING comes in each one's layout, and PINGs are answered."""
        for peer in self.peers:
            self.assertEqual(peer.barrier(), [])
        self.clock.advance(31)
        for heard in self.heardByAll():
            self.assertEqual([each.kind for each in heard], ["PING"])

    def test_silent(self) -> None:
        """After three intervals of silence the broker closes, but not on peers of layout B that answered no PING."""
        answered = self.join(LAYOUT_B, {})
        self.assertEqual(answered.answer("PONG", {"keepalive": {"timestamp": 1}}), [])
        for _ in range(7):
            self.clock.advance(15)
        self.assertEqual([peer.closed for peer in self.peers], [not variant.isB for variant in VARIANTS])
        self.assertTrue(answered.closed)

    def test_asBefore(self) -> None:
        """Between clients of the document's own form nothing changes: header and payload are the same bytes."""
        maps = self.peers[0]
        raw = b"\xdf\x00\x00\x00\x01\xda\x00\x05topic\xd9\x01t"
        maps.subscribe("t").send("PUB", raw, b"\x01")
        self.assertEqual(maps.heard(), frame("PUB", maps.id, raw, b"\x01"))
        other = self.join(LAYOUT_B, {}).subscribe("t")
        maps.send("PUB", raw, b"\x01")
        self.assertEqual(other.heard(), inLayoutB(frame("PUB", maps.id, raw, b"\x01")))


class NamedTests(VariantCase):
    """Clients that join with a name read it in the broker's routing entries, empty."""

    def setUp(self) -> None:
        """Join one with a name and one without."""
        super().setUp()
        self.named, self.other = self.join(MAPS, {"client_name": "svc"}), self.join(MAPS, {})

    def test_errors(self) -> None:
        """In errors."""
        for peer, more in ((self.named, {"client_name": ""}), (self.other, {})):
            [heard] = peer.answer("PUB", {})
            self.assertEqual(heard.header["routing"], [{"client_id": peer.id, "path": "", **more}])

    def test_brokerPaths(self) -> None:
        """In the broker's own answers."""
        [heard] = self.named.request(1, "/broker/about", "R").barrier()
        self.assertEqual(
            heard.header["routing"], [{"client_id": self.named.id, "path": "/broker/about", "client_name": ""}]
        )

    def test_lost(self) -> None:
        """In a NOTIF 600, whose entry is otherwise as it was sent."""
        for peer, more in ((self.named, {"client_name": ""}), (self.other, {})):
            [heard] = peer.answer("NOTIF", {"routing": [{"client_id": 4711, "path": "/p"}]})
            self.assertEqual(heard.header["routing"], [{"client_id": 4711, "path": "/p", **more}])

    def test_forwarded(self) -> None:
        """What others wrote is left as it is."""
        self.other.request(self.named.id, "/p", "R")
        [heard] = self.named.messages()
        self.assertEqual(heard.header["routing"], [{"client_id": self.named.id, "path": "/p"}])


class StrictTests(VariantCase):
    """With the variants turned off only the document holds."""

    def test_maps(self) -> None:
        """The document's own form is as ever."""
        self.strictly()
        self.assertEqual(self.join(MAPS, {}).barrier(), [])

    def test_arrays(self) -> None:
        """An array is no map: 400."""
        self.strictly()
        [heard] = self.fresh(POSITIONAL).send("JOIN", {}).messages()
        self.assertEqual(heard.header, {"status": 400})

    def test_layoutB(self) -> None:
        """The other layout is read as the document's, so it does not get in."""
        self.strictly()
        for variant in (LAYOUT_B, POSITIONAL_B):
            peer = self.server.connect().say(variant.frame("JOIN", 0, {}) + variant.frame("SUB", 1000, {"topic": "t"}))
            self.assertNotIn(200, [each.status for each in peer.messages()])


globals().update(inPieces(JoinTests))
