"""Heads of publications."""

from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.publication_head import Head, headOf, priorityOf


def head(**fields: Any) -> Head:
    """Return the head of a header with these fields."""
    return headOf("t", msgpack.packb(fields), 1000)


class HeadTests(SynchronousTestCase):
    """The fields that queues read."""

    def test_headerWithoutTheseFieldsHasTheOrdinaryPriority(self) -> None:
        """A header without the fields has priority 4, never expires and has no key."""
        self.assertEqual(headOf("t", b"", 7), Head("t", b"", 7, 4, 0, None))
        self.assertEqual(head(message_id="m")[3:], (4, 0, None))

    def test_fieldsAreRead(self) -> None:
        """Priority, time to live and key are read, whatever else is in the header."""
        self.assertEqual(head(x=[{}], priority=9, expires_in=1500, key="k")[3:], (9, 1500, "k"))
        self.assertEqual(head(priority=0, key=b"k")[3:], (0, 0, b"k"))

    def test_fieldsOfWrongTypesCountAsAbsent(self) -> None:
        """Fields of wrong types or out of range count as absent, since older journals contain any."""
        wrong: tuple[Any, ...] = (-1, 10, 4.0, True, "4", None, [])
        for priority in wrong:
            self.assertEqual(head(priority=priority).priority, 4, priority)
        for expires in (0, -5, 1.5, True, "1", 1 << 60):
            self.assertEqual(head(expires_in=expires).expires, 0, expires)
        self.assertIsNone(head(key=5).key)

    def test_whatIsNoMapHasNoFields(self) -> None:
        """Bytes that are no MessagePack map have none of the fields."""
        for pairs in (b"\xc1key", b"\xa3key", b"\x91\xa3key", b"\x81\xa3key"):
            self.assertEqual(headOf("t", pairs, 1)[3:], (4, 0, None))

    def test_longHeadersAreReadToo(self) -> None:
        """Headers too long for the cache are read too."""
        self.assertEqual(head(x="y" * 5000, priority=2).priority, 2)
        self.assertEqual(priorityOf(msgpack.packb({"x": "y" * 5000, "priority": 2})), 2)

    def test_priorityAlone(self) -> None:
        """The priority can be read alone."""
        self.assertEqual([priorityOf(b""), priorityOf(msgpack.packb({"priority": 7}))], [4, 7])
