"""The frames that a client sends are those of the document; those that it receives are read at every split."""

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
    """Yield the events of a conversation, each delivery alone."""
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
    """Return a frame and its header as the broker's own rules read it."""
    [heard] = cut(data)
    return heard, checkHeader(MessageType[heard.kind], peek(heard.raw[26 : len(heard.raw) - 8 - len(heard.payload)]))


class SaidTests(SynchronousTestCase):
    """Sent frames, as the broker reads them."""

    def setUp(self) -> None:
        """Join."""
        self.conversation = joined()

    def test_eachFrameIsAsTheDocumentHasIt(self) -> None:
        """Sender, header and payload; a JOIN has no sender, and a header only with a name or credentials."""
        one, auth = self.conversation, {"type": "token", "token": "t"}
        asked = Request("x", "/do", b"", 1001, {})
        several = [{"client_id": 5, "path": "/n"}, {"client_name": "svc", "path": "/n"}]
        reply = {
            "status": 404,
            "routing": [{"client_id": 1001, "path": "/do"}],
            "reqrep": {"type": "correlation", "id": "x"},
        }
        request = {"routing": [{"client_id": 1001, "path": "/do"}], "reqrep": {"type": "request", "id": "x"}}
        fields = {"topic": "news", "message_id": "1", "key": b"k"}
        for data, kind, header, payload in (
            (Conversation().join(), "JOIN", {}, b""),
            (Conversation().join(auth, "me"), "JOIN", {"client_name": "me", "auth": auth}, b""),
            (one.publication("news", b"\1"), "PUB", {"topic": "news"}, b"\1"),
            (one.publication("news", b"", {"message_id": "1", "key": b"k"}), "PUB", fields, b""),
            (one.subscription("a.*"), "SUB", {"topic": "a.*"}, b""),
            (one.unsubscription("a.*"), "UNSUB", {"topic": "a.*"}, b""),
            (one.request(1001, "/do", b"\1", "x"), "REQ", request, b"\1"),
            (one.reply(asked, b"\1", 404), "REP", reply, b"\1"),
            (one.notification([5, "svc"], "/n", b""), "NOTIF", {"routing": several}, b""),
            (one.broadcast(b"\1"), "BCAST", {}, b"\1"),
            (one.ping(5), "PING", {"keepalive": {"timestamp": 5}}, b""),
            (one.ping(5, 300), "PING", {"keepalive": {"timestamp": 5, "interval": 300}}, b""),
            (one.pong(5), "PONG", {"keepalive": {"timestamp": 5}}, b""),
        ):
            heard, _ = checked(data)
            sender = 0 if kind == "JOIN" else 1000
            self.assertEqual((heard.kind, heard.sender, heard.header, heard.payload), (kind, sender, header, payload))

    def test_privateKeySignsTheChallengeOnce(self) -> None:
        """It is not sent."""
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

    def test_refusalWithoutAChallengeIsOne(self) -> None:
        """Of a private key."""
        for payload in (b"", b"\xc1", msgpack.packb("no"), msgpack.packb({"challenge": 7})):
            conversation = Conversation()
            conversation.begin({"type": "private_key", "private_key": newPrivateKey()})
            [refused] = eventsIn(conversation, frame("REP", 0, {"status": 401}, payload))
            self.assertIsInstance(refused, Refusal)

    def test_headMadeBeforeJoiningIsNotUsedAgain(self) -> None:
        """It has another id."""
        conversation = Conversation()
        conversation.publication("news", b"")
        list(eventsIn(conversation, WELCOME))
        self.assertEqual(cut(conversation.publication("news", b""))[0].sender, 1000)

    def test_severalPublicationsAreFramesInOnePiece(self) -> None:
        """None are no bytes."""
        data = self.conversation.publications("news", list(map(packed, range(100))))
        self.assertEqual([heard.value for heard in cut(data)], list(range(100)))
        self.assertEqual(self.conversation.publications("news", []), b"")

    def test_bytesArePackedAsByMessagePack(self) -> None:
        """At each kind of length."""
        values = [bytes(size) for size in (0, 1, 255, 256, 65_535, 65_536)]
        data = self.conversation.publications("news", values, areBinary=True)
        self.assertEqual(data, self.conversation.publications("news", list(map(msgpack.packb, values))))

    def test_bytesBeyondMessagePackAreRefused(self) -> None:
        """4 GiB or more."""

        class Long(bytes):
            def __len__(self) -> int:
                return 1 << 32

        self.assertRaises(ValueError, self.conversation.publications, "news", [Long()], areBinary=True)

    def test_moreTopicsThanAreRememberedAreRight(self) -> None:
        """Each has its own head."""
        for n in [*range(1500), 0, 1499]:
            self.assertEqual(cut(self.conversation.publication(f"t{n}", b""))[0].header, {"topic": f"t{n}"})

    def test_eachStartIsOneOfTheBroker(self) -> None:
        """By its own rules."""
        for start, kind in [("first", "first"), ("last", "last"), (7, "offset"), (0, "offset"), ({"time": 5}, "time")]:
            _, header = checked(self.conversation.subscription("a", start))
            assert header.start is not None
            self.assertEqual(header.start.kind, kind)


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
    """Received frames."""

    def test_eachFrameIsItsEvent(self) -> None:
        """As listed above."""
        for data, event in HEARD:
            self.assertEqual(list(eventsIn(joined(), data)), [event])

    def test_piecesOfOneAndSevenBytesAreTheSameEvents(self) -> None:
        """See also the arbitrary pieces below."""
        for size in (1, 7):
            conversation = joined()
            pieces = [ALL[place : place + size] for place in range(0, len(ALL), size)]
            self.assertEqual([event for piece in pieces for event in eventsIn(conversation, piece)], EVENTS)

    def test_largeAnswersAreAsSmallOnes(self) -> None:
        """With a value, or as a refusal."""
        value = bytes(range(256)) * 1024
        [event] = eventsIn(joined(), frame("REP", 7, correlated("i"), packed(value)))
        self.assertEqual(event, Reply("i", 200, packed(value), 7, correlated("i")))
        self.assertEqual(unpacked(event.payload), value)  # type: ignore[union-attr]
        refusal = eventsIn(joined(), frame("REP", 1, {"status": 403}, packed("no" * 40_000)))
        self.assertEqual(list(refusal), [Refusal(403, "no" * 40_000, "", packed("no" * 40_000))])

    def test_runIsItsDeliveriesInOrder(self) -> None:
        """Each with its value."""
        run = b"".join(frame("PUB", 7, {"topic": "a"}, packed(n)) for n in range(300))
        self.assertEqual([each.value for each in eventsIn(joined(), run)], list(range(300)))  # type: ignore[union-attr]

    def test_alternatingTopicsAndPublishersAreNotMixed(self) -> None:
        """More than are remembered, with and without further fields."""
        said = [(f"t{n}", n % 3, {"key": str(n)} if n % 5 == 0 else {}) for n in range(1500)] * 2
        data = b"".join(frame("PUB", sender, {"topic": topic, **more}, b"\x01") for topic, sender, more in said)
        heard = [each for each in eventsIn(joined(), data) if isinstance(each, Delivery)]
        self.assertEqual([(each.topic, each.publisher, each.header) for each in heard],
                         [(topic, sender, {"topic": topic, **more}) for topic, sender, more in said])  # fmt: skip
        self.assertEqual({each.payload for each in heard}, {b"\x01"})

    def test_framesWithoutAMeaningAreIgnored(self) -> None:
        """For a client."""
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

    def test_errorBeforeTheAnswerToTheJoinIsARefusal(self) -> None:
        """The client has no id then."""
        data = frame("REP", 0, {"status": 401}, msgpack.packb("who?"))
        conversation = Conversation()
        self.assertEqual(list(eventsIn(conversation, data)), [Refusal(401, "who?", "", msgpack.packb("who?"))])
        self.assertEqual(conversation.id, 0)

    def test_otherBytesAreAnErrorAfterEarlierEvents(self) -> None:
        """BadFraming."""
        conversation = joined()
        events = eventsIn(conversation, HEARD[0][0] + b"\x02" + bytes(40))
        self.assertEqual(next(events), HEARD[0][1])
        self.assertRaises(BadFraming, next, events)

    def test_messageOverTheLimitIsRefusedByItsLength(self) -> None:
        """One at the limit is read."""
        data = frame("BCAST", 7, None, bytes(66))
        self.assertEqual(len(list(eventsIn(joined(limit=100), data))), 1)
        self.assertRaises(TooLarge, list, eventsIn(joined(limit=99), data[:34]))

    def test_receivedHeaderMayBeLongerThanASentOne(self) -> None:
        """The broker adds fields."""
        header = {"topic": "t", "pad": "x" * 65_536, "offset": 5}
        [event] = eventsIn(joined(), frame("PUB", 7, header))
        self.assertEqual(event, Delivery("t", b"", 7, header))


