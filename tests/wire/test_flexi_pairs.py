"""FlexiMQ headers without their topic, and with it again."""

from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.wire.fleximq_record_frame import headerWithTopic, withoutTopic

#: What a publisher may write as values, and as keys.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_STORED = b"\xa9stored_at\xcf" + b"\0" * 7 + b"\x03"
HEADERS = st.dictionaries(st.text(max_size=3) | st.integers(0, 300) | st.sampled_from(["key", "offset"]), VALUES)


def read(header: bytes) -> Any:
    """Return what a header says."""
    return msgpack.unpackb(header, strict_map_key=False)


class WithoutTopicTests(SynchronousTestCase):
    """What the journal keeps of a header."""

    def test_headerWithNothingButTopicIsNoBytesAndSoIsNoneAtAll(self) -> None:
        """A header with nothing but a topic is no bytes, and so is none at all."""
        self.assertEqual(withoutTopic(msgpack.packb({"topic": "t"})), b"")
        self.assertEqual(withoutTopic(b""), b"")
        self.assertEqual(withoutTopic(b"\x80"), b"")

    def test_others(self) -> None:
        """The other pairs stay, in their order, wherever the topic stood."""
        for place in range(3):
            pairs = [("a", 1), ("b", [2, {"topic": 3}])]
            pairs.insert(place, ("topic", "t"))
            self.assertEqual(withoutTopic(msgpack.packb(dict(pairs))), msgpack.packb({"a": 1, "b": [2, {"topic": 3}]}))

    def test_bytesStay(self) -> None:
        """A pair keeps its bytes, even those of a form that is longer than it has to be."""
        odd = b"\xd9\x01a\xcf" + bytes(7) + b"\x01"
        self.assertEqual(withoutTopic(b"\x82\xa5topic\xa1t" + odd), b"\x81" + odd)
        self.assertEqual(withoutTopic(b"\xde\x00\x02\xd9\x05topic\xda\x00\x01t" + odd), b"\x81" + odd)

    def test_topicThatStandsThereTwiceGoesTwice(self) -> None:
        """A topic that stands there twice goes twice."""
        self.assertEqual(withoutTopic(b"\x83\xa5topic\xa1t\xa1a\x01\xa5topic\xa1u"), b"\x81\xa1a\x01")

    def test_otherKeys(self) -> None:
        """Only the text is the topic: bytes are another key, and a key may be an array or a map."""
        for pair in (b"\xc4\x05topic\x01", b"\x91\xa1a\x01", b"\x81\xa1a\xa1b\x01", b"\x81\x91\x01\x02\x03"):
            self.assertEqual(withoutTopic(b"\x82" + pair + b"\xa5topic\xa1t"), b"\x81" + pair)

    def test_timeThatPythonCouldNotHoldIsValueAsAnyOther(self) -> None:
        """A time that Python could not hold is a value as any other."""
        late = msgpack.packb({"at": msgpack.Timestamp(2**40, 5)})
        self.assertEqual(withoutTopic(b"\x82" + late[1:] + b"\xa5topic\xa1t"), late)

    @given(HEADERS)
    def test_whateverElseIsInHeaderStaysAndStaysAsItWasWritten(self, header: dict[Any, Any]) -> None:
        """Whatever else is in a header stays, and stays as it was written."""
        header.pop("topic", None)
        packed = msgpack.packb(header | {"topic": "t"})
        self.assertEqual(withoutTopic(packed), msgpack.packb(header) if header else b"")

    def test_atEveryWidthOfMapsHead(self) -> None:
        """At every width of a map's head."""
        for size in (14, 15, 16, 17, 65534, 65535, 65536):
            header = {str(number): number for number in range(size)}
            self.assertEqual(withoutTopic(msgpack.packb({"topic": "t"} | header)), msgpack.packb(header), size)


def withTopicAndOffset(header: bytes, topic: str, offset: int) -> bytes:
    """Return a header with both."""
    return headerWithTopic(header, topic, True) + (3).to_bytes(8) + b"\xa6offset\xcf" + offset.to_bytes(8)


class WithTopicAndOffsetTests(SynchronousTestCase):
    """What a reader of the journal gets."""

    @given(HEADERS, st.text(), st.integers(0, 2**64 - 1))
    def test_any(self, header: dict[Any, Any], topic: str, offset: int) -> None:
        """All that the publisher wrote, the topic and the offset, which takes the place of a publisher's own."""
        kept = withoutTopic(msgpack.packb(header | {"topic": "x"}))
        self.assertEqual(
            read(withTopicAndOffset(kept, topic, offset)), header | {"topic": topic, "stored_at": 3, "offset": offset}
        )

    def test_topicComesFirstTimeAndOffsetLastAlwaysInNineBytesEach(self) -> None:
        """The topic comes first, time and offset last, always in nine bytes each."""
        self.assertEqual(
            withTopicAndOffset(b"\x81\xa1a\x01", "t", 5),
            b"\x84\xa5topic\xa1t\xa1a\x01" + _STORED + b"\xa6offset\xcf" + b"\0" * 7 + b"\x05",
        )
        self.assertEqual(
            withTopicAndOffset(b"", "t", 1), b"\x83\xa5topic\xa1t" + _STORED + b"\xa6offset\xcf" + b"\0" * 7 + b"\x01"
        )

    def test_ownOffset(self) -> None:
        """A publisher's own key of that name is not there twice."""
        found = withTopicAndOffset(msgpack.packb({"offset": "mine", "a": 1}), "t", 5)
        self.assertEqual(found.count(b"offset"), 1)
        self.assertEqual(found[0], 0x84)


class WithTopicTests(SynchronousTestCase):
    """The topic given back, without an offset."""

    def test_vector(self) -> None:
        """The topic comes first, all else is as it was kept, a publisher's own offset among it."""
        self.assertEqual(headerWithTopic(b"", "t", False), b"\x81\xa5topic\xa1t")
        kept = msgpack.packb({"offset": "mine", "key": b"k"})
        self.assertEqual(
            msgpack.unpackb(headerWithTopic(kept, "t", False)), {"topic": "t", "offset": "mine", "key": b"k"}
        )

    @given(st.dictionaries(st.text(max_size=4).filter(lambda key: key != "topic"), st.integers(0, 9), max_size=40))
    def test_takenBack(self, fields: dict[str, int]) -> None:
        """It is what the journal took away."""
        kept = msgpack.packb(fields) if fields else b""
        self.assertEqual(withoutTopic(headerWithTopic(kept, "a.b", False)), kept)
