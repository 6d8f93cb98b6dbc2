"""The fields of publications, and many values in chunks."""

from collections.abc import Iterable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.payloads import Packed, packed
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.protocol.publications import chunksOf, headerFields
from tests.wire.flexi_frames import cut


class PublicationTests(SynchronousTestCase):
    """Header fields, and values in chunks."""

    def test_headerFieldsAreGivenOnce(self) -> None:
        """Own fields may have any other name."""
        for headers, key in (({"topic": "b"}, None), ({"key": 1, "own": 2}, "k")):
            error = self.assertRaises(ValueError, headerFields, headers, key=key)
            self.assertIn(next(iter(headers)), str(error))
        own = {"self": "s", "value": "v", "headers": "h", "message_id": "m"}
        named = {"key": b"k", "correlation_id": "c", "reply_to": "r"}
        self.assertEqual(headerFields(own, key=b"k", message_id=None, correlation_id="c", reply_to="r"), named | own)

    def published(self, values: Iterable[object], pack: Any = packed) -> list[list[Any]]:
        """Return what is published, by chunksOf."""
        return [[each.value for each in cut(make(Conversation()))] for _, make in chunksOf("a", values, pack)]

    def test_portions(self) -> None:
        """Many values are cut into chunksOf of about a MiB, and none is lost."""
        said = Conversation()
        found = [(size, cut(make(said))) for size, make in chunksOf("a", (bytes(1000) for _ in range(3000)))]
        self.assertEqual(sum(len(frames) for _, frames in found), 3000)
        self.assertTrue(all(size < 1.1 * (1 << 20) for size, _ in found))
        self.assertEqual(list(chunksOf("a", [])), [])

    def test_lazily(self) -> None:
        """A portion is there as soon as it is full."""
        endless = chunksOf("a", iter(lambda: bytes(1 << 19), None))
        self.assertEqual([len(cut(next(endless)[1](Conversation()))) for _ in range(3)], [2, 2, 2])

    def test_mixed(self) -> None:
        """Bytes among other values are what they are, wherever they stand, and so are their subclasses."""
        for values in ([b"a", b"b", 1, b"c"], [1, b"a", b"b"], [b"a", None], [b"a", b"b"], [b"a", "b", b"", [b"c"]]):
            self.assertEqual(self.published(values), [values])
        self.assertEqual(self.published([b"a", Packed(packed(5)), b"b"]), [[b"a", 5, b"b"]])
        large = bytes(1 << 20)
        self.assertEqual(self.published([large, 1, large, b"a"]), [[large], [1, large], [b"a"]])

    def test_otherCodec(self) -> None:
        """With another codec bytes are packed by it, too."""
        self.assertEqual(self.published([b"a", 1], lambda value: packed([value])), [[[b"a"], [1]]])

    def test_fieldsOfAllValues(self) -> None:
        """Each PUB has them."""
        [(_, make)] = chunksOf("a", [1, 2], packed, {"queue": True})
        self.assertEqual([each.header for each in cut(make(Conversation()))], [{"topic": "a", "queue": True}] * 2)
