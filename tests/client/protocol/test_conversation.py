"""What a client says is what the document asks for, and what it hears is understood at every split."""

from collections.abc import Iterator
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.events import (
    Delivery,
    Event,
    Joined,
    Notification,
    Pinged,
    Ponged,
    Refusal,
    Reply,
    Request,
)
from fleximq.client.payloads import errorText, packed, unpacked
from fleximq.client.protocol.conversation import Conversation, conversationOn
from fleximq.errors import BadFraming, TooLarge
from fleximq.values.key_pairs import newPrivateKey, publicKeyOf, sign
from fleximq.values.urls import Url
from fleximq.wire.fleximq_header import Header, MessageType, checkHeader, peek
from tests.wire.flexi_frames import Heard, cut, frame

WELCOME = frame("REP", 1000, {"status": 200})


def eventsIn(conversation: Conversation, data: bytes) -> Iterator[Event]:
    """Yield what a conversation hears, each delivery alone."""
    for each in conversation.runs(data):
        if isinstance(each, list):
            yield from each
        else:
            yield each


def joined(**more: Any) -> Conversation:
    """Return a conversation that has the id 1000."""
    conversation = Conversation(**more)
    assert list(eventsIn(conversation, WELCOME)) == [Joined(1000)]
    return conversation


def checked(data: bytes) -> tuple[Heard, Header]:
    """Return the one frame that this is, and its header, which the broker's own rules take."""
    [heard] = cut(data)
    return heard, checkHeader(MessageType[heard.kind], peek(heard.raw[26 : len(heard.raw) - 8 - len(heard.payload)]))


