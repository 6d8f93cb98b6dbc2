"""The depth of input."""

from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.nesting import NESTING, NestedTooDeeply, checkNesting, unpack


class NestingTests(SynchronousTestCase):
    """Arrays and maps inside each other."""

    def test_depth(self) -> None:
        """So many levels may be nested, as arrays, as maps or mixed, anywhere in a value."""
        for opening in (b"\x91", b"\x81\xa1a", b"\x92\x01", b"\xdc\x00\x01", b"\xdf\x00\x00\x00\x01\xa1a"):
            for last in (b"\x90", b"\x80"):
                value = unpack(opening * (NESTING - 1) + last)
                self.assertEqual(unpack(msgpack.packb(value)), value)
                error = self.assertRaises(NestedTooDeeply, unpack, opening * NESTING + last)
                self.assertEqual(str(error), "nested deeper than 256 levels")
        self.assertRaises(NestedTooDeeply, unpack, b"\x92\x90" + b"\x91" * NESTING + b"\x01")
        self.assertRaises(NestedTooDeeply, unpack, b"\x82\xa1a\x01\xa1b" + b"\x91" * NESTING + b"\x01")

    def test_innermostValueIsNoLevel(self) -> None:
        """The innermost value is no level."""
        self.assertEqual(len(unpack(b"\x91" * NESTING + b"\x01")), 1)
        self.assertRaises(NestedTooDeeply, unpack, b"\x91" * (NESTING + 1) + b"\x01")

    def test_manyValuesAreNotDeepNorAreBytesThatLookLikeArrays(self) -> None:
        """Many values are not deep, nor are bytes that look like arrays."""
        values: list[Any] = [[[]] * 5000, {"a" * each: {} for each in range(300)}, b"\x91" * 5000, "\u00d7" * 5000]
        for value in values:
            self.assertEqual(unpack(msgpack.packb(value)), value)

    def test_checkIsLinearWithoutRecursion(self) -> None:
        """The check is linear, without recursion."""
        value: Any = []
        for _ in range(100_000):
            value = [value]
        self.assertRaises(NestedTooDeeply, checkNesting, value)
        while value:  # frees it without recursion
            value = value.pop()

    def test_otherFaultsAreThoseOfMsgpack(self) -> None:
        """Other faults are those of msgpack."""
        for packed in (b"", b"\xc1", b"\x91" * 2000, b"\x91", b"\xa1\xff"):
            self.assertRaises(ValueError, unpack, packed)

    @given(st.binary(max_size=600))
    def test_anyBytes(self, packed: bytes) -> None:
        """A value that is read can be packed again, inside others."""
        try:
            value = unpack(b"\x93" + packed, timestamp=1)
        except (ValueError, TypeError, OverflowError):
            return
        msgpack.packb([[[value]]])
