"""FlexiMQ headers: what is accepted, what is refused, and with which status."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import AuthenticationFailed, BadRequest, BrokerError, InvalidRouting
from fleximq.values.nesting import NESTING
from fleximq.wire.fleximq_array_header import openMapOrArrays
from fleximq.wire.fleximq_header import (
    Header,
    MessageType,
    RoutingEntry,
    StartPosition,
    checkHeader,
    openHeader,
    packHeader,
    peek,
    peekId,
    peekPath,
    reportsError,
    topicAlone,
)
from fleximq.wire.fleximq_scanner import FIXED_BYTES
from tests.processor_time import Measured, processorSeconds
from tests.wire.flexi_frames import FIELDS, NAMES, frame
from tests.wire.test_flexi_rules import documented

ULID = "01H2XQMGPE7ZPXXNKQD9XE8S6R"
KINDS = [MessageType[name] for name in NAMES]


def good(field: str, kind: str) -> Any:
    """Return a value that is right for this field in this type."""
    return {
        "routing": [{"client_id": 1234, "path": "/api/endpoint"}],
        "reqrep": {"type": "correlation" if kind == "REP" else "request", "id": ULID},
        "topic": "news_updates",
        "status": 200,
        "auth": {"type": "token", "token": "authentication-token"},
        "keepalive": {"timestamp": 1703123456789},
    }[field]


def readHeader(kind: MessageType, raw: bytes) -> Header:
    """Return a header checked by the rules of its type, as a session does."""
    fields, error = openHeader(raw)
    if error is not None:
        raise error
    return checkHeader(kind, fields)


def smallest(kind: str) -> dict[str, Any]:
    """Return the header of this type that has only what is required."""
    return {field: good(field, kind) for field in documented()[kind][0]}


def rule(kind: MessageType, header: Any) -> BrokerError | None:
    """Return the error with which a header is refused, None if it is not."""
    try:
        readHeader(kind, header if isinstance(header, bytes) else msgpack.packb(header))
    except BrokerError as error:
        return error
    return None


def verdict(kind: str, header: Any) -> int:
    """Return the status with which a header is refused, 200 if it is not."""
    error = rule(MessageType[kind], header)
    return 200 if error is None else int(error.status)


class FieldTests(SynchronousTestCase):
    """The table of section 2.2.3, each type with each field."""

    def test_whatIsRequiredIsEnough(self) -> None:
        """What is required is enough."""
        self.assertEqual({kind: verdict(kind, smallest(kind)) for kind in NAMES}, dict.fromkeys(NAMES, 200))

    def test_eachRequiredFieldIsMissed(self) -> None:
        """Each required field is missed: 400."""
        for kind, (required, _) in documented().items():
            for field in required:
                header = smallest(kind)
                del header[field]
                error = rule(MessageType[kind], header)
                self.assertIsInstance(error, BadRequest, f"{kind} without {field}")
                self.assertIn(field, str(error))

    def test_eachOptionalFieldMayBeThere(self) -> None:
        """Each optional field may be there."""
        for kind, (_, forbidden) in documented().items():
            for field in set(FIELDS) - forbidden:
                self.assertEqual(verdict(kind, {**smallest(kind), field: good(field, kind)}), 200, f"{kind} {field}")

    def test_eachForbiddenFieldIsRefusedByNameWhateverItsValue(self) -> None:
        """Each forbidden field is refused by name, whatever its value: 400."""
        for kind, (_, forbidden) in documented().items():
            for field in forbidden:
                for value in (good(field, kind), None, 7):
                    error = rule(MessageType[kind], {**smallest(kind), field: value})
                    self.assertIsInstance(error, BadRequest, f"{kind} with {field}")
                    self.assertIn(field, str(error))

    def test_unknownKeys(self) -> None:
        """Keys that nobody knows are ignored, whatever they are and hold."""
        strange = {"traceparent": "00-1", "message": {"deep": [1, {"x": None}]}, "7": "seven", b"topic": 1}
        for kind in NAMES:
            self.assertEqual(verdict(kind, {**smallest(kind), **strange}), 200, kind)

    def test_emptyHeader(self) -> None:
        """No bytes stand for an empty map: enough where nothing is required."""
        self.assertEqual(
            [kind for kind in NAMES if verdict(kind, b"") == 200],
            [kind for kind, (required, _) in documented().items() if not required],
        )


class ShapeTests(SynchronousTestCase):
    """A header is one MessagePack map."""

    def test_noMessagePack(self) -> None:
        """Anything else is refused: cut short, too long, reserved markers, strings that are not UTF-8."""
        whole = msgpack.packb({"topic": "t"})
        for raw in (whole[:-1], whole + b"\xc0", b"\xc1", b"\x81", b"\x81\xa5topic\xa2\xff\xfe", b"\x81\xa1\xff\xc0"):
            self.assertEqual(verdict("PUB", raw), 400, raw)

    def test_noMap(self) -> None:
        """A MessagePack value that is no map is refused."""
        for value in (None, True, 0, -1, 1.5, "topic", b"topic", [], ["topic", "t"]):
            self.assertEqual(verdict("PUB", value), 400, value)

    def test_keyThatStandsTwiceInMapAtWhicheverDepthIsRefused(self) -> None:
        """A key that stands twice in a map, at whichever depth, is refused: others might read the other value."""
        path = b"\xa4path\xa2/x"
        entry = b"\xa7routing\x91\x83\xa9client_id\x07" + path
        for raw in (
            b"\x82\xa5topic\xa1a\xa5topic\xa1b",
            b"\x82\xa5topic\xa1a\xd9\x05topic\xa1b",
            b"\x82\xa5topic\xa1a" + entry + path,
            b"\x83\xa5topic\xa1a\x90\xc0\xa5topic\xa1b",
        ):
            self.assertRaises(BadRequest, readHeader, MessageType.PUB, raw)

    def test_timestamps(self) -> None:
        """MessagePack's own timestamps and extensions in unknown keys harm nothing; malformed ones are refused."""
        for extension in (msgpack.Timestamp(0), msgpack.Timestamp(1 << 40, 999), msgpack.ExtType(5, b"x")):
            self.assertEqual(verdict("PUB", {"topic": "t", "when": extension}), 200)
        for broken in (b"\xd7\xff" + b"\xff" * 8, b"\xc7\x0c\xff" + b"\xff" * 12, b"\xc7\x05\xff" + bytes(5)):
            self.assertEqual(verdict("PUB", b"\x82\xa5topic\xa1t\xa1w" + broken), 400)

    def test_keysAreStrings(self) -> None:
        """A key that is neither a string nor bytes is refused, at every depth: integers can be chosen to collide."""
        for key in (b"\x90", b"\x80", b"\x91\x01", b"\x81\xa1a\x01", b"\x01", b"\xc0", b"\xc3", b"\xca" + bytes(4)):
            self.assertEqual(verdict("PUB", b"\x82\xa5topic\xa1t" + key + b"\x01"), 400, key)
            self.assertEqual(verdict("PUB", b"\x82\xa5topic\xa1t\xa1x\x91\x81" + key + b"\x01"), 400, key)
            self.assertEqual(verdict("PING", b"\x81\xa9keepalive\x82\xa9timestamp\x05" + key + b"\x01"), 400, key)
        for key in (b"\xa1k", b"\xc4\x01k"):
            self.assertEqual(verdict("PUB", b"\x82\xa5topic\xa1t" + key + b"\x01"), 200, key)

    def test_headerCostsAtMostAbout02UsForEachByteWhateverItHolds(self) -> None:
        """A header costs at most about 0.2 us for each byte, whatever it holds; bounds are ten times as high."""
        for item in (b"\x90", b"\x80", b"\xa0", b"\xc4\x00", b"\x81\xa1a\xc0", b"\xd6\xff" + bytes(4)):
            count = ((1 << 16) - 20) // len(item)
            raw = b"\x82\xa5topic\xa1t\xa1x\xdc" + count.to_bytes(2, "big") + item * count
            self.assertEqual(verdict("PUB", raw), 200)
            self.assertLess(processorSeconds(partial(verdict, "PUB", raw)), 0.13, item)

    def test_nesting(self) -> None:
        """A header may be as deep as all input, and is refused with the reason if it is deeper."""
        for depth, code in ((NESTING - 1, 200), (NESTING, 400), (1022, 400)):
            deep = b"\x91" * (depth - 1) + b"\x90"
            self.assertEqual(verdict("PUB", b"\x82\xa5topic\xa1t\xa1x" + deep), code)
        for raw in (b"\x81\xa1x" + b"\x91" * NESTING + b"\x01", b"\x81\xa1x" + b"\x81\xa1y" * NESTING + b"\x01"):
            self.assertEqual(str(openHeader(raw)[1]), "the header is nested deeper than 256 levels")
        array = bytes(FIXED_BYTES) + b"\x96\xc0\xc0" + b"\x91" * NESTING + b"\x01" + b"\xc0" * 3
        self.assertEqual(str(openMapOrArrays(array).unreadable), "the header is nested deeper than 256 levels")

    def test_nestingAnnouncedLengthsAndCollidingKeysCostLittleAndEndIn400(self) -> None:
        """Nesting, announced lengths and colliding keys cost little and end in 400 where they are wrong."""
        with Measured() as measured:
            for raw in _bombs():
                self.assertEqual(verdict("PUB", raw), 400, raw[:8])
        self.assertLess(measured.seconds, 2.0)

    @given(st.sampled_from(KINDS), st.binary(max_size=200))
    def test_anyBytes(self, kind: MessageType, raw: bytes) -> None:
        """Whatever the bytes: a header or one of the protocol's own errors."""
        rule(kind, raw)
        peekId(peek(raw))
        peekPath(peek(raw))
        reportsError(peek(raw))

    @given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), st.deferred(lambda: VALUES), max_size=6))
    def test_anyMap(self, kind: MessageType, fields: dict[str, Any]) -> None:
        """Whatever stands under the known names: a header or one of the protocol's own errors."""
        self.assertIn(verdict(kind.name, fields), (200, 400, 602, 604))
        peekId(fields)
        peekPath(fields)
        reportsError(fields)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.sampled_from(["request", "correlation", "token", "/x"])
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "id", "client_id", "path", "timestamp", "interval", "token"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def _bombs() -> Iterator[bytes]:
    """Yield headers of at most 65,536 bytes that mean harm."""
    for marker in (b"\x91", b"\x81\xa1k", b"\xdc\xff\xff", b"\xdd\x00\x00\xff\xf0"):
        for depth in (400, 1000, 1500, 65536 // len(marker)):
            yield (marker * depth)[:65536]
    for marker in (b"\xdc", b"\xdd", b"\xde", b"\xdf", b"\xd9", b"\xda", b"\xdb", b"\xc4", b"\xc5", b"\xc6", b"\xc9"):
        yield b"\x81\xa5topic" + marker + b"\xff" * 4
        yield marker + b"\xff" * 4


class TopicAloneTests(SynchronousTestCase):
    """Headers that have only a topic."""

    @given(
        st.one_of(st.binary(max_size=12), st.text().map(msgpack.packb), st.deferred(lambda: VALUES).map(msgpack.packb))
    )
    def test_sameAsAlways(self, value: bytes) -> None:
        """The topic is that of the whole map, if it is a text."""
        raw = b"\x81\xa5topic" + value
        envelope = frame("PUB", 5, raw)[:-8]
        topic = peek(raw).get("topic")
        self.assertEqual(topicAlone(envelope, envelope[:22]), topic if isinstance(topic, str) else None)
        self.assertIsNone(topicAlone(envelope[:26] + b"\x82" + envelope[27:], envelope[:22]))

    def test_envelopeThatBeginsOtherwiseHasNone(self) -> None:
        """An envelope that begins otherwise has none."""
        envelope = frame("PUB", 5, {"topic": "t"})[:-8]
        self.assertEqual(topicAlone(envelope, envelope[:22]), "t")
        for other in (
            frame("PUB", 6),
            frame("SUB", 5),
            frame("PUB", 5, reserved=b"x" * 16),
            frame("PUB", 5, version=2),
        ):
            self.assertIsNone(topicAlone(envelope, other[:22]))


class ReqrepTests(SynchronousTestCase):
    """Section 2.2.2: what correlates requests and answers."""

    def test_reqHasTypeRequestREPCorrelation(self) -> None:
        """A REQ has the type "request", a REP "correlation": each other one is refused with 400."""
        for kind, wanted in (("REQ", "request"), ("REP", "correlation")):
            for given_ in ("request", "correlation", "Request", "", None, 1):
                header = {**smallest(kind), "reqrep": {"type": given_, "id": ULID}}
                self.assertEqual(verdict(kind, header), 200 if given_ == wanted else 400, (kind, given_))

    def test_anythingButMapWithTwoStringsIsRefusedWith400InJOINToo(self) -> None:
        """Anything but a map with two strings is refused with 400, in a JOIN too."""
        bad: Any
        for kind in ("JOIN", "REQ", "REP"):
            name = "correlation" if kind == "REP" else "request"
            for bad in (
                None,
                1,
                "id",
                [],
                {},
                {"id": ULID},
                {"type": name},
                {"type": name, "id": 7},
                {"type": name, "id": b"x"},
            ):
                self.assertEqual(verdict(kind, {**smallest(kind), "reqrep": bad}), 400, (kind, bad))

    def test_id(self) -> None:
        """The id is read."""
        self.assertEqual(readHeader(MessageType.REQ, msgpack.packb(smallest("REQ"))).id, ULID)
        self.assertIsNone(readHeader(MessageType.JOIN, b"").id)


class TypeTests(SynchronousTestCase):
    """Wrong types are refused with 400."""

    def test_topicIsString(self) -> None:
        """A topic is a string; its length and emptiness are judged elsewhere."""
        for kind in ("PUB", "SUB", "UNSUB"):
            for bad in (None, 1, 1.5, True, b"t", ["t"], {"t": 1}):
                self.assertEqual(verdict(kind, {"topic": bad}), 400, (kind, bad))
            self.assertEqual(verdict(kind, {"topic": ""}), 200, kind)

    def test_statusIsWholeNumberThatIsNotNegative(self) -> None:
        """A status is a whole number that is not negative."""
        bad: Any
        for kind in ("REQ", "REP", "NOTIF", "BCAST", "PUB"):
            for bad in (None, "200", 200.0, True, -1, [], 1 << 32):
                self.assertEqual(verdict(kind, {**smallest(kind), "status": bad}), 400, (kind, bad))
            for fine in (0, 200, 605, 0xFFFFFFFF):
                self.assertEqual(verdict(kind, {**smallest(kind), "status": fine}), 200, (kind, fine))

    def test_pingAndPONGNeedTimestampOf64BitsWithoutSign(self) -> None:
        """PING and PONG need a timestamp of 64 bits without a sign."""
        bad: Any
        for kind in ("PING", "PONG"):
            for bad in (
                None,
                1,
                [],
                {},
                {"interval": 30},
                {"timestamp": "1"},
                {"timestamp": -1},
                {"timestamp": 1.0},
                {"timestamp": True},
            ):
                self.assertEqual(verdict(kind, {"keepalive": bad}), 400, (kind, bad))
            for fine in (0, 1703123456789, (1 << 64) - 1):
                self.assertEqual(verdict(kind, {"keepalive": {"timestamp": fine}}), 200)

    def test_pingsIntervalIsNumberOf32BitsWithoutSign(self) -> None:
        """A PING's interval is a number of 32 bits without a sign."""
        bad: Any
        for bad in (None, "30", -1, 1.5, True, 1 << 32):
            self.assertEqual(verdict("PING", {"keepalive": {"timestamp": 1, "interval": bad}}), 400, bad)
        for fine in (0, 30, 0xFFFFFFFF):
            header = readHeader(MessageType.PING, msgpack.packb({"keepalive": {"timestamp": 1, "interval": fine}}))
            self.assertEqual((header.timestamp, header.interval), (1, fine))

    def test_publicationKeys(self) -> None:
        """The optional keys of a PUB are strings, ``key`` may be bytes."""
        bad: Any
        for name in ("message_id", "correlation_id", "reply_to", "key"):
            self.assertEqual(verdict("PUB", {"topic": "t", name: "text"}), 200)
            self.assertEqual(verdict("PUB", {"topic": "t", name: b"bytes"}), 200 if name == "key" else 400)
            for bad in (None, 1, [], {}):
                self.assertEqual(verdict("PUB", {"topic": "t", name: bad}), 400, (name, bad))

    def test_publicationKeysElsewhere(self) -> None:
        """In other types these names mean nothing."""
        self.assertEqual(verdict("BCAST", {"message_id": 1, "key": None}), 200)


class AuthTests(SynchronousTestCase):
    """Section 5.2; what is malformed or unknown is 604."""

    def test_documentsThreeKinds(self) -> None:
        """The document's three kinds."""
        for auth in (
            {"type": "token", "token": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9..."},
            {"type": "basic", "username": "user123", "password": "securePassword!"},
            {"type": "api_key", "api_key": "abcdef1234567890zyxwvu"},
        ):
            self.assertEqual(verdict("JOIN", {"auth": auth}), 200)

    def test_noMapNoTypeUnknownTypeMissingOrWrongField(self) -> None:
        """No map, no type, an unknown type, a missing or wrong field."""
        auth: Any
        for auth in (
            None,
            "token",
            [],
            {},
            {"type": None},
            {"type": ["token"], "token": "t"},
            {"type": "kerberos"},
            {"type": "Token", "token": "t"},
            {"type": "token"},
            {"type": "token", "token": 7},
            {"type": "token", "api_key": "t"},
            {"type": "basic", "username": "u"},
            {"type": "basic", "password": "p"},
            {"type": "basic", "username": "u", "password": b"p"},
            {"type": "api_key", "token": "t"},
        ):
            self.assertIsInstance(rule(MessageType.JOIN, {"auth": auth}), AuthenticationFailed, auth)

    def test_wordsOfErrorNameNoSecret(self) -> None:
        """The words of the error name no secret."""
        error = rule(MessageType.JOIN, {"auth": {"type": "basic", "username": "u", "password": 71717171}})
        self.assertNotIn("71717171", str(error))


class RoutingTests(SynchronousTestCase):
    """Missing: 400. There, but wrong in any way: 602."""

    def routing(self, kind: str, routing: Any) -> int:
        """Return the verdict on a header with this routing."""
        return verdict(kind, {**smallest(kind), "routing": routing})

    def test_malformed(self) -> None:
        """No array of maps, wrong types, empty."""
        bad: Any
        entry = {"client_id": 1000, "path": "/x"}
        for kind in ("REQ", "REP", "NOTIF", "PUB"):
            for bad in (
                None,
                1,
                "x",
                entry,
                [],
                [None],
                [1000],
                [[1000, "/x"]],
                [{}],
                [{"path": "/x"}],
                [{"client_id": "1000", "path": "/x"}],
                [{"client_id": None, "path": "/x"}],
                [{"client_id": True, "path": "/x"}],
                [{"client_id": 1000.0, "path": "/x"}],
                [{"client_id": -1, "path": "/x"}],
                [{"client_id": 0, "path": "/x"}],
                [{"client_id": 0xFFFFFFFF, "path": "/x"}],
                [{"client_id": 1 << 32, "path": "/x"}],
                [{"client_id": 1000, "path": 7}],
                [{"client_id": 1000, "path": None}],
                [{"client_id": 1000, "path": b"/x"}],
            ):
                self.assertEqual(self.routing(kind, bad), 602, (kind, bad))
                self.assertIsInstance(rule(MessageType[kind], {**smallest(kind), "routing": bad}), InvalidRouting)

    def test_oneBadEntryAmongMany(self) -> None:
        """Each entry is looked at."""
        for kind in ("NOTIF", "PUB"):
            self.assertEqual(self.routing(kind, [{"client_id": 1000, "path": ""}] * 5 + [{"client_id": 0}]), 602)

    def test_exactlyOne(self) -> None:
        """REQ and REP have one entry, NOTIF and PUB may have more."""
        two = [{"client_id": 1000, "path": "/x"}, {"client_id": 1001, "path": "/x"}]
        self.assertEqual([self.routing(kind, two) for kind in ("REQ", "REP", "NOTIF", "PUB")], [602, 602, 200, 200])

    def test_pathIsRequiredInREQAndNOTIFOptionalInREPAndPUB(self) -> None:
        """A path is required in REQ and NOTIF, optional in REP and PUB; it may be empty."""
        self.assertEqual(
            [self.routing(kind, [{"client_id": 1000}]) for kind in ("REQ", "REP", "NOTIF", "PUB")],
            [602, 200, 602, 200],
        )
        for kind in ("REQ", "REP", "NOTIF", "PUB"):
            self.assertEqual(self.routing(kind, [{"client_id": 1000, "path": ""}]), 200)

    def test_everyIdBut0And4294967295MayBeNamed(self) -> None:
        """Every id but 0 and 4294967295 may be named; whether it exists is asked later."""
        for target in (1, 2, 999, 1000, 0xFFFFFFFE):
            self.assertEqual(self.routing("REQ", [{"client_id": target, "path": "/x"}]), 200)

    def test_atMostAThousand(self) -> None:
        """999 and 1,000 entries pass, 1,001 do not."""
        for kind in ("NOTIF", "PUB"):
            for number in (999, 1000, 1001):
                wanted = 200 if number <= 1000 else 602
                self.assertEqual(self.routing(kind, [{"client_id": 1000, "path": ""}] * number), wanted, number)

    def test_unknownKeysInEntries(self) -> None:
        """Further keys of an entry are ignored."""
        self.assertEqual(self.routing("REQ", [{"client_id": 1000, "path": "/x", "client_name": "n"}]), 200)

    def test_entriesAreReadInOrderWithNoneForPathThatIsNotThere(self) -> None:
        """Entries are read in order, with None for a path that is not there."""
        raw = msgpack.packb({"topic": "t", "routing": [{"client_id": 1000}, {"client_id": 2000, "path": ""}]})
        self.assertEqual(readHeader(MessageType.PUB, raw).routing, (RoutingEntry(1000, None), RoutingEntry(2000, "")))


class OrderTests(SynchronousTestCase):
    """The first thing wrong is the one that is answered: forbidden, required, types, routing."""

    def test_forbiddenFirst(self) -> None:
        """A forbidden field is named before a missing one."""
        self.assertIn("'topic'", str(rule(MessageType.REQ, {"topic": "t"})))

    def test_requiredBeforeTypes(self) -> None:
        """A missing field is named before a wrong one."""
        self.assertIn("'reqrep'", str(rule(MessageType.REQ, {"routing": [], "status": "x"})))

    def test_typesBeforeRouting(self) -> None:
        """A wrong type elsewhere, 400, comes before wrong routing, 602."""
        self.assertEqual(verdict("NOTIF", {"routing": [], "status": "x"}), 400)
        self.assertEqual(verdict("REQ", {"routing": [], "reqrep": 1}), 400)
        self.assertEqual(verdict("PUB", {"routing": [], "topic": 1}), 400)
        self.assertEqual(verdict("PUB", {"routing": [], "topic": "t", "message_id": 1}), 400)

    def test_joinForbiddenBeforeAuth(self) -> None:
        """A JOIN with a forbidden field and bad credentials: 400, not 604."""
        self.assertEqual(verdict("JOIN", {"auth": 1, "topic": "t"}), 400)


class PeekTests(SynchronousTestCase):
    """What can be said about a header that was refused."""

    def test_noMap(self) -> None:
        """What is no map is as good as empty."""
        for raw in (b"", b"\xc1", msgpack.packb([1]), msgpack.packb("x")):
            self.assertEqual(dict(peek(raw)), {})

    def test_idIsFoundWhateverElseIsWrongIfItIsStringInMap(self) -> None:
        """An id is found whatever else is wrong, if it is a string in a map."""
        fields: Any
        self.assertEqual(peekId({"reqrep": {"id": "a", "type": 3}, "routing": 5}), "a")
        for fields in ({}, {"reqrep": None}, {"reqrep": []}, {"reqrep": {"id": 5}}, {"reqrep": {}}):
            self.assertIsNone(peekId(fields))

    def test_firstEntrysPathIsFoundEmptyOneWhereThereIsNone(self) -> None:
        """The first entry's path is found, an empty one where there is none."""
        routing: Any
        self.assertEqual(peekPath({"routing": [{"path": "/a"}, {"path": "/b"}]}), "/a")
        for routing in (None, [], [None], [{}], [{"path": 5}], {"path": "/x"}):
            self.assertEqual(peekPath({"routing": routing}), "")

    def test_reportsError(self) -> None:
        """From 400 on a status reports an error."""
        self.assertEqual([reportsError({"status": status}) for status in (399, 400, 605)], [False, True, True])
        for fields in ({}, {"status": "500"}, {"status": True}, {"status": None}):
            self.assertFalse(reportsError(fields))


class WritingTests(SynchronousTestCase):
    """What the broker writes, it can read."""

    def test_thereAndBack(self) -> None:
        """A packed header is read with all its fields."""
        for kind in KINDS:
            fields = smallest(kind.name)
            self.assertEqual(dict(readHeader(kind, packHeader(fields)).fields), fields)

    def test_emptyHeaderTakesNoBytes(self) -> None:
        """An empty header takes no bytes."""
        self.assertEqual(packHeader({}), b"")

    def test_asSent(self) -> None:
        """An entry is told with the keys it had."""
        self.assertEqual(RoutingEntry(1000, None).asSent(), {"client_id": 1000})
        self.assertEqual(RoutingEntry(1000, "").asSent(), {"client_id": 1000, "path": ""})


class FromTests(SynchronousTestCase):
    """``from`` in a SUB."""

    def read(self, value: Any, kind: MessageType = MessageType.SUB) -> StartPosition | None:
        """Return what a header with this value begins with."""
        return readHeader(kind, msgpack.packb({"topic": "t", "from": value})).start

    def test_twoWordsAnyOffsetAndAnyTime(self) -> None:
        """The two words, any offset, and any time."""
        self.assertEqual(
            [self.read(word) for word in ("first", "last")], [StartPosition("first"), StartPosition("last")]
        )
        for number in (0, 1, (1 << 64) - 1):
            self.assertEqual(self.read(number), StartPosition("offset", number))
            self.assertEqual(self.read({"time": number}), StartPosition("time", number))

    def test_withoutItSubscriptionBeginsNow(self) -> None:
        """Without it a subscription begins now."""
        self.assertIsNone(readHeader(MessageType.SUB, msgpack.packb({"topic": "t"})).start)

    def test_wrong(self) -> None:
        """Everything else is refused."""
        for value in ("", "First", "1", b"first", -1, 1.0, True, False, None, [], ["first"], {}, {"time": None},
                      {"time": -1}, {"time": 1.5}, {"time": True}, {"time": 1, "more": 1}, {"offset": 1}):  # fmt: skip
            self.assertRaises(BadRequest, self.read, value)

    def test_otherTypes(self) -> None:
        """In other types it is a key like any unknown one."""
        for kind in (MessageType.PUB, MessageType.UNSUB):
            self.assertIsNone(self.read(-1, kind))
