"""PUB frames of records."""

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.wire.fleximq_record_frame import framePrefix, recordFrames, timedPrefixes
from tests.wire.flexi_frames import cut, frame

_PAYLOADS = st.lists(st.binary(max_size=40), max_size=8)
_FIELDS = st.dictionaries(st.sampled_from(["key", "message_id", "colour", "x"]), st.text(max_size=5))


class RecordFrameTests(SynchronousTestCase):
    """Frames with and without offsets."""

    def test_keptPairsAsTheyWereThenTimeAndOffsetInNineBytesEach(self) -> None:
        """The kept pairs as they were, then time and offset in nine bytes each; a header may be empty."""
        found = recordFrames(
            timedPrefixes([framePrefix(7, b"\x81\xa1k\xc4\x01v", "t", True)], [7_999]), [258], [b"\xc0"]
        )
        header = (
            b"\x84\xa5topic\xa1t\xa1k\xc4\x01v\xa9stored_at\xcf"
            + (7).to_bytes(8)
            + b"\xa6offset\xcf\x00\x00\x00\x00\x00\x00\x01\x02"
        )
        self.assertEqual(found, frame("PUB", 7, header, b"\xc0"))
        self.assertEqual(recordFrames([framePrefix(7, b"", "t", False)] * 2, None, [b"", b"x"]),
                         frame("PUB", 7, {"topic": "t"}) + frame("PUB", 7, {"topic": "t"}, b"x"))  # fmt: skip

    def test_sameLength(self) -> None:
        """However large time and offset are, the frame is as long."""
        prefix = framePrefix(7, b"", "t", True)
        found = {
            len(recordFrames(timedPrefixes([prefix], [offset]), [offset], [b""]))
            for offset in (1, 255, 1 << 20, 1 << 40, (1 << 64) - 1)
        }
        self.assertEqual(len(found), 1)

    @given(_FIELDS, _PAYLOADS, st.integers(1, 1 << 62))
    def test_eachPayloadIsInFrameOfItsOwnWithItsOffsetAndTime(
        self, fields: dict[str, str], payloads: list[bytes], first: int
    ) -> None:
        """Each payload is in a frame of its own, with its offset and time."""
        offsets, times = range(first, first + len(payloads)), range(-1000, 1000 * len(payloads) - 1000, 1000)
        header = msgpack.packb(fields) if fields else b""
        found = cut(
            recordFrames(timedPrefixes([framePrefix(9, header, "a.b", True)] * len(payloads), times), offsets, payloads)
        )
        self.assertEqual([each.payload for each in found], payloads)
        expected = [
            fields | {"topic": "a.b", "stored_at": max(0, time // 1000), "offset": offset}
            for offset, time in zip(offsets, times, strict=True)
        ]
        self.assertEqual([each.header for each in found], expected)
        self.assertEqual({(each.kind, each.sender) for each in found} - {("PUB", 9)}, set())
        plain = cut(recordFrames([framePrefix(9, header, "a.b", False)] * len(payloads), None, payloads))
        self.assertEqual([(each.header, each.payload) for each in plain],
                         [(fields | {"topic": "a.b"}, payload) for payload in payloads])  # fmt: skip

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=9)), max_size=9))
    def test_framesOfSeveralTopicsAreThoseOfEachOneByOne(self, rows: list[tuple[str, bytes]]) -> None:
        """Frames of several topics are those of each one by one."""
        payloads = [payload for _, payload in rows]
        offsets = range(5, 5 + len(rows))
        found = recordFrames(
            timedPrefixes([framePrefix(9, b"", topic, True) for topic, _ in rows], offsets), offsets, payloads
        )
        single = [recordFrames(timedPrefixes([framePrefix(9, b"", topic, True)], [at]), [at], [payload])
                  for at, (topic, payload) in zip(offsets, rows, strict=True)]  # fmt: skip
        self.assertEqual(found, b"".join(single))
        found = recordFrames([framePrefix(9, b"", topic, False) for topic, _ in rows], None, payloads)
        self.assertEqual(
            found,
            b"".join(recordFrames([framePrefix(9, b"", topic, False)], None, [each]) for topic, each in rows),
        )

    def test_longHeader(self) -> None:
        """A long header is put together like a short one."""
        header = msgpack.packb({"x": "x" * 5000})
        [found] = cut(recordFrames(timedPrefixes([framePrefix(9, header, "t", True)], [2000]), [1], [b""]))
        self.assertEqual(found.header, {"x": "x" * 5000, "topic": "t", "stored_at": 2, "offset": 1})
