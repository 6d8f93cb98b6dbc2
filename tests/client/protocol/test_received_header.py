"""What a decoded header counts is near what it takes."""

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

    def test_fields(self) -> None:
        """Few fields with texts and numbers take few bytes."""
        self.assertLess(self.check({"topic": "a.b.c", "offset": 1 << 40, "message_id": "x" * 20}), 1000)

    def test_manyFields(self) -> None:
        """Many short fields count for themselves."""
        self.check({f"{number:x}": number for number in range(1000)})

    def test_nested(self) -> None:
        """Empty maps of one byte each count as what they become."""
        self.check({"topic": "a", "more": [{} for _ in range(10_000)]})
        self.check({"topic": "a", "more": [{"a": {}} for _ in range(10_000)]})

    def test_events(self) -> None:
        """An event counts its payload, and a header of its own."""
        self.assertEqual(memoryOf(Delivery("a", b"12345", 7, {"topic": "a"})), EVENT_BYTES + 5)
        header = received({"topic": "a", "more": []}, 1000)
        assert isinstance(header, LargeHeader)
        self.assertEqual(memoryOf(Delivery("a", b"12345", 7, header)), header.size + 5)
