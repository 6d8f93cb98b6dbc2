"""MessagePack in the bodies of frames."""

from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.body import U64, FrameFields, frameOf, isInteger, isNumber, readBody, unpackFirst, unpackMap
from fleximq.journal.format.frame import FrameError, FrameKind
from tests.journal.frames import TIME, read, written

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), U64) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


class BodyTests(SynchronousTestCase):
    """Whole bodies."""

    @given(VALUES)
    def test_thereAndBack(self, value: Any) -> None:
        """Any value comes back, whatever padding it needs."""
        frame = frameOf(FrameKind.GAP, value, 3, TIME, 5)
        self.assertEqual(readBody(*read(written(frame)), FrameKind.GAP), value)
        self.assertEqual((frame.length % 8, frame.baseOffset, frame.count, frame.firstTime), (0, 3, 5, TIME))

    @given(VALUES, st.binary(max_size=9))
    def test_first(self, value: Any, rest: bytes) -> None:
        """A value ends where it ends; what stands behind it is given too."""
        self.assertEqual(unpackFirst(msgpack.packb(value) + rest), (value, rest))

    @given(st.binary(max_size=20))
    def test_anything(self, packed: bytes) -> None:
        """Any bytes begin with a value or are refused, and nothing else."""
        try:
            _, rest = unpackFirst(packed)
        except FrameError:
            return
        self.assertTrue(packed.endswith(rest))

    def test_deep(self) -> None:
        """What is nested too deeply is refused."""
        self.assertRaises(FrameError, unpackFirst, b"\x91" * 100_000)

    def test_map(self) -> None:
        """A map is one value, a map, with nothing behind it."""
        self.assertEqual(unpackMap(b"\x81\xa1a\x01"), {"a": 1})
        for packed in (b"\x81\xa1a\x01\x00", b"\x90", b"", b"\xc1"):
            self.assertRaises(FrameError, unpackMap, packed)


class FieldsTests(SynchronousTestCase):
    """The fields of a map."""

    def fields(self, **fields: Any) -> FrameFields:
        """Return them out of a frame."""
        return FrameFields(*read(written(frameOf(FrameKind.GAP, fields, 3, TIME))), FrameKind.GAP)

    def test_types(self) -> None:
        """Each kind of field is found, and nothing else is taken for it."""
        fields = self.fields(text="t", number=5, negative=-5, flag=True, nothing=None)
        self.assertEqual((fields.text("text"), fields.number("number"), fields.integer("negative")), ("t", 5, -5))
        self.assertEqual((fields.get("flag", bool), fields.get("nothing", object)), (True, None))
        for name in ("number", "flag", "nothing", "missing"):
            self.assertRaises(FrameError, fields.text, name)
        for name in ("text", "flag", "negative", "missing"):
            self.assertRaises(FrameError, fields.number, name)

    def test_numbers(self) -> None:
        """A truth is no number, and a number has its limits."""
        self.assertEqual([isInteger(each) for each in (0, -1, True, 1.0, "1", None)], [True, True, *[False] * 4])
        self.assertEqual([isNumber(each) for each in (0, U64, U64 + 1, -1, True)], [True, True, False, False, False])
        self.assertEqual([isNumber(each, 5) for each in (5, 6)], [True, False])
