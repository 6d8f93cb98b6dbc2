"""PUB frames of a queue's deliveries."""

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.limits import HEADER_BYTES
from fleximq.values.header_pairs import SHORT
from fleximq.values.message import Content, Message
from fleximq.values.publication_head import headOf
from fleximq.wire.fleximq_delivery_frame import deliveryFrames, deliveryPrefix, framesOf
from tests.wire.flexi_frames import cut, frame

_FIELDS = st.dictionaries(st.sampled_from(["key", "priority", "queue", "x"]), st.integers(0, 9))


class DeliveryFrameTests(SynchronousTestCase):
    """The header as published, then ``delivery``."""

    def test_thePublishersPairsAreFollowedByTheDelivery(self) -> None:
        """The pairs are copied as bytes; numbers have nine and five bytes."""
        found = deliveryFrames([deliveryPrefix(7, b"\x81\xa1k\xc4\x01v", "t", "q")], [258], [3], [b"\xc0"])
        header = (
            b"\x83\xa5topic\xa1t\xa1k\xc4\x01v\xa8delivery\x83\xa5queue\xa1q\xa3tag\xcf\0\0\0\0\0\0\x01\x02"
            b"\xa7attempt\xce\0\0\0\x03"
        )
        self.assertEqual(found, frame("PUB", 7, header, b"\xc0"))

    def test_aPublishersOwnDeliveryIsOmitted(self) -> None:
        """A job that was consumed and published again as it was heard has the key already."""
        header = msgpack.packb({"delivery": {"queue": "old", "tag": 1, "attempt": 2}, "x": 1})
        [found] = cut(deliveryFrames([deliveryPrefix(7, header, "t", "q")], [5], [1], [b""]))
        self.assertEqual(found.header, {"topic": "t", "x": 1, "delivery": {"queue": "q", "tag": 5, "attempt": 1}})

    def test_longHeadersAreSentAndNotCached(self) -> None:
        """The longest header grows by the key, as ``offset`` lets one grow."""
        for size in (SHORT + 1, HEADER_BYTES - 20):
            header = msgpack.packb({"x": "y" * size})
            [found] = cut(deliveryFrames([deliveryPrefix(7, header, "t", "q")], [5], [1], [b""]))
            self.assertEqual(found.header["x"], "y" * size)

    @given(_FIELDS, st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(1, 0xFFFFFFFF), st.binary())))
    def test_eachPayloadHasTheTagAndTheAttemptOfItsDelivery(
        self, fields: dict[str, int], deliveries: list[tuple[int, int, bytes]]
    ) -> None:
        """Each payload is in a frame of its own, whose header is the publisher's and its delivery."""
        tags, attempts = [each[0] for each in deliveries], [each[1] for each in deliveries]
        payloads = [each[2] for each in deliveries]
        prefix = deliveryPrefix(9, msgpack.packb(fields) if fields else b"", "a.b", "jobs")
        found = cut(deliveryFrames([prefix] * len(tags), tags, attempts, payloads))
        self.assertEqual([each.payload for each in found], payloads)
        self.assertEqual(
            [each.header for each in found],
            [
                fields | {"topic": "a.b", "delivery": {"queue": "jobs", "tag": tag, "attempt": attempt}}
                for tag, attempt in zip(tags, attempts, strict=True)
            ],
        )
        self.assertEqual({(each.kind, each.sender) for each in found} - {("PUB", 9)}, set())


class FramesOfTests(SynchronousTestCase):
    """Deliveries of one run."""

    @given(st.lists(st.tuples(st.integers(0, 2**63), st.binary(max_size=300), st.integers(1, 2**31)), min_size=1))
    def test_oneHeadHasOnePrefix(self, rows: list[tuple[int, bytes, int]]) -> None:
        """Messages of one head are framed with its prefix."""
        head, prefix = headOf("t", b"", 7), deliveryPrefix(7, b"", "t", "q")
        deliveries = [
            (tag, Message(payload, Content.MESSAGEPACK, head=head), attempts) for tag, payload, attempts in rows
        ]
        tags, payloads, attempts = zip(*rows, strict=True)
        expected = deliveryFrames([prefix] * len(rows), tags, attempts, payloads)
        self.assertEqual(framesOf(prefix, head, deliveries), expected)

    def test_otherHeadsAndContentsAreNotFramed(self) -> None:
        """Such a message has another prefix, or needs another payload."""
        head, other = headOf("t", b"", 7), headOf("t", b"\x81\xa1k\x01", 7)
        mine = Message(b"\x01", Content.MESSAGEPACK, head=head)
        for message in (mine._replace(head=other), mine._replace(content=Content.TEXT), mine._replace(head=None)):
            self.assertIsNone(framesOf(b"prefix", head, [(1, mine, 1), (2, message, 1)]))
