"""FlexiMQ sessions fed with whatever: the same however it is cut, and nothing but the protocol's own errors."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from fleximq.limits import Limits
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer, FlexiServer
from tests.processor_time import Measured
from tests.wire.flexi_frames import NAMES, cut, frame
from tests.wire.test_fleximq_header import VALUES, smallest

#: The ids of the two who listen, and of the one who talks, in these tests.
BOB, TALKER = 1000, 1001


def conversation() -> list[bytes]:
    """Return frames of every kind, right and wrong, as the client with the id ``TALKER`` says them."""
    routing = [{"client_id": BOB, "path": "/p"}]
    lost = [{"client_id": 4711, "path": "/p"}]
    request = {"type": "request", "id": "R"}
    said: list[tuple[Any, ...]] = [
        ("SUB", {"topic": "own"}),
        ("PUB", {"topic": "t"}, b"\x01"),
        ("PUB", {"topic": "t"}, b""),
        ("PUB", {"topic": "t"}, b"\xa5hello"),
        ("PUB", {"topic": "own"}, b"\x02"),
        ("PUB", {"topic": "t", "message_id": "m"}, b"\x03"),
        ("PUB", {"topic": "t", "routing": routing}, b"\x04"),
        ("PUB", {"topic": ""}),
        ("PUB", {"topic": "$sys/x"}),
        ("REQ", {"routing": routing, "reqrep": request}, b"\x05"),
        ("REQ", {"routing": lost, "reqrep": request}),
        ("REQ", {"routing": [{"client_id": 1, "path": "/no"}], "reqrep": request}),
        ("REP", {"routing": routing, "reqrep": {"type": "correlation", "id": "S"}}, b"\x06"),
        ("NOTIF", {"routing": routing + lost}, b"\x07"),
        ("NOTIF", {"routing": lost, "status": 500}),
        ("BCAST", {"status": 200}, b"\x08"),
        ("BCAST", None),
        (77, b"\xc1", b"skipped"),
        ("JOIN", None),
        ("UNSUB", {"topic": "own"}),
        ("PUB", {"topic": "own"}, b"\x09"),
        ("PUB", b"\xc1"),
        ("PING", {"keepalive": {"timestamp": 5}}),
    ]
    frames = [frame(kind, TALKER, header, *payload) for kind, header, *payload in said]
    frames += [frame("PUB", 5, {"topic": "t"}), frame("PUB", TALKER, {"topic": "t"}, b"\x0a", reserved=b"x" * 16)]
    return [frame("JOIN"), *frames, frame("PING", TALKER, {"keepalive": {"timestamp": 6}})]


class Room:
    """A fresh broker with Bob, who hears topic ``t``, and a talker who has not joined."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.server = FlexiServer(self.clock, **settings)
        self.bob = self.server.join().subscribe("t")
        self.talker = self.server.connect()

    def heard(self) -> tuple[bytes, bytes, bool]:
        """Return what talker and Bob heard, and whether the talker's connection was closed."""
        return self.talker.heard(), self.bob.heard(), self.talker.closed


class CutTests(FlexiCase):
    """The same bytes lead to the same answers and deliveries, however they are cut."""

    def test_wholeConversation(self) -> None:
        """What the conversation leads to, when it arrives at once."""
        room = Room()
        talker, bob, closed = room.talker.say(b"".join(conversation())), room.bob, room.talker.closed
        self.assertFalse(closed)
        self.assertEqual(
            [(each.kind, each.status) for each in talker.messages()],
            [
                ("REP", 200),
                ("PUB", None),
                ("REP", 400),
                ("REP", 403),
                ("REP", 600),
                ("REP", 404),
                ("NOTIF", 600),
                ("REP", 501),
                ("REP", 409),
                ("REP", 400),
                ("PONG", None),
                ("REP", 403),
                ("PONG", None),
            ],
        )
        self.assertEqual(
            [(each.kind, each.value) for each in bob.messages()],
            [("PUB", 1), ("PUB", None), ("PUB", "hello"), ("PUB", 3), ("PUB", 4), ("REQ", 5), ("REP", 6)]
            + [("NOTIF", 7), ("BCAST", 8), ("BCAST", None), ("PUB", 10)],
        )

    def test_everyByte(self) -> None:
        """In two pieces, cut at every byte."""
        stream = b"".join(conversation())
        whole = Room()
        whole.talker.say(stream)
        expected = whole.heard()
        for place in range(1, len(stream)):
            room = Room()
            room.talker.say(stream[:place]).say(stream[place:])
            self.assertEqual(room.heard(), expected, place)

    def test_smallPieces(self) -> None:
        """In pieces of one size."""
        stream = b"".join(conversation())
        whole = Room()
        whole.talker.say(stream)
        expected = whole.heard()
        for size in [*range(1, 30), 64, 100, 1000]:
            room = Room()
            for start in range(0, len(stream), size):
                room.talker.say(stream[start : start + size])
            self.assertEqual(room.heard(), expected, size)

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.sampled_from(conversation()[1:]), max_size=25), st.lists(st.integers(1, 3000), max_size=12))
    def test_anyOrderAnyCuts(self, frames: list[bytes], cuts: list[int]) -> None:
        """Any of these messages in any order, in any pieces."""
        stream = frame("JOIN") + b"".join(frames)
        whole, parts = Room(), Room()
        whole.talker.say(stream)
        start = 0
        for end in [*sorted(cuts), len(stream)]:
            parts.talker.say(stream[start:end])
            start = max(start, end)
        self.assertEqual(parts.heard(), whole.heard())