class SaidTests(SynchronousTestCase):
    """Every message, as the broker reads it."""

    def setUp(self) -> None:
        """Have joined."""
        self.conversation = joined()

    def test_join(self) -> None:
        """A JOIN has no header unless there is something to say."""
        [heard] = cut(Conversation().join())
        self.assertEqual((heard.kind, heard.sender, heard.header, heard.payload), ("JOIN", 0, {}, b""))

    def test_joinWithCredentials(self) -> None:
        """Credentials and a name are where the document has them."""
        heard, _ = checked(Conversation().join({"type": "token", "token": "t"}, "me"))
        self.assertEqual(heard.header, {"client_name": "me", "auth": {"type": "token", "token": "t"}})

    def test_privateKey(self) -> None:
        """A private key is not sent: it signs the broker's challenge in another JOIN, once."""
        key = newPrivateKey()
        conversation = Conversation()
        conversation.begin({"type": "private_key", "private_key": key}, "me")
        [first] = conversation.toSend
        auth = {"type": "public_key", "public_key": publicKeyOf(key)}
        self.assertEqual(checked(first)[0].header, {"client_name": "me", "auth": auth})
        answer = frame("REP", 0, {"status": 401}, msgpack.packb({"error": "sign", "challenge": "c"}))
        self.assertEqual(list(eventsIn(conversation, answer)), [])
        second, _ = checked(conversation.toSend[1])
        self.assertEqual(second.header["auth"], auth | {"signature": sign(key, "c")})
        [refused] = eventsIn(conversation, answer)
        self.assertEqual((type(refused), len(conversation.toSend)), (Refusal, 2))

    def test_refusedKey(self) -> None:
        """A refusal without a challenge is one."""
        for payload in (b"", b"\xc1", msgpack.packb("no"), msgpack.packb({"challenge": 7})):
            conversation = Conversation()
            conversation.begin({"type": "private_key", "private_key": newPrivateKey()})
            [refused] = eventsIn(conversation, frame("REP", 0, {"status": 401}, payload))
            self.assertIsInstance(refused, Refusal)

    def test_publication(self) -> None:
        """A PUB names its topic and the client."""
        heard, header = checked(self.conversation.publication("news", b"\x01"))
        self.assertEqual((heard.sender, header.topic, heard.value), (1000, "news", 1))

    def test_keys(self) -> None:
        """Further keys stand beside the topic."""
        heard, _ = checked(self.conversation.publication("news", b"", {"message_id": "1", "key": b"k"}))
        self.assertEqual(heard.header, {"topic": "news", "message_id": "1", "key": b"k"})

    def test_topicSaidBeforeJoining(self) -> None:
        """A head made before the id was known is not used after."""
        conversation = Conversation()
        conversation.publication("news", b"")
        list(eventsIn(conversation, WELCOME))
        self.assertEqual(cut(conversation.publication("news", b""))[0].sender, 1000)

    def test_publications(self) -> None:
        """Many are one piece, each a frame of its own."""
        data = self.conversation.publications("news", list(map(packed, range(100))))
        self.assertEqual([heard.value for heard in cut(data)], list(range(100)))
        self.assertEqual(self.conversation.publications("news", []), b"")

    def test_binary(self) -> None:
        """Values that are bytes get the head that MessagePack gives them, at every kind of length."""
        values = [bytes(size) for size in (0, 1, 255, 256, 65_535, 65_536)]
        data = self.conversation.publications("news", values, areBinary=True)
        self.assertEqual(data, self.conversation.publications("news", list(map(msgpack.packb, values))))

    def test_tooLong(self) -> None:
        """Bytes that MessagePack cannot hold are refused."""

        class Long(bytes):
            def __len__(self) -> int:
                return 1 << 32

        self.assertRaises(ValueError, self.conversation.publications, "news", [Long()], areBinary=True)

    def test_manyTopics(self) -> None:
        """More topics than are remembered are all said right."""
        for n in [*range(1500), 0, 1499]:
            self.assertEqual(cut(self.conversation.publication(f"t{n}", b""))[0].header, {"topic": f"t{n}"})

    def test_subscription(self) -> None:
        """A SUB names the pattern, and nothing else without a start."""
        heard, header = checked(self.conversation.subscription("a.*"))
        self.assertEqual((heard.header, header.start), ({"topic": "a.*"}, None))

    def test_starts(self) -> None:
        """Each kind of start is one that the broker knows."""
        for start, kind in [("first", "first"), ("last", "last"), (7, "offset"), (0, "offset"), ({"time": 5}, "time")]:
            _, header = checked(self.conversation.subscription("a", start))
            assert header.start is not None
            self.assertEqual(header.start.kind, kind)

    def test_unsubscription(self) -> None:
        """An UNSUB names what the SUB did."""
        self.assertEqual(checked(self.conversation.unsubscription("a.*"))[0].header, {"topic": "a.*"})

    def test_request(self) -> None:
        """A REQ has one target and an id."""
        heard, header = checked(self.conversation.request(1001, "/do", b"\x01", "x"))
        self.assertEqual((heard.sender, header.routing, header.id), (1000, ((1001, "/do", ""),), "x"))

    def test_reply(self) -> None:
        """A REP goes to who asked, with his id and a status."""
        asked = Request("x", "/do", b"", 1001, {})
        heard, header = checked(self.conversation.reply(asked, b"\x01", 404))
        self.assertEqual((header.routing, header.id, heard.status), (((1001, "/do", ""),), "x", 404))

    def test_notification(self) -> None:
        """A NOTIF names all its targets."""
        _, header = checked(self.conversation.notification([5, 6], "/n", b""))
        self.assertEqual(header.routing, ((5, "/n", ""), (6, "/n", "")))

    def test_broadcast(self) -> None:
        """A BCAST has no header."""
        [heard] = cut(self.conversation.broadcast(b"\x01"))
        self.assertEqual((heard.kind, heard.header, heard.value), ("BCAST", {}, 1))

    def test_pings(self) -> None:
        """PING and PONG have a timestamp, and a PING perhaps an interval."""
        self.assertEqual(checked(self.conversation.ping(5))[1].timestamp, 5)
        self.assertEqual(checked(self.conversation.ping(5, 300))[1].interval, 300)
        self.assertEqual(checked(self.conversation.pong(5))[0].header, {"keepalive": {"timestamp": 5}})


def correlated(id: str, **more: Any) -> dict[str, Any]:
    """Return the header of an answer."""
    return {"reqrep": {"type": "correlation", "id": id}, **more}


#: One of each that a broker can send, and what it means.
HEARD: list[tuple[bytes, Event]] = [
    (frame("PUB", 7, {"topic": "a", "offset": 5}, b"\x01"), Delivery("a", b"\x01", 7, {"topic": "a", "offset": 5})),
    (
        frame("REQ", 7, {"routing": [{"client_id": 1000, "path": "/p"}], **correlated("i")}, b"\x02"),
        Request("i", "/p", b"\x02", 7, {"routing": [{"client_id": 1000, "path": "/p"}], **correlated("i")}),
    ),
    (frame("REP", 7, correlated("i"), b"\x03"), Reply("i", 200, b"\x03", 7, correlated("i"))),
    (frame("REP", 1, correlated("i", status=600)), Reply("i", 600, b"", 1, correlated("i", status=600))),
    (
        frame("REP", 1, {"status": 403, "routing": [{"client_id": 1000, "path": "t"}]}, msgpack.packb("no")),
        Refusal(403, "no", "t", msgpack.packb("no")),
    ),
    (
        frame("NOTIF", 1, {"status": 600, "routing": [{"client_id": 9, "path": "/x"}]}),
        Refusal(600, "", "/x", b""),
    ),
    (
        frame("NOTIF", 7, {"status": 600, "routing": [{"client_id": 1000, "path": "/x"}]}),
        Notification("/x", b"", 7, {"status": 600, "routing": [{"client_id": 1000, "path": "/x"}]}),
    ),
    (frame("BCAST", 7, None, b"\x04"), Notification(None, b"\x04", 7, {})),
    (frame("PING", 1, {"keepalive": {"timestamp": 8, "interval": 30}}), Pinged(8)),
    (frame("PONG", 1, {"keepalive": {"timestamp": 9}}), Ponged(9)),
]
ALL = b"".join(data for data, _ in HEARD)
EVENTS = [event for _, event in HEARD]


