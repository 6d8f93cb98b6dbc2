"""The estimated size of a decoded header is near its memory."""

import sys
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.events import Delivery
from fleximq.client.protocol.received_header import EVENT_BYTES, LargeHeader, memoryOf, received


def taken(value: Any) -> int:
    """Return the memory of a value, with all in it."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(map(taken, value)) + sum(map(taken, value.values()))
    return size + sum(map(taken, value)) if isinstance(value, list) else size


class SizeTests(SynchronousTestCase):
    """Headers of several kinds."""

    def check(self, fields: dict[str, Any]) -> int:
        """Compare the size of a header with what it takes, and return it."""
        encoded = msgpack.packb(fields)
        size = memoryOf(Delivery("a", b"", 7, received(msgpack.unpackb(encoded), len(encoded))))
        self.assertLess(taken(fields), 3 * size)
        return size

    def test_fewFieldsCountLittle(self) -> None:
        """Texts and numbers."""
        self.assertLess(self.check({"topic": "a.b.c", "offset": 1 << 40, "message_id": "x" * 20}), 1000)

    def test_manyShortFieldsCountEach(self) -> None:
        """By their number."""
        self.check({f"{number:x}": number for number in range(1000)})

    def test_emptyMapsCountAsObjects(self) -> None:
        """Of one byte each."""
        self.check({"topic": "a", "more": [{} for _ in range(10_000)]})
        self.check({"topic": "a", "more": [{"a": {}} for _ in range(10_000)]})

    def test_eventCountsPayloadAndHeader(self) -> None:
        """If it has one of its own."""
        self.assertEqual(memoryOf(Delivery("a", b"12345", 7, {"topic": "a"})), EVENT_BYTES + 5)
        header = received({"topic": "a", "more": []}, 1000)
        assert isinstance(header, LargeHeader)
        self.assertEqual(memoryOf(Delivery("a", b"12345", 7, header)), header.size + 5)