class NonsenseTests(FlexiCase):
    """Arbitrary bytes: the protocol's own errors, whole frames as answers, nobody else disturbed."""

    def check(self, room: Room) -> None:
        """Check that the talker heard whole frames, little is held, Bob is well, and nothing was logged."""
        kinds = {each.kind for each in cut(room.talker.heard())}
        self.assertLessEqual(kinds, {"REP", "NOTIF", "PONG", "PUB", "REQ", "BCAST"})
        self.assertLessEqual(room.talker.protocol.session.buffered, 4096)
        room.bob.messages()
        self.assertEqual(room.bob.barrier(), [])
        self.assertEqual(self.flushLoggedErrors(), [])

    @settings(deadline=None)
    @given(st.lists(st.binary(max_size=80), max_size=12))
    def test_notJoined(self, pieces: list[bytes]) -> None:
        """Before the JOIN: at most one answer, and then the end."""
        room = Room(limits=Limits(message=4096))
        for piece in pieces:
            room.talker.say(piece)
        self.check(room)

    @settings(deadline=None)
    @given(st.lists(st.binary(max_size=80), max_size=12))
    def test_joined(self, pieces: list[bytes]) -> None:
        """After the JOIN."""
        room = Room(limits=Limits(message=4096))
        room.talker.join()
        for piece in pieces:
            room.talker.say(piece)
        self.check(room)

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(st.integers(0, 12), st.sampled_from([TALKER, TALKER, TALKER, 0, BOB]), st.binary(max_size=40)),
            max_size=8,
        )
    )
    def test_framedNonsense(self, frames: list[tuple[int, int, bytes]]) -> None:
        """Whole frames with nonsense in their headers never end the connection, and each is answered or silent."""
        room = Room(limits=Limits(message=4096))
        room.talker.join({})  # which settles the layout
        for kind, client_id, header in frames:
            room.talker.send(kind, header, b"\x01", client_id=client_id)
        self.assertFalse(room.talker.closed)
        self.check(room)

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                st.dictionaries(
                    st.sampled_from(["routing", "reqrep", "topic", "status", "auth", "keepalive", "key", "reply_to"]),
                    VALUES,
                    max_size=3,
                ),
            ),
            max_size=6,
        )
    )
    def test_oddHeaders(self, messages: list[tuple[str, dict[str, Any]]]) -> None:
        """Maps with odd values under known names, over what is required."""
        room = Room(limits=Limits(message=4096))
        room.talker.join()
        for kind, odd in messages:
            room.talker.send(kind, {**smallest(kind), **odd})
        self.assertFalse(room.talker.closed)
        self.check(room)

    @settings(deadline=None)
    @given(st.binary(max_size=300))
    def test_behindGoodOnes(self, nonsense: bytes) -> None:
        """What stood before the nonsense was delivered."""
        room = Room(limits=Limits(message=4096))
        room.talker.join().say(frame("PUB", TALKER, {"topic": "t"}, b"\x01") * 3 + nonsense)
        self.assertEqual([each.value for each in room.bob.messages()[:3]], [1, 1, 1])
        self.check(room)


class BombTests(FlexiCase):
    """Headers that mean harm."""

    def bombed(self, raw: bytes, kind: str = "PUB") -> FlexiPeer:
        """Send a header, and return the peer after its one answer was checked."""
        peer = self.server.join()
        with Measured() as measured:
            [heard] = peer.answer(kind, raw)
        self.assertLess(measured.seconds, 1.0)
        self.assertError(heard, peer, 400)
        return peer

    def test_nesting(self) -> None:
        """Deep arrays and maps, short and with long lengths announced: 400, soon, and the connection goes on."""
        for marker in (b"\x91", b"\x81\xa1k", b"\xdc\xff\xff", b"\xdd\x00\x00\xff\xf0", b"\x81\x91"):
            for kind in ("PUB", "REQ", "PING"):
                self.bombed((marker * 65536)[:65536], kind)

    def test_announcedLengths(self) -> None:
        """Lengths of which nothing is there."""
        for marker in (
            b"\xdc",
            b"\xdd",
            b"\xde",
            b"\xdf",
            b"\xd9",
            b"\xda",
            b"\xdb",
            b"\xc4",
            b"\xc5",
            b"\xc6",
            b"\xc9",
        ):
            self.bombed(b"\x81\xa5topic" + marker + b"\xff" * 5)

    def test_manyErrors(self) -> None:
        """A thousand of them in one read are answered one by one, in linear time."""
        peer = self.server.join()
        with Measured() as measured:
            heard = cut(peer.ask(frame("PUB", peer.id, b"\x91" * 60) * 1000))
            self.assertEqual([each.status for each in heard], [400] * 1000)
        self.assertLess(measured.seconds, 1.0)