class HeardTests(SynchronousTestCase):
    """Every message that a broker sends."""

    def test_each(self) -> None:
        """Each one means what it should."""
        for data, event in HEARD:
            self.assertEqual(list(eventsIn(joined(), data)), [event])

    def test_everySplit(self) -> None:
        """Cut in two at any place, they mean the same."""
        for place in range(len(ALL) + 1):
            conversation = joined()
            events = [*eventsIn(conversation, ALL[:place]), *eventsIn(conversation, ALL[place:])]
            self.assertEqual(events, EVENTS, place)

    def test_byteByByte(self) -> None:
        """One byte at a time, they mean the same."""
        conversation = joined()
        self.assertEqual([each for byte in ALL for each in eventsIn(conversation, bytes((byte,)))], EVENTS)

    def test_largeAnswers(self) -> None:
        """A large answer means the same as a small one, with a value or as a refusal."""
        value = bytes(range(256)) * 1024
        [event] = eventsIn(joined(), frame("REP", 7, correlated("i"), packed(value)))
        self.assertEqual(event, Reply("i", 200, packed(value), 7, correlated("i")))
        self.assertEqual(unpacked(event.payload), value)  # type: ignore[union-attr]
        refusal = eventsIn(joined(), frame("REP", 1, {"status": 403}, packed("no" * 40_000)))
        self.assertEqual(list(refusal), [Refusal(403, "no" * 40_000, "", packed("no" * 40_000))])

    def test_run(self) -> None:
        """A run is as many deliveries, in order."""
        run = b"".join(frame("PUB", 7, {"topic": "a"}, packed(n)) for n in range(300))
        self.assertEqual([each.value for each in eventsIn(joined(), run)], list(range(300)))  # type: ignore[union-attr]

    def test_alternating(self) -> None:
        """Topics and publishers that alternate, more than are remembered, twice, with fields and without."""
        said = [(f"t{n}", n % 3, {"key": str(n)} if n % 5 == 0 else {}) for n in range(1500)] * 2
        data = b"".join(frame("PUB", sender, {"topic": topic, **more}, b"\x01") for topic, sender, more in said)
        heard = [each for each in eventsIn(joined(), data) if isinstance(each, Delivery)]
        self.assertEqual([(each.topic, each.publisher, each.header) for each in heard],
                         [(topic, sender, {"topic": topic, **more}) for topic, sender, more in said])  # fmt: skip
        self.assertEqual({each.payload for each in heard}, {b"\x01"})

    def test_meaningless(self) -> None:
        """What means nothing to a client is passed over."""
        for data in [
            frame("REP", 1, {}),
            frame("REP", 1, {"status": 200}),
            frame("REP", 7, {"status": 500}),
            frame("REP", 1, b"\xc1"),
            frame("REQ", 7, {}),
            frame("PING", 1, {}),
            frame("PONG", 1, {"keepalive": {"timestamp": "x"}}),
            frame("SUB", 7, {"topic": "a"}),
            frame(200, 7),
        ]:
            self.assertEqual(list(eventsIn(joined(), data)), [], data)

    def test_refusedToJoin(self) -> None:
        """Before the JOIN was answered, an error is a refusal of it."""
        data = frame("REP", 0, {"status": 401}, msgpack.packb("who?"))
        conversation = Conversation()
        self.assertEqual(list(eventsIn(conversation, data)), [Refusal(401, "who?", "", msgpack.packb("who?"))])
        self.assertEqual(conversation.id, 0)

    def test_garbage(self) -> None:
        """What is no FlexiMQ is an error, behind all that was understood."""
        conversation = joined()
        events = eventsIn(conversation, HEARD[0][0] + b"\x02" + bytes(40))
        self.assertEqual(next(events), HEARD[0][1])
        self.assertRaises(BadFraming, next, events)

    def test_tooLarge(self) -> None:
        """A message over the limit is refused on its length; one at the limit is not."""
        data = frame("BCAST", 7, None, bytes(66))
        self.assertEqual(len(list(eventsIn(joined(limit=100), data))), 1)
        self.assertRaises(TooLarge, list, eventsIn(joined(limit=99), data[:34]))

    def test_longHeader(self) -> None:
        """A header may be longer than a client's own, for the broker adds to it."""
        header = {"topic": "t", "pad": "x" * 65_536, "offset": 5}
        [event] = eventsIn(joined(), frame("PUB", 7, header))
        self.assertEqual(event, Delivery("t", b"", 7, header))