class JoiningTests(SynchronousTestCase):
    """The limit of bytes before the answer to the JOIN."""

    def test_upToOneMebibyteIsReadBeforeTheAnswer(self) -> None:
        """Even of a longer frame; more is an error."""
        conversation = Conversation()
        long = frame("PUB", 1, {"topic": "a"}, bytes(1 << 24))
        self.assertEqual(list(conversation.runs(long[: 1 << 20])), [])
        self.assertRaises(TooLarge, list, conversation.runs(b"a"))

    def test_sameLimitHoldsOnAWebSocket(self) -> None:
        """Whose frame may be incomplete."""
        conversation = conversationOn(Url.parse("ws://localhost:7890"), unpacked)
        self.assertEqual(list(conversation.runs(b"a")), [])
        self.assertRaises(TooLarge, list, conversation.runs(bytes(1 << 20)))

    def test_joinedClientReadsMore(self) -> None:
        """In one message."""
        conversation = joined()
        long = frame("PUB", 7, {"topic": "a"}, bytes(3 << 20))
        self.assertEqual(len(list(eventsIn(conversation, long))), 1)


class ValuesTests(SynchronousTestCase):
    """Payloads."""

    def test_noBytesAreNone(self) -> None:
        """As a value."""
        self.assertIsNone(unpacked(b""))

    def test_wrongPayloadIsAValueError(self) -> None:
        """Not one value, or none that Python can represent."""
        for payload in [b"\xc1", b"\x01\x01", b"\xa5ab", b"\xa1\xff", b"\x81\x90\x01", b"\xc7\x0c\xff" + b"\xff" * 12]:
            self.assertRaises(ValueError, unpacked, payload)

    def test_errorHasItsTextOrNone(self) -> None:
        """A text, or a map with one."""
        for value, words in [
            ("no", "no"),
            ({"error": "no", "first": 5}, "no"),
            (5, ""),
            ({"error": 5}, ""),
            (None, ""),
        ]:
            self.assertEqual(errorText(packed(value)), words)
        self.assertEqual(errorText(b"\xc1"), "")

    def test_offsetIsANumber(self) -> None:
        """Another type is none."""
        self.assertIsNone(Delivery("a", b"", 7, {"offset": "5"}).offset)
        self.assertEqual(Delivery("a", b"", 7, {"offset": 5}).offset, 5)


_NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


class ArbitraryTests(SynchronousTestCase):
    """Arbitrary input."""

    @given(_VALUES)
    def test_anyValueIsUnpackedAsPacked(self, value: Any) -> None:
        """Of MessagePack."""
        self.assertEqual(unpacked(packed(value)), value)

    @given(st.lists(st.integers(0, len(ALL))))
    def test_anyPiecesAreTheSameEvents(self, places: list[int]) -> None:
        """At any places."""
        conversation = joined()
        cuts = [0, *sorted(places), len(ALL)]
        pieces = [ALL[start:end] for start, end in zip(cuts, cuts[1:], strict=False)]
        self.assertEqual([event for piece in pieces for event in eventsIn(conversation, piece)], EVENTS)

    @given(st.lists(st.binary(max_size=60)), st.integers(0, 12))
    def test_anyBytesAreEventsOrAnError(self, pieces: list[bytes], kind: int) -> None:
        """Also after the beginning of a frame."""
        conversation = joined()
        try:
            for piece in [b"\x01" + bytes((kind,)), *pieces]:
                list(eventsIn(conversation, piece))
        except (BadFraming, TooLarge):
            return

    @given(st.binary(max_size=60), st.binary(max_size=30), st.integers(0, 12))
    def test_anyHeaderLeavesTheNextFrame(self, header: bytes, payload: bytes, kind: int) -> None:
        """Readable."""
        events = list(eventsIn(joined(), frame(kind, 1, header or None, payload) + HEARD[0][0]))
        self.assertEqual(events[-1], HEARD[0][1])