class JoiningTests(SynchronousTestCase):
    """What a broker may send before it answers the JOIN."""

    def test_bytesBeforeAnswer(self) -> None:
        """Up to 1 MiB in all is read, even if a longer frame is announced; more is an error."""
        conversation = Conversation()
        long = frame("PUB", 1, {"topic": "a"}, bytes(1 << 24))
        self.assertEqual(list(conversation.runs(long[: 1 << 20])), [])
        self.assertRaises(TooLarge, list, conversation.runs(b"a"))

    def test_bytesBeforeAnswerOnWebSocket(self) -> None:
        """The same holds on a WebSocket, whose frame may be incomplete."""
        conversation = conversationOn(Url.parse("ws://localhost:7890"), unpacked)
        self.assertEqual(list(conversation.runs(b"a")), [])
        self.assertRaises(TooLarge, list, conversation.runs(bytes(1 << 20)))

    def test_bytesAfterAnswer(self) -> None:
        """Once joined, a message may be longer."""
        conversation = joined()
        long = frame("PUB", 7, {"topic": "a"}, bytes(3 << 20))
        self.assertEqual(len(list(eventsIn(conversation, long))), 1)


class ValuesTests(SynchronousTestCase):
    """Payloads there and back."""

    def test_nothing(self) -> None:
        """No bytes are None."""
        self.assertIsNone(unpacked(b""))

    def test_noValues(self) -> None:
        """What is no single value, or none that Python can hold, is a ValueError."""
        for payload in [b"\xc1", b"\x01\x01", b"\xa5ab", b"\xa1\xff", b"\x81\x90\x01", b"\xc7\x0c\xff" + b"\xff" * 12]:
            self.assertRaises(ValueError, unpacked, payload)

    def test_words(self) -> None:
        """An error says a text, or a map with one; all else is no words."""
        for value, words in [
            ("no", "no"),
            ({"error": "no", "first": 5}, "no"),
            (5, ""),
            ({"error": 5}, ""),
            (None, ""),
        ]:
            self.assertEqual(errorText(packed(value)), words)
        self.assertEqual(errorText(b"\xc1"), "")

    def test_offset(self) -> None:
        """A delivery without a number under ``offset`` has no offset."""
        self.assertIsNone(Delivery("a", b"", 7, {"offset": "5"}).offset)
        self.assertEqual(Delivery("a", b"", 7, {"offset": 5}).offset, 5)


_NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


class ArbitraryTests(SynchronousTestCase):
    """Whatever comes, in whatever pieces."""

    @given(_VALUES)
    def test_values(self, value: Any) -> None:
        """Every value of MessagePack comes back."""
        self.assertEqual(unpacked(packed(value)), value)

    @given(st.lists(st.integers(0, len(ALL))))
    def test_pieces(self, places: list[int]) -> None:
        """However it is cut, the same is heard."""
        conversation = joined()
        cuts = [0, *sorted(places), len(ALL)]
        pieces = [ALL[start:end] for start, end in zip(cuts, cuts[1:], strict=False)]
        self.assertEqual([event for piece in pieces for event in eventsIn(conversation, piece)], EVENTS)

    @given(st.lists(st.binary(max_size=60)), st.integers(0, 12))
    def test_bytes(self, pieces: list[bytes], kind: int) -> None:
        """Arbitrary bytes are events or one of the two errors, also behind a frame's beginning."""
        conversation = joined()
        try:
            for piece in [b"\x01" + bytes((kind,)), *pieces]:
                list(eventsIn(conversation, piece))
        except (BadFraming, TooLarge):
            return

    @given(st.binary(max_size=60), st.binary(max_size=30), st.integers(0, 12))
    def test_headers(self, header: bytes, payload: bytes, kind: int) -> None:
        """Arbitrary headers in whole frames do no harm to what comes behind them."""
        events = list(eventsIn(joined(), frame(kind, 1, header or None, payload) + HEARD[0][0]))
        self.assertEqual(events[-1], HEARD[0][1])
